package howto

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// kind is what the runner does with a block.
type kind int

const (
	commands kind = iota // runs it
	shown                // compares it with the output of the block before
	file                 // writes it to a file
	exempted             // ignores it
)

type block struct {
	kind kind
	text string // ends with a newline
	file string // the name of the file
}

var (
	fence = regexp.MustCompile("^( *)```([a-z]*)")
	// fileName matches a comment that is a file's name, which may begin with "~/".
	fileName = regexp.MustCompile(`^(?:#|//) ((?:~/)?[\w.-]+(?:/[\w.-]+)*)\n`)
	listItem = regexp.MustCompile(`^ *([-*]|[0-9]+\.) `)
)

// parse returns the blocks of a page. Its error lists the blocks that the runner cannot run.
func parse(page, text string, exempt []Exemption) ([]block, error) {
	var out []block
	var errs []error
	for _, b := range raw(text) {
		first, _, _ := strings.Cut(b.text, "\n")
		name := fileName.FindStringSubmatch(b.text)
		last := len(out) - 1
		switch {
		case slices.ContainsFunc(exempt, func(e Exemption) bool { return e.Page == page && e.FirstLine == first }),
			b.language == "text" && last >= 0 && out[last].kind == exempted:
			out = append(out, block{kind: exempted, text: b.text})
		case b.language == "sh":
			out = append(out, block{kind: commands, text: b.text})
		case b.language == "text" && last >= 0 && out[last].kind == commands:
			out = append(out, block{kind: shown, text: b.text})
		case b.language == "text":
			errs = append(errs, fmt.Errorf("the text block %q does not follow an sh block", first))
		case b.language != "" && name != nil:
			out = append(out, block{kind: file, text: b.text, file: name[1]})
		default:
			errs = append(errs, fmt.Errorf("the %s block %q cannot be run: its first line is no comment with a file's name, and it is not exempt", b.language, first))
		}
	}
	return out, errors.Join(errs...)
}

type rawBlock struct{ language, text string }

// raw returns the fenced blocks of a page, and its indented ones, which have no language.
func raw(text string) (out []rawBlock) {
	var fenced *rawBlock // the block that contains the line
	indent, before, inList := "", "", false
	for line := range strings.Lines(text) {
		m := fence.FindStringSubmatch(line)
		switch {
		case fenced != nil && m != nil:
			out, fenced = append(out, *fenced), nil
		case fenced != nil:
			fenced.text += strings.TrimPrefix(line, indent)
		case m != nil:
			indent, fenced = m[1], &rawBlock{language: m[2]}
		case !inList && before == "\n" && strings.HasPrefix(line, "    "):
			out = append(out, rawBlock{text: strings.TrimPrefix(line, "    ")})
		case line != "\n" && !strings.HasPrefix(line, " "), listItem.MatchString(line):
			inList = listItem.MatchString(line)
		}
		before = line
	}
	return out
}
