package providerdoc

import (
	"bytes"
	"cmp"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v2"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// describe describes a page from its text.
func describe(kind Kind, name string, text []byte) Page {
	p := Page{Path: string(kind) + "/" + name, Kind: kind, Name: name}
	if kind == Overview {
		p.Path = name
	}
	head, body := cutHead(text)
	heading, _ := cutHeading(body)
	p.Subcategory = short(head.Subcategory)
	switch kind {
	case Overview:
		p.Title = "Overview"
	case Guide:
		p.Title = cmp.Or(short(head.Title), short(heading), name)
	default:
		// The heading of a generated page is such as "time_offset (Resource)", and the file is offset.md.
		p.Title = name
		if word, _, _ := strings.Cut(heading, " "); strings.HasSuffix(strings.ReplaceAll(word, `\`, ""), name) {
			p.Title = short(strings.ReplaceAll(word, `\`, ""))
		}
	}
	return p
}

// short returns a text in one line of bounded length.
func short(text string) string {
	text = strings.TrimSpace(hint.OneLine(strings.ToValidUTF8(text, "\ufffd")))
	if utf8.RuneCountInString(text) > maxText {
		text = string([]rune(text)[:maxText-1]) + "…"
	}
	return text
}

// frontMatter is the YAML before the Markdown of a page.
type frontMatter struct {
	Title       string `yaml:"page_title"`
	Subcategory string `yaml:"subcategory"`
}

// cutHead returns the front matter of a page, and the Markdown after it. Front matter that cannot be read is empty.
func cutHead(text []byte) (head frontMatter, body []byte) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	first, rest, _ := bytes.Cut(text, []byte("\n"))
	if string(bytes.TrimRight(first, " \t\r")) != "---" {
		return head, text
	}
	end := endOfHead.FindIndex(rest)
	if end == nil {
		return head, text
	}
	if end[0] <= maxHead {
		head = parseHead(rest[:end[0]])
	}
	return head, rest[end[1]:]
}

// parseHead returns what can be read of front matter. Other fields are not decoded, so anchors cannot grow.
func parseHead(text []byte) (head frontMatter) {
	defer func() {
		if recover() != nil {
			head = frontMatter{}
		}
	}()
	_ = yaml.Unmarshal(text, &head) // after an error, the fields that could be read are set
	return head
}

var endOfHead = regexp.MustCompile(`(?m)^---[ \t]*\r?(\n|\z)`)

// cutHeading returns the first heading of a Markdown text, and the text after it. The heading is "" if other text precedes it.
func cutHeading(body []byte) (heading string, rest []byte) {
	line, rest, _ := bytes.Cut(bytes.TrimLeft(body, " \t\r\n"), []byte("\n"))
	heading, ok := strings.CutPrefix(string(line[:min(len(line), 4*maxText)]), "# ")
	if !ok {
		return "", body
	}
	return strings.TrimSpace(strings.ReplaceAll(heading, "`", "")), rest
}

// callouts turns the callouts of the registries into quotes: lines that begin with ->, ~> or !>.
func callouts(body []byte) []byte {
	var out bytes.Buffer
	fence := ""
	for line := range bytes.Lines(body) {
		text := strings.TrimLeft(string(line[:min(len(line), 8)]), " ")
		switch {
		case fence != "":
			if strings.HasPrefix(text, fence) {
				fence = ""
			}
		case strings.HasPrefix(text, "```"), strings.HasPrefix(text, "~~~"):
			fence = text[:3]
		case strings.HasPrefix(text, "-> "), strings.HasPrefix(text, "~> "), strings.HasPrefix(text, "!> "):
			out.WriteString("> ")
			line = bytes.TrimLeft(line, " ")[3:]
		}
		out.Write(line)
	}
	return out.Bytes()
}
