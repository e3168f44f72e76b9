package main

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ocibridge/ocibridge/docs"
)

// TestFormatMarkdown shows how each kind of block looks.
func TestFormatMarkdown(t *testing.T) {
	const page = "# The title\n\nA paragraph with **bold words that are more\nthan one line** long.\n\n## A `section`\n\n" +
		"- an item with so many words\n  that it has two lines\n  - an inner item\n1. a number\n\n```sh\na very long command line that stays as it is\n```\n\n    indented\n\n" +
		"| name | meaning |\n|---|---|\n| `a` | this \\| that |\n| `b` | so many words that they need lines |\n\n" +
		"| name | kind | meaning |\n|---|---|---|\n| `a-name-that-is-long` | one | words |\n"
	want := "<1;4mThe title<0m\n\nA paragraph with <1mbold words<0m\n<1mthat are more than one line<0m\nlong.\n\n<1mA section<0m\n\n" +
		"- an item with so many words\n  that it has two lines\n  - an inner item\n1. a number\n\n    a very long command line that stays as it is\n\n    indented\n\n" +
		"  <1mname  meaning<0m\n  `a`   this | that\n  `b`   so many words that they\n        need lines\n\n" +
		"  name, kind, meaning:\n  <1m`a-name-that-is-long`<0m\n      kind: one\n      meaning: words\n"
	if got := strings.ReplaceAll(formatMarkdown(page, 32, true), "\x1b[", "<"); got != want {
		t.Errorf("%q\nwant\n%q", got, want)
	}
	if got := formatMarkdown(page, 32, false); strings.Contains(got, "\x1b") {
		t.Errorf("without emphasis: %q", got)
	}
}

// TestTopicsOnTerminal shows that each page fits a terminal: a line is longer than the terminal only if it is code or one
// word. No word of the page is lost.
func TestTopicsOnTerminal(t *testing.T) {
	for _, topic := range docs.Topics() {
		if !topic.IsMarkdown() {
			continue
		}
		text := topic.Text()
		got := formatMarkdown(text, 80, false)
		for line := range strings.SplitSeq(got, "\n") {
			words := strings.Count(strings.TrimSpace(line), " ")
			if utf8.RuneCountInString(line) > 80 && words > 0 && !strings.HasPrefix(line, "    ") && !strings.Contains(line, "ocibridge ") {
				t.Errorf("%s: %q", topic.Name, line)
			}
		}
		if shown, all := wordsOf(got), wordsOf(text); !slices.Equal(shown, all) {
			lost := slices.DeleteFunc(all, func(s string) bool { return slices.Contains(shown, s) })
			t.Errorf("%s: without the words %q", topic.Name, lost)
		}
	}
}

// wordsOf returns the words of a page, sorted and each once, without marks.
func wordsOf(text string) []string {
	words := strings.FieldsFunc(fence.ReplaceAllString(text, ""), func(r rune) bool { return strings.ContainsRune(" \n|`*#\\:-,.;()", r) })
	slices.Sort(words)
	return slices.Compact(words)
}

// fence matches a line before or after code.
var fence = regexp.MustCompile("(?m)^ *```.*$")

// TestTopicWithoutTerminal shows that a page is Markdown without a terminal, and that no pager runs.
func TestTopicWithoutTerminal(t *testing.T) {
	t.Setenv("PAGER", "false")
	topic, _ := docs.Find("output")
	var stdout, stderr bytes.Buffer
	if status := execute(t.Context(), []string{"help", "output"}, &stdout, &stderr); status != 0 || stdout.String() != topic.Text() {
		t.Errorf("status %d, %.80q", status, fmt.Sprint(&stdout, &stderr))
	}
}
