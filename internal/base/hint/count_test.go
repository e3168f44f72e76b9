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

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0:               "0 B",
		1023:            "1023 B",
		1024:            "1 KiB",
		1<<20 - 1:       "1023 KiB",
		1 << 20:         "1.0 MiB",
		1<<20 + 512<<10: "1.5 MiB",
		10 << 20:        "10 MiB",
		5 << 30:         "5120 MiB",
	} {
		if got := hint.Bytes(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
