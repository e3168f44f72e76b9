package main

import (
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	rows := [][]string{
		{"VERSION", "PLATFORMS", "SIZE"},
		{"10.0.0", "darwin_arm64 linux_amd64 windows_amd64", "12 MiB"},
		{"1.0.0", "linux_amd64", "4 MiB"},
	}
	for width, want := range map[int]string{
		0: `  VERSION  PLATFORMS                               SIZE
  10.0.0   darwin_arm64 linux_amd64 windows_amd64  12 MiB
  1.0.0    linux_amd64                             4 MiB
`,
		46: `  VERSION  PLATFORMS                 SIZE
  10.0.0   darwin_arm64 linux_amd64  12 MiB
           windows_amd64
  1.0.0    linux_amd64               4 MiB
`,
		10: `  VERSION  PLATFORMS      SIZE
  10.0.0   darwin_arm64   12 MiB
           linux_amd64
           windows_amd64
  1.0.0    linux_amd64    4 MiB
`,
	} {
		if got := tableText(rows, 1, width); got != want {
			t.Errorf("%d:\n%s\nwant\n%s", width, got, want)
		}
	}
}

// TestNoteText shows that the lines of a note end at the width of the terminal, between words.
func TestNoteText(t *testing.T) {
	const text = "the command requested nothing from exec, which serves the providers and modules of registry.terraform.io and registry.opentofu.org"
	if got := noteText(0, "%s", text); got != "note: "+text {
		t.Errorf("without a terminal: %q", got)
	}
	got := noteText(80, "%s", text)
	if strings.ReplaceAll(got, "\n", " ") != "note: "+text {
		t.Errorf("a word is broken: %q", got)
	}
	for line := range strings.SplitSeq(got, "\n") {
		if len(line) > 80 {
			t.Errorf("%d characters: %q", len(line), line)
		}
	}
}
