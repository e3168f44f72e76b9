package provider_test

import (
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
	"github.com/ocibridge/ocibridge/provider"
)

// TestVersionKeepsNoText shows that a version does not keep the document or the request from
// which it was parsed in memory.
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
