package config

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// Severities of a diagnostic.
const (
	SeverityError   = "error"
	SeverityWarning = "warning"
)

// Diagnostic is an error or a warning about a place in a file. It contains no secret.
type Diagnostic struct {
	Severity string `json:"severity"`
	Summary  string `json:"summary"` // a few words
	Detail   string `json:"detail"`  // sentences: the cause, and what to do
	File     string `json:"file"`
	Line     int    `json:"line"`
	Column   int    `json:"column"`

	in    string // the path of the enclosing block
	lines []sourceLine
}

// sourceLine is a line of a file with its secrets redacted. subject is the part of the line
// that the diagnostic is about.
type sourceLine struct {
	number                 int
	before, subject, after string
}

// Error lists everything that is wrong with a file.
type Error struct {
	File        string
	Diagnostics []Diagnostic // errors and warnings; at least one error
}

// Error returns the first error and the number of further errors, on one line.
func (e *Error) Error() string {
	var first *Diagnostic
	more := -1
	for i, d := range e.Diagnostics {
		if d.Severity == SeverityError {
			more++
			if first == nil {
				first = &e.Diagnostics[i]
			}
		}
	}
	if first == nil {
		return e.File + " is not valid"
	}
	text := fmt.Sprintf("%s:%d: %s: %s", first.File, first.Line, strings.ToLower(first.Summary[:1])+first.Summary[1:], first.Detail)
	if more > 0 {
		text = fmt.Sprintf("%s (and %d more)", strings.TrimSuffix(text, "."), more)
	}
	return strings.TrimSuffix(text, ".")
}

const (
	// maxLines is the maximum number of source lines that one diagnostic shows.
	maxLines = 6
	// maxDiagnostics is the maximum number of diagnostics of a file, and maxReported is the
	// maximum number of diagnostics that Report prints.
	maxDiagnostics = 100
	maxReported    = 20
	// minWidth is the minimum width of a report in columns.
	minWidth = 40
)

// Report writes diagnostics and their source lines for people. No line has more than width
// columns, except a line with a file name. A width below minWidth counts as minWidth.
func Report(w io.Writer, diags []Diagnostic, width int, color bool) error {
	width = max(width, minWidth)
	var out strings.Builder
	for i, d := range diags {
		if i == maxReported {
			fmt.Fprintf(&out, "And %d more.\n\n", len(diags)-i)
			break
		}
		d.write(&out, width, color)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func (d Diagnostic) write(out *strings.Builder, width int, color bool) {
	paint := func(code, s string) string {
		if !color || s == "" {
			return s
		}
		return "\x1b[" + code + "m" + s + "\x1b[0m"
	}
	word := paint("31", "Error")
	if d.Severity == SeverityWarning {
		word = paint("33", "Warning")
	}
	fmt.Fprintf(out, "%s: %s\n\n", word, hint.OneLine(d.Summary))
	if d.File != "" {
		in := ""
		if d.in != "" {
			in = ", in " + d.in
		}
		fmt.Fprintf(out, "  on %s line %d%s:\n", hint.OneLine(d.File), d.Line, in)
		for _, l := range d.lines {
			before, subject, after := fit(l, width-6)
			fmt.Fprintf(out, "%4d: %s%s%s\n", l.number, before, paint("1;4", subject), after)
		}
		out.WriteByte('\n')
	}
	fmt.Fprintf(out, "%s\n\n", hint.Wrapped(hint.OneLine(d.Detail), width, 0))
}

// fit shortens a source line to width columns. It always keeps the beginning of the subject.
func fit(l sourceLine, width int) (before, subject, after string) {
	before, subject, after = l.before, l.subject, l.after
	length := utf8.RuneCountInString
	if over := length(before) + min(length(subject), width/2) - width; over > 0 {
		r := []rune(before)
		before = "..." + string(r[min(over+3, len(r)):])
	}
	cut := func(s string, room int) string {
		switch {
		case length(s) <= room:
			return s
		case room < 3:
			return ""
		}
		return string([]rune(s)[:room-3]) + "..."
	}
	subject = cut(subject, width-length(before))
	return before, subject, cut(after, width-length(before)-length(subject))
}

// source is the configuration file that is being decoded.
type source struct {
	name   string
	src    []byte
	starts []int // the offset of each line
	hidden []span
	body   *hclsyntax.Body // nil if the file does not parse
}

func newSource(name string, src []byte, hidden []span) *source {
	s := &source{name: name, src: src, starts: []int{0}, hidden: hidden}
	for i, b := range src {
		if b == '\n' && i+1 < len(src) {
			s.starts = append(s.starts, i+1)
		}
	}
	return s
}

// diagnostics converts the first maxDiagnostics of HCL's diagnostics, in the order of the
// file.
func (s *source) diagnostics(diags hcl.Diagnostics) []Diagnostic {
	sortByPlace(diags)
	var out []Diagnostic
	for _, d := range diags[:min(len(diags), maxDiagnostics)] {
		out = append(out, s.diagnostic(d))
	}
	return out
}

func sortByPlace(diags hcl.Diagnostics) {
	slices.SortStableFunc(diags, func(a, b *hcl.Diagnostic) int {
		return cmp.Or(cmp.Compare(start(a).Byte, start(b).Byte), cmp.Compare(a.Summary, b.Summary), cmp.Compare(a.Detail, b.Detail))
	})
}

func start(d *hcl.Diagnostic) hcl.Pos {
	if d.Subject == nil {
		return hcl.InitialPos
	}
	return d.Subject.Start
}

func (s *source) diagnostic(d *hcl.Diagnostic) Diagnostic {
	at := start(d)
	out := Diagnostic{
		Severity: SeverityError, Summary: d.Summary,
		// After an unclosed quote, HCL's detail quotes whole lines of the file. These lines
		// can contain secrets.
		Detail: quotedSecret.ReplaceAllString(strings.Join(strings.Fields(d.Detail), " "), redacted),
		File:   s.name, Line: at.Line, Column: at.Column, in: s.enclosing(at.Byte),
	}
	if d.Severity == hcl.DiagWarning {
		out.Severity = SeverityWarning
	}
	if d.Subject != nil {
		out.lines = s.lines(*d.Subject)
	}
	return out
}

// enclosing returns the path of the innermost block around a byte offset. It returns ""
// outside of all blocks.
func (s *source) enclosing(at int) string {
	in := ""
	for b := s.body; b != nil; {
		var inner *hclsyntax.Body
		for _, block := range b.Blocks {
			if block.OpenBraceRange.Start.Byte < at && at < block.CloseBraceRange.End.Byte {
				name := block.Type
				for _, l := range block.Labels {
					name += fmt.Sprintf(" %q", l)
				}
				in, inner = joinPath(in, name), block.Body
			}
		}
		b = inner
	}
	return in
}

// lines returns the source lines of a range, and at most maxLines of them.
func (s *source) lines(r hcl.Range) []sourceLine {
	from, to := min(r.Start.Byte, len(s.src)), min(max(r.End.Byte, r.Start.Byte+1), len(s.src))
	i, found := slices.BinarySearch(s.starts, from)
	if !found {
		i--
	}
	var out []sourceLine
	for ; i < len(s.starts) && (s.starts[i] < to || len(out) == 0) && len(out) < maxLines; i++ {
		at, end := s.starts[i], len(s.src)
		if i+1 < len(s.starts) {
			end = s.starts[i+1]
		}
		end = at + len(bytes.TrimRight(s.src[at:end], "\r\n"))
		a, b := min(max(from, at), end), min(max(to, at), end)
		out = append(out, sourceLine{i + 1, s.show(at, a), s.show(a, b), s.show(b, end)})
	}
	return out
}

// show returns the part of the file between two byte offsets. It replaces secrets by
// "[redacted]".
func (s *source) show(from, to int) string {
	var out strings.Builder
	i, _ := slices.BinarySearchFunc(s.hidden, from, func(h span, at int) int { return cmp.Compare(h.to, at+1) })
	for _, h := range s.hidden[i:] {
		if h.from >= to {
			break
		}
		out.Write(s.src[from:max(from, h.from)])
		if h.from >= from {
			if h.from > 0 && s.src[h.from-1] == '=' {
				out.WriteByte(' ')
			}
			out.WriteString(redacted)
		}
		from = min(h.to, to)
	}
	out.Write(s.src[from:to])
	return strings.ReplaceAll(strings.Map(hint.Printable, out.String()), "\t", " ")
}

const redacted = "[redacted]"

// sentence turns the text of an error or a hint into a sentence.
func sentence(s string) string {
	if s == "" {
		return ""
	}
	r, n := utf8.DecodeRuneInString(s)
	if s = string(unicode.ToUpper(r)) + s[n:]; strings.HasSuffix(s, ".") || strings.HasSuffix(s, "?") {
		return s
	}
	return s + "."
}
