package hint_test

import (
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

func TestCount(t *testing.T) {
	for n, want := range []string{"0 versions", "1 version", "2 versions"} {
		if got := hint.Count(n, "version"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
