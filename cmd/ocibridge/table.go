package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

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
			text = hint.Wrapped(text, width, 0)
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
