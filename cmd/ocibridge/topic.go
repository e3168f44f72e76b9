package main

import (
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ocibridge/ocibridge/docs"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// showTopic prints a page of the documentation. On a terminal, it formats Markdown for the terminal's width, and lets a pager
// show the text.
func showTopic(w io.Writer, topic docs.Topic) error {
	tty, text := terminal(w), topic.Text()
	if tty == nil {
		_, err := io.WriteString(w, text)
		return err
	}
	if topic.IsMarkdown() {
		text = formatMarkdown(text, terminalWidth(w), os.Getenv("NO_COLOR") == "")
	}
	if pager := pagerCommand(); pager != nil {
		pager.Stdin, pager.Stdout, pager.Stderr = strings.NewReader(text), tty, os.Stderr
		// The pager decides what Ctrl-C does.
		interrupts := make(chan os.Signal, 1)
		signal.Notify(interrupts, os.Interrupt)
		defer signal.Stop(interrupts)
		if pager.Start() == nil {
			_ = pager.Wait() // users may leave a pager before the end, and its status says nothing about the text
			return nil
		}
	}
	_, err := io.WriteString(w, text)
	return err
}

// pagerCommand returns the command that shows a text page by page, or nil if there is none. Like Git, it chooses the
// command in PAGER, or else less.
func pagerCommand() *exec.Cmd {
	line, set := os.LookupEnv("PAGER")
	var pager *exec.Cmd
	switch {
	case !set:
		pager = exec.Command("less")
	case line == "" || line == "cat":
		return nil
	default:
		pager = exec.Command("sh", "-c", line)
	}
	if pager.Err != nil { // it is not on PATH
		return nil
	}
	pager.Env = os.Environ()
	if os.Getenv("LESS") == "" {
		pager.Env = append(pager.Env, "LESS=FRX") // show colours, and leave a text of one page on the screen
	}
	return pager
}

// The codes with which formatMarkdown emphasizes text.
const (
	boldUnderlined = "\x1b[1;4m"
	bold           = "\x1b[1m"
	plain          = "\x1b[0m"
)

// formatMarkdown formats a page for a terminal of the given width. The pages use little of Markdown: headings, paragraphs,
// lists, tables, code, and bold words. Code is never broken. The usual library for this, glamour 1.0.0, would add 40 ms and 6
// MB to every start of the program, because its highlighter loads all languages and styles then.
func formatMarkdown(text string, width int, emphasize bool) string {
	f := &formatter{width: width, emphasize: emphasize}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for len(lines) > 0 {
		lines = lines[f.block(lines):]
	}
	return f.out.String()
}

// formatter writes the blocks of a page.
type formatter struct {
	out       strings.Builder
	width     int
	emphasize bool
	inList    bool
}

var (
	headingMark = regexp.MustCompile(`^(#+) +(.*)$`)
	itemMark    = regexp.MustCompile(`^( *)([-*]|\d+\.) `)
	boldMark    = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	ruleMark    = regexp.MustCompile(`^\|[-:| ]+\|$`)
)

// block writes the first block of lines, and returns the number of lines in it.
func (f *formatter) block(lines []string) int {
	first := lines[0]
	item := itemMark.FindString(first)
	wasInList := f.inList
	f.inList = item != "" || wasInList && (first == "" || first[0] == ' ')
	switch {
	case first == "":
		f.out.WriteByte('\n')
		return 1
	case strings.HasPrefix(strings.TrimLeft(first, " "), "```"):
		return f.fenced(lines)
	case strings.HasPrefix(first, "|"):
		n := blockLength(lines, func(line string) bool { return strings.HasPrefix(line, "|") })
		f.table(lines[:n])
		return n
	case strings.HasPrefix(first, "    ") && !f.inList:
		f.out.WriteString(first + "\n")
		return 1
	}
	if m := headingMark.FindStringSubmatch(first); m != nil {
		code := bold
		if m[1] == "#" {
			code = boldUnderlined
		}
		f.out.WriteString(f.emphasized(code, strings.ReplaceAll(m[2], "`", "")) + "\n")
		return 1
	}
	n := 1 + blockLength(lines[1:], func(line string) bool {
		return line != "" && line[0] != '|' && line[0] != '#' && !itemMark.MatchString(line) && !strings.HasPrefix(strings.TrimLeft(line, " "), "```")
	})
	indent := len(item)
	if item == "" {
		indent = len(first) - len(strings.TrimLeft(first, " "))
	}
	words := []string{strings.TrimRight(first, " ")}
	for _, line := range lines[1:n] {
		words = append(words, strings.TrimSpace(line))
	}
	f.out.WriteString(f.inline(hint.Wrapped(strings.Join(words, " "), f.width, indent)) + "\n")
	return n
}

// blockLength counts the lines at the beginning for which belongs returns true.
func blockLength(lines []string, belongs func(string) bool) int {
	if n := slices.IndexFunc(lines, func(line string) bool { return !belongs(line) }); n >= 0 {
		return n
	}
	return len(lines)
}

// fenced writes the code between two fences. It returns the number of lines, including the fences.
func (f *formatter) fenced(lines []string) int {
	for i, line := range lines[1:] {
		if strings.HasPrefix(strings.TrimLeft(line, " "), "```") {
			return i + 2
		}
		if line != "" {
			line = "    " + line
		}
		f.out.WriteString(line + "\n")
	}
	return len(lines)
}

// inline emphasizes the bold words of a text that is already wrapped.
func (f *formatter) inline(text string) string {
	return boldMark.ReplaceAllStringFunc(text, func(s string) string {
		return f.emphasized(bold, boldMark.FindStringSubmatch(s)[1])
	})
}

// emphasized returns a text with the code for its emphasis. It repeats the code in each line, because pagers forget it at
// the end of a line.
func (f *formatter) emphasized(code, text string) string {
	if !f.emphasize {
		return text
	}
	return code + strings.ReplaceAll(text, "\n", plain+"\n"+code) + plain
}

// table writes a table. If its columns do not fit the width, it writes each row as a list.
func (f *formatter) table(lines []string) {
	var rows [][]string
	for _, line := range lines {
		if !ruleMark.MatchString(line) {
			rows = append(rows, tableCells(line))
		}
	}
	widths := columnWidths(rows, f.width-2)
	if widths == nil {
		f.tableAsList(rows)
		return
	}
	for i, row := range rows {
		f.tableRow(row, widths, i == 0)
	}
}

// tableCells returns the cells of a row, without bold marks.
func tableCells(line string) []string {
	const escaped = "\x00"
	line = strings.ReplaceAll(line, `\|`, escaped)
	var cells []string
	for cell := range strings.SplitSeq(strings.Trim(strings.TrimSpace(line), "|"), "|") {
		cells = append(cells, boldMark.ReplaceAllString(strings.ReplaceAll(strings.TrimSpace(cell), escaped, "|"), "$1"))
	}
	return cells
}

// minColumn is the minimum width of a column whose cells are wrapped.
const minColumn = 20

// columnWidths divides the given width among the columns of a table. It returns nil if a word does not fit its column.
func columnWidths(rows [][]string, width int) []int {
	columns := len(rows[0])
	natural, longest := make([]int, columns), make([]int, columns)
	for _, row := range rows {
		for i, cell := range row[:min(columns, len(row))] {
			natural[i] = max(natural[i], utf8.RuneCountInString(cell))
			for line := range strings.SplitSeq(hint.Wrapped(cell, minColumn, 0), "\n") {
				longest[i] = max(longest[i], utf8.RuneCountInString(line))
			}
		}
	}
	// Divide the width equally. If a column needs less than its share, the others get the rest.
	widths := make([]int, columns)
	left, open := width-2*(columns-1), columns
	for open > 0 {
		share, narrow := left/open, false
		for i := range widths {
			if widths[i] == 0 && max(1, natural[i]) <= share {
				widths[i], narrow = max(1, natural[i]), true
				left, open = left-widths[i], open-1
			}
		}
		if narrow {
			continue
		}
		for i := range widths {
			if widths[i] == 0 {
				widths[i] = share
			}
		}
		open = 0
	}
	for i := range widths {
		if widths[i] < natural[i] && widths[i] < max(minColumn, longest[i]) {
			return nil
		}
	}
	return widths
}

// tableRow writes a row. The heads of the columns are bold.
func (f *formatter) tableRow(row []string, widths []int, heads bool) {
	cells := make([][]string, len(widths))
	lines := 0
	for i := range widths {
		if i < len(row) {
			cells[i] = strings.Split(hint.Wrapped(row[i], widths[i], 0), "\n")
			lines = max(lines, len(cells[i]))
		}
	}
	for n := range lines {
		var line strings.Builder
		for i, width := range widths {
			cell := ""
			if n < len(cells[i]) {
				cell = cells[i][n]
			}
			line.WriteString("  " + cell + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(cell))))
		}
		text := strings.TrimRight(line.String(), " ")
		if heads {
			text = "  " + f.emphasized(bold, strings.TrimLeft(text, " "))
		}
		f.out.WriteString(text + "\n")
	}
}

// tableAsList writes the heads of the columns, and then each row as a list: its first cell, and below it the other cells
// with their heads.
func (f *formatter) tableAsList(rows [][]string) {
	heads := rows[0]
	f.out.WriteString(hint.Wrapped("  "+strings.Join(heads, ", ")+":", f.width, 2) + "\n")
	for _, row := range rows[1:] {
		f.out.WriteString("  " + f.emphasized(bold, hint.Wrapped(row[0], f.width-2, 2)) + "\n")
		for i, cell := range row[1:] {
			if cell == "" {
				continue
			}
			if len(heads) > 2 && i+1 < len(heads) && heads[i+1] != "" {
				cell = heads[i+1] + ": " + cell
			}
			f.out.WriteString(hint.Wrapped("      "+cell, f.width, 6) + "\n")
		}
	}
}
