package main

import "testing"

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
