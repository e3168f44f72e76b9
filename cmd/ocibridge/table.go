package main

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/mitchellh/go-wordwrap"
	"golang.org/x/term"
)

// terminalWidth returns the number of characters in a line of the terminal w, or 0 if w is no
// terminal.
func terminalWidth(w io.Writer) int {
	if f, ok := w.(*os.File); ok && isTerminal(w) {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 0
}

// table formats rows as columns under a header. If a line is too long for the terminal, the
// cells of one column are wrapped. The last cell of a row with fewer cells than the header
// spans the other columns.
type table struct {
	header []string
	rows   [][]string
	wrap   int // the index of the column that is wrapped
}

const (
	tableIndent = "  "
	tableGap    = "  "
	// minWrapped is the minimum width of the wrapped column. Narrower terminals wrap the lines
	// themselves.
	minWrapped = 16
)

// text formats the table for lines of width characters, or of any length if width is 0.
func (t table) text(width int) string {
	rows := append([][]string{t.header}, t.rows...)
	widths := make([]int, len(t.header))
	for _, row := range rows {
		for i, cell := range row {
			if i < len(row)-1 || len(row) == len(t.header) {
				widths[i] = max(widths[i], utf8.RuneCountInString(cell))
			}
		}
	}
	if width > 0 {
		total := len(tableIndent) - len(tableGap)
		for _, w := range widths {
			total += w + len(tableGap)
		}
		if over := total - width; over > 0 {
			widths[t.wrap] = max(min(minWrapped, widths[t.wrap]), widths[t.wrap]-over)
		}
	}
	var out strings.Builder
	for _, row := range rows {
		t.row(&out, row, widths, width)
	}
	return out.String()
}

// row writes one row, on as many lines as its wrapped cell needs.
func (t table) row(out *strings.Builder, row []string, widths []int, width int) {
	across := len(row) < len(t.header)
	wrapped, limit := t.wrap, widths[t.wrap]
	if across {
		wrapped, limit = len(row)-1, 0
		if width > 0 {
			limit = width - len(tableIndent)
			for _, w := range widths[:wrapped] {
				limit -= w + len(tableGap)
			}
			limit = max(minWrapped, limit)
		}
	}
	text := row[wrapped]
	if limit > 0 {
		text = wordwrap.WrapString(text, uint(limit))
	}
	lines := strings.Split(text, "\n")
	for n, part := range lines {
		line := tableIndent
		for i, cell := range row {
			switch {
			case i == wrapped:
				cell = part
			case n > 0:
				cell = ""
			}
			line += cell + strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(cell))) + tableGap
		}
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}
