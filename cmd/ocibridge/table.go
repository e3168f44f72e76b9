package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/mitchellh/go-wordwrap"
	"golang.org/x/term"

	"github.com/ocibridge/ocibridge/internal/hint"
)

// terminalWidth returns the number of characters in a line of the terminal w, or 0 if w is not
// a terminal.
func terminalWidth(w io.Writer) int {
	if f := terminal(w); f != nil {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 0
}

// note prints a note. On a terminal, its lines end between words.
func note(w io.Writer, format string, args ...any) {
	fmt.Fprintln(w, noteText(terminalWidth(w), format, args...))
}

// noteText returns a note whose lines have at most width characters, if width is not 0 and no word is longer.
func noteText(width int, format string, args ...any) string {
	text := "note: " + hint.OneLine(fmt.Sprintf(format, args...))
	if width > 0 {
		text = wordwrap.WrapString(text, uint(max(minWrapped, width)))
	}
	return text
}

// minWrapped is the minimum width of a wrapped column. Narrower terminals wrap the lines
// themselves.
const minWrapped = 16

// tableText formats rows of equal length as columns. Lines have at most width characters. If
// width is 0, lines have any length. To shorten lines, tableText wraps the cells of a single
// column. The parameter wrapped is the index of this column.
func tableText(rows [][]string, wrapped, width int) string {
	if width > 0 {
		width = max(minWrapped, width-widthWithout(rows, wrapped))
	}
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		text := row[wrapped]
		if width > 0 {
			text = wordwrap.WrapString(text, uint(width))
		}
		line := slices.Clone(row)
		for part := range strings.SplitSeq(text, "\n") {
			line[wrapped] = part
			fmt.Fprintf(w, "  %s\n", strings.Join(line, "\t"))
			clear(line)
		}
	}
	w.Flush()
	return trailingBlanks.ReplaceAllString(out.String(), "\n")
}

// widthWithout returns the width of a table in which all cells of the given column are empty.
func widthWithout(rows [][]string, column int) int {
	total := 0
	for i := range rows[0] {
		widest := 0
		for _, row := range rows {
			if i != column {
				widest = max(widest, utf8.RuneCountInString(row[i]))
			}
		}
		total += widest + 2
	}
	return total
}

var trailingBlanks = regexp.MustCompile(` +\n`)
