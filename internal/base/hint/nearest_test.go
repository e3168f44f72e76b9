package hint_test

import (
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

func TestNearest(t *testing.T) {
	names := []string{"listen", "output", "data", "no-cache"}
	for name, want := range map[string]string{
		"lsiten": "listen", "outptu": "output", "no_cache": "no-cache", "dat": "data", "data": "data",
		"lists": "listen", "log": "", "d": "", "": "", "dxyz": "", strings.Repeat("a", 1000): "",
	} {
		if got := hint.Nearest(name, names); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", name, got, want)
		}
	}
}
