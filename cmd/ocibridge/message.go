package main

import (
	"fmt"
	"io"
	"strings"

	"golang.org/x/term"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// usualWidth is the assumed width of a terminal whose width is unknown.
const usualWidth = 80

// terminalWidth returns the number of characters in a line of the terminal w, or 0 if w is not a terminal.
func terminalWidth(w io.Writer) int {
	f := terminal(w)
	if f == nil {
		return 0
	}
	if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
		return n
	}
	return usualWidth
}

// message prints a text as one line, after the word for its kind. On a terminal, it wraps the line between words.
func message(w io.Writer, kind, format string, args ...any) {
	fmt.Fprintln(w, messageText(terminalWidth(w), kind, fmt.Sprintf(format, args...)))
}

// messageText returns a message for a terminal of the given width, see [hint.Wrapped].
func messageText(width int, kind, text string) string {
	return linesText(width, kind+": "+hint.OneLine(text))
}

func note(w io.Writer, format string, args ...any) { message(w, "note", format, args...) }

func warn(w io.Writer, format string, args ...any) { message(w, "warning", format, args...) }

// printError prints an error and its hint, if it has one.
func printError(w io.Writer, text, help string) {
	message(w, "error", "%s", text)
	if help != "" {
		message(w, "hint", "%s", help)
	}
}

// warnAll prints each warning. A warning can contain names and texts of other parties.
func warnAll(stderr io.Writer, warnings []string) {
	for _, text := range warnings {
		warn(stderr, "%s", text)
	}
}

// linesText wraps lines of text for a terminal of the given width, see [hint.Wrapped]. It does not wrap lines with
// colours, because the codes for colours have no width.
func linesText(width int, text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if !strings.Contains(line, "\x1b") {
			lines[i] = hint.Wrapped(line, width, 2+len(line)-len(strings.TrimLeft(line, " ")))
		}
	}
	return strings.Join(lines, "\n")
}

// besideText wraps a message for a terminal of the given width. The parameter before is the number of columns that the
// caller prints before the result. All further lines begin below the first line.
func besideText(width, before int, text string) string {
	if text = hint.OneLine(text); width == 0 {
		return text
	}
	text = hint.Wrapped(text, max(minWrapped, width-before), 0)
	return strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", before))
}
