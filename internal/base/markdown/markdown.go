// Package markdown turns Markdown of other parties into harmless HTML. It is the Markdown of GitHub: tables, task lists and
// raw HTML are allowed.
//
// Invariants:
//
//   - The HTML has no scripts, styles, forms, frames or images, and no attributes that run or load anything. An image becomes
//     its alternative text.
//   - Tables are in elements with the class "scroll", which can be wider than the page.
//   - Links go to http and https URLs, to e-mail addresses, to headings with the prefix, and to a query of the page itself.
//     Other links become their text.
//   - All IDs begin with [Options].Prefix, so that they never collide with those of the page.
//   - No heading is above [Options].Level. Headings in Markdown begin at that level, and skip none.
//   - The cost is bounded: [Render] returns [ErrTooLarge] for a text that would take too much memory or time.
package markdown

import (
	"bytes"
	"errors"
	"fmt"
	"html/template"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// MaxBytes is the maximum size of a text in bytes. The longest READMEs of public modules have half of that.
const MaxBytes = 256 << 10

// The limits of a text, apart from its size. READMEs of public modules stay far below them. The parser takes a time that
// grows with the square of the marks of a paragraph.
const (
	maxLines     = 15_000  // the maximum number of lines
	maxCells     = 100_000 // the maximum number of cells of tables: the columns of the widest table times all lines
	maxMarkers   = 16      // the maximum number of markers of quotes and lists at the beginning of a line
	maxMarks     = 50_000  // the maximum number of marks of emphasis, code, links, quotes and lists
	maxParagraph = 4_000   // the maximum number of marks of emphasis and links in one paragraph, or in one row of a table
	maxOutput    = 4 << 20 // the maximum size of the HTML in bytes
)

// ErrTooLarge means that a text is not rendered, because that could take too much memory or time.
var ErrTooLarge = errors.New("the text is too large")

// Options configure [Render].
type Options struct {
	// Prefix is the beginning of all IDs, such as "readme-".
	Prefix string
	// Level is the level of the topmost heading, 1 to 6. 0 means 1.
	Level int
	// Link returns the query, with its question mark, to which a relative link goes, or "" if it goes nowhere. The query may have
	// a fragment, which begins with Prefix. Link may be nil.
	Link func(destination string) string
}

// Render returns the HTML of a text. An error wraps [ErrTooLarge]. Bytes that are not UTF-8 are replaced.
func Render(src []byte, o Options) (_ template.HTML, err error) {
	if err := check(src); err != nil {
		return "", err
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: it cannot be parsed: %v", ErrTooLarge, p)
		}
	}()
	if !utf8.Valid(src) {
		src = bytes.ToValidUTF8(src, []byte("\ufffd"))
	}
	md := goldmark.New(
		goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)), extension.Strikethrough, extension.Linkify, extension.TaskList),
		goldmark.WithParserOptions(parser.WithAutoHeadingID(), parser.WithASTTransformers(util.Prioritized(&transformer{o}, 1000))),
		// The sanitizer decides about raw HTML.
		goldmark.WithRendererOptions(html.WithUnsafe(), renderer.WithNodeRenderers(util.Prioritized(images{}, 100), util.Prioritized(tasks{}, 100), util.Prioritized(tables{}, 100))),
	)
	doc := md.Parser().Parse(text.NewReader(src), parser.WithContext(parser.NewContext(parser.WithIDs(&ids{prefix: o.Prefix, used: map[string]int{}}))))
	if err := checkLinks(doc); err != nil {
		return "", err
	}
	out := &bounded{}
	if err := md.Renderer().Render(out, src, doc); err != nil {
		return "", err
	}
	return template.HTML(policy(o.Prefix, max(1, o.Level)).SanitizeReader(&out.Buffer).String()), nil
}

// delimiterRow matches the line below the head of a table.
var delimiterRow = regexp.MustCompile(`(?m)^[ \t>]{0,32}\|?[ \t]*:?-+:?[ \t]*\|[ \t|:-]*\r?$`)

// check returns an error if a text exceeds a limit. It reads the text only once.
func check(src []byte) error {
	if len(src) > MaxBytes {
		return fmt.Errorf("%w: it has %d bytes, and the maximum is %d", ErrTooLarge, len(src), MaxBytes)
	}
	columns := 0
	for _, row := range delimiterRow.FindAll(src, -1) {
		columns = max(columns, bytes.Count(row, []byte("|"))+1)
	}
	lines := bytes.Count(src, []byte("\n")) + 1
	if lines > maxLines {
		return fmt.Errorf("%w: it has %d lines, and the maximum is %d", ErrTooLarge, lines, maxLines)
	}
	if columns*lines > maxCells || columns > 0 && bytes.Count(src, []byte("|")) > maxCells {
		return fmt.Errorf("%w: its tables can have more than %d cells", ErrTooLarge, maxCells)
	}
	marks, paragraph := 0, 0
	var before []byte
	inTable := false
	for line := range bytes.Lines(src) {
		deep := markers(line)
		if deep > maxMarkers {
			return fmt.Errorf("%w: quotes or lists nest more than %d deep", ErrTooLarge, maxMarkers)
		}
		text := bytes.TrimSpace(line)
		inTable = len(text) > 0 && (inTable || isTable(before, line))
		if len(text) == 0 || inTable || isItem(line) {
			paragraph = 0
		}
		n := 0
		for _, c := range line {
			switch c {
			case '*', '_', '~', '[', ']':
				n++
			}
		}
		marks, paragraph, before = marks+n+deep+bytes.Count(line, []byte("`")), paragraph+n, line
		if marks > maxMarks || paragraph > maxParagraph {
			return fmt.Errorf("%w: it has more than %d marks of emphasis, code, links, quotes and lists, or more than %d of emphasis and links in a paragraph", ErrTooLarge, maxMarks, maxParagraph)
		}
	}
	return nil
}

// isTable reports whether two lines certainly begin a table, whose rows are parsed one by one.
func isTable(head, row []byte) bool {
	return len(head) > 0 && head[0] == '|' && row[0] == '|' && delimiterRow.Match(row) && !bytes.ContainsAny(head, "\\`") && bytes.Count(head, []byte("|")) == bytes.Count(row, []byte("|"))
}

// isItem reports whether a line certainly begins an item of a list.
func isItem(line []byte) bool {
	text := bytes.TrimLeft(line, " ")
	return len(line)-len(text) < 4 && len(text) > 2 && (text[0] == '-' || text[0] == '*' || text[0] == '+') && text[1] == ' ' && len(bytes.TrimSpace(text[2:])) > 0
}

// markers returns an upper bound for the number of quotes and lists that the beginning of a line begins or continues.
func markers(line []byte) int {
	line = bytes.TrimRight(line, " \t\r\n")
	if rule := bytes.TrimLeft(line, " \t"); len(rule) > 0 && len(bytes.Trim(rule, string(rule[:1])+" \t")) == 0 && rule[0] != '>' {
		return 0 // a line such as - - - begins nothing
	}
	n, spaces := 0, 0
	for i, c := range line {
		ends := i+1 == len(line) || line[i+1] == ' ' || line[i+1] == '\t'
		switch {
		case c == '>' || ends && (c == '-' || c == '+' || c == '*' || c == '.' || c == ')'):
			n++
		case c == ' ':
			spaces++
		case c == '\t':
			spaces += 4
		case '0' <= c && c <= '9':
		case n == 0:
			return 0
		default:
			return n + spaces/2
		}
	}
	return n + spaces/2
}

// maxDestinations bounds the bytes of all destinations and titles. A definition can be long, and many links can use it.
const maxDestinations = 1 << 20

func checkLinks(doc ast.Node) error {
	total := 0
	return ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			total += len(n.Destination) + len(n.Title)
		case *ast.Image:
			total += len(n.Destination) + len(n.Title)
		}
		if total > maxDestinations {
			return ast.WalkStop, fmt.Errorf("%w: the destinations of its links have more than %d bytes", ErrTooLarge, maxDestinations)
		}
		return ast.WalkContinue, nil
	})
}

// bounded is a buffer of at most maxOutput bytes.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxOutput {
		return 0, fmt.Errorf("%w: its HTML has more than %d bytes", ErrTooLarge, maxOutput)
	}
	return b.Buffer.Write(p)
}

// transformer sets the levels of headings, and the destinations of links.
type transformer struct{ o Options }

// Transform implements [parser.ASTTransformer].
func (t *transformer) Transform(doc *ast.Document, _ text.Reader, _ parser.Context) {
	top := max(1, t.o.Level)
	var open []int // the original levels of the headings that contain the current position
	ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			for len(open) > 0 && open[len(open)-1] >= n.Level {
				open = open[:len(open)-1]
			}
			open = append(open, n.Level)
			n.Level = min(6, top+len(open)-1)
		case *ast.Link:
			n.Destination = []byte(t.destination(string(n.Destination)))
		}
		return ast.WalkContinue, nil
	})
}

// destination returns the destination of a link, or "" if it goes nowhere.
func (t *transformer) destination(of string) string {
	if fragment, ok := strings.CutPrefix(of, "#"); ok {
		return "#" + t.o.Prefix + strings.ToLower(fragment)
	}
	if strings.HasPrefix(of, "https://") || strings.HasPrefix(of, "http://") || strings.HasPrefix(of, "mailto:") {
		return of
	}
	if t.o.Link == nil || strings.HasPrefix(of, "//") || strings.Contains(of, ":") {
		return ""
	}
	return t.o.Link(of)
}

// ids makes the IDs of headings as GitHub does, with a prefix.
type ids struct {
	prefix string
	used   map[string]int
}

// maxID is the maximum length of an ID in bytes, without its prefix.
const maxID = 80

// Generate implements [parser.IDs].
func (s *ids) Generate(value []byte, _ ast.NodeKind) []byte {
	var b strings.Builder
	for _, r := range strings.ToLower(string(value)) {
		switch {
		case b.Len() >= maxID:
		case r == ' ' || r == '-':
			b.WriteByte('-')
		case r == '_' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9':
			b.WriteRune(r)
		}
	}
	id := s.prefix + b.String()
	n := s.used[id]
	s.used[id]++
	if n > 0 {
		id = fmt.Sprintf("%s-%d", id, n)
	}
	return []byte(id)
}

// Put implements [parser.IDs].
func (s *ids) Put(value []byte) { s.used[string(value)]++ }

// images renders an image as its alternative text, because pages load nothing from other hosts.
type images struct{}

// RegisterFuncs implements [renderer.NodeRenderer].
func (images) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindImage, func(w util.BufWriter, _ []byte, _ ast.Node, _ bool) (ast.WalkStatus, error) {
		return ast.WalkContinue, nil // the children of an image are its alternative text
	})
}

// tasks renders the box of a task as a character, because the sanitizer removes form controls.
type tasks struct{}

// RegisterFuncs implements [renderer.NodeRenderer].
func (tasks) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(east.KindTaskCheckBox, func(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			box := "☐ "
			if n.(*east.TaskCheckBox).IsChecked {
				box = "☑ "
			}
			w.WriteString(box)
		}
		return ast.WalkContinue, nil
	})
}

// tables puts a table into an element that can scroll, also by the keyboard.
type tables struct{}

// RegisterFuncs implements [renderer.NodeRenderer].
func (tables) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(east.KindTable, func(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			w.WriteString(`<div class="scroll" tabindex="0" role="group" aria-label="Table"><table>`)
		} else {
			w.WriteString("</table></div>\n")
		}
		return ast.WalkContinue, nil
	})
}
