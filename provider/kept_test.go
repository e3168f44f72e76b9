package provider_test

import (
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/testkit/cost"
	"github.com/ocibridge/ocibridge/provider"
)

// TestVersionKeepsNoText but its own: it comes from a document or a request.
func TestVersionKeepsNoText(t *testing.T) {
	cost.Kept(t, 1<<20, func() any {
		var kept []provider.Version
		for range 100 {
			text := "1.0.0-beta+build" + strings.Repeat("x", 64<<10)
			kept = append(kept, provider.MustParseVersion(text[:len("1.0.0-beta+build")]))
		}
		return kept
	})
}
