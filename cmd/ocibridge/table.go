package main

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// terminalWidth returns how many characters fit on a line of w; 0 if it is no
// terminal, where lines are as long as they are.
func terminalWidth(w io.Writer) int {
	if f, ok := w.(*os.File); ok && isTerminal(w) {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 0
}

// table is for people: columns side by side under a header. One column takes the
// lines that it needs where a line is too long for the terminal. The last cell of
// a row that has fewer cells than the header stands across the rest.
type table struct {
	header []string
	rows   [][]string
	wrap   int // the column that is broken at blanks
}

const (
	tableIndent = "  "
	tableGap    = "  "
	// minWrapped is how narrow the broken column may become; then the terminal
	// breaks lines itself.
	minWrapped = 16
)

// text returns the table for lines of width characters, 0 for any length.
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

// row writes one row, on as many lines as its broken cell takes.
func (t table) row(out *strings.Builder, row []string, widths []int, width int) {
	across := len(row) < len(t.header)
	broken, limit := t.wrap, widths[t.wrap]
	if across {
		broken, limit = len(row)-1, 0
		if width > 0 {
			limit = width - len(tableIndent)
			for _, w := range widths[:broken] {
				limit -= w + len(tableGap)
			}
			limit = max(minWrapped, limit)
		}
	}
	lines := wrap(row[broken], limit)
	for n, part := range lines {
		line := tableIndent
		for i, cell := range row {
			switch {
			case i == broken:
				cell = part
			case n > 0:
				cell = ""
			}
			line += cell + strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(cell))) + tableGap
		}
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// wrap breaks s at blanks into lines of at most limit characters, but for words
// that are longer; 0 is no limit.
func wrap(s string, limit int) []string {
	if limit <= 0 || utf8.RuneCountInString(s) <= limit {
		return []string{s}
	}
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > limit {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
