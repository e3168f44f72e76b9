package main

import (
	"strings"
	"testing"
)

// TestMessageText shows that the lines of a message end at the width of the terminal, between words, and that
// without a terminal a message is one line.
func TestMessageText(t *testing.T) {
	const text = "the command requested nothing from exec, which serves the providers\nand modules of registry.terraform.io and registry.opentofu.org"
	for kind, indent := range map[string]string{"note": "  ", "  hint": "    "} {
		want := kind + ": " + strings.ReplaceAll(text, "\n", " ")
		if got := messageText(0, kind, text); got != want {
			t.Errorf("without a terminal: %q", got)
		}
		got := messageText(80, kind, text)
		if strings.ReplaceAll(got, "\n"+indent, " ") != want || !strings.Contains(got, "\n") {
			t.Errorf("a word is broken: %q", got)
		}
		for line := range strings.SplitSeq(got, "\n") {
			if len(line) > 80 {
				t.Errorf("%d characters: %q", len(line), line)
			}
		}
	}
}

// TestLinesText shows that each line is wrapped for itself, and that lines with colours stay as they are.
func TestLinesText(t *testing.T) {
	got := linesText(20, "short\n  two words and more words\n\x1b[31mred words and more words\x1b[0m\n")
	want := "short\n  two words and\n    more words\n\x1b[31mred words and more words\x1b[0m\n"
	if got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
}
