package hint_test

import (
	"testing"

	"github.com/ocibridge/ocibridge/internal/hint"
)

func TestOneLine(t *testing.T) {
	for name, tc := range map[string]struct{ in, out string }{
		"plain":             {"push linux_amd64 to ghcr.io/acme: denied", "push linux_amd64 to ghcr.io/acme: denied"},
		"other scripts":     {"bücher.example/ütte/日本", "bücher.example/ütte/日本"},
		"several lines":     {"denied:\r\n\trequested access\n\nto the resource\n", "denied: requested access to the resource"},
		"colours and bells": {"\x1b[31mdenied\x1b[0m\a", "[31mdenied [0m"},
		"reversed text":     {"denied\u202eexample.com", "denied example.com"},
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
