package main

import "testing"

func TestOneLine(t *testing.T) {
	for name, tc := range map[string]struct{ in, out string }{
		"plain":               {"push linux_amd64 to ghcr.io/acme: denied", "push linux_amd64 to ghcr.io/acme: denied"},
		"other scripts":       {"bücher.example/ütte/日本", "bücher.example/ütte/日本"},
		"several lines":       {"denied:\r\n\trequested access\n\nto the resource\n", "denied: requested access to the resource"},
		"colours and bells":   {"\x1b[31mdenied\x1b[0m\a", "[31mdenied [0m"},
		"reversed text":       {"denied\u202eexample.com", "denied example.com"},
		"what is not UTF-8":   {"denied \xff", "denied \ufffd"},
		"nothing to be shown": {" \n\x00", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := oneLine(tc.in); got != tc.out {
				t.Errorf("%q, want %q", got, tc.out)
			}
		})
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{
		-1:              "size unknown",
		0:               "0 B",
		1023:            "1023 B",
		1024:            "1 KiB",
		1<<20 - 1:       "1023 KiB",
		1 << 20:         "1.0 MiB",
		1<<20 + 512<<10: "1.5 MiB",
		10 << 20:        "10 MiB",
		5 << 30:         "5120 MiB",
	} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %s, want %s", n, got, want)
		}
	}
}
