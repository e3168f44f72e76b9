package main

import (
	"bytes"
	"strings"
	"syscall"
	"testing"
)

// TestFullStandardOutput shows that a command whose results cannot be printed fails, also if it ignores the error.
func TestFullStandardOutput(t *testing.T) {
	for _, args := range [][]string{
		{"version"},
		{"gc", "--data", t.TempDir()},
		{"gc", "--data", t.TempDir(), "--output", "json"},
		{"list", "--data", t.TempDir()},
	} {
		var stderr bytes.Buffer
		if status := execute(t.Context(), args, fullWriter{}, &stderr); status != exitFailed || !strings.Contains(stderr.String(), "error: ") {
			t.Errorf("%v: status %d, %s", args, status, stderr.String())
		}
	}
}

// fullWriter is a file on a full disk.
type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{-1: "size unknown", 0: "0 B", 10 << 20: "10 MiB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %s, want %s", n, got, want)
		}
	}
}
