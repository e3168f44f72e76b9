package hint_test

import (
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

func TestOneLine(t *testing.T) {
	for name, tc := range map[string]struct{ in, out string }{
		"plain":             {"push linux_amd64 to ghcr.io/acme: denied", "push linux_amd64 to ghcr.io/acme: denied"},
		"other scripts":     {"bücher.example/ütte/日本", "bücher.example/ütte/日本"},
		"several lines":     {"denied:\r\n\trequested access\n\nto the resource\n", "denied: requested access to the resource"},
		"colours and bells": {"\x1b[31mdenied\x1b[0m\a", "[31mdenied [0m"},
		"reversed text":     {"denied\u202eexample.com", "denied example.com"},
		"C1 controls":       {"denied\u0085\u009b31m", "denied 31m"},
		"invalid UTF-8":     {"denied \xff", "denied \ufffd"},
		"nothing printable": {" \n\x00", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := hint.OneLine(tc.in); got != tc.out {
				t.Errorf("%q, want %q", got, tc.out)
			}
		})
	}
}

func TestPrintable(t *testing.T) {
	const text = "a\tb\n\n  日本\x00\r\x1b\x7f\u0085\u009b\u061c\u200e\u200f\u202a\u202e\u2066\u2069\u2028\ufeffc"
	if got, want := strings.Map(hint.Printable, text), "a\tb\n\n  日本"+strings.Repeat(" ", 15)+"c"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
