package calls

import (
	"bytes"
	"fmt"
	"iter"
	"regexp"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/json"

	"github.com/ocibridge/ocibridge/internal/base/document"
)

// The HCL parser recurses into brackets, needs about a kilobyte of memory for each token, and copies a text again for each
// part that it has, such as a line of a heredoc.
const (
	maxDepth  = 64      // the maximum depth of nested brackets and templates in a block
	maxTokens = 12_000  // the maximum number of words, texts and signs in a block
	maxParts  = 1_000   // the maximum number of parts of texts in a block
	maxBlock  = 1 << 17 // the maximum size of a block in bytes
	// maxParsed is the maximum number of tokens of a file that are parsed, and blockTokens is the number that each block counts in
	// addition to its own.
	maxParsed, blockTokens = 100_000, 20
	// jsonTokens is the number of tokens that a sign of JSON counts: parsing what belongs to it takes longer than a token does.
	jsonTokens = 2
	// maxDeclared is the maximum number of calls, requirements and uses in a file.
	maxDeclared = 5_000
	maxSkipped  = 10 // the maximum number of skipped parts that are listed
)

// jsonLimits are the limits of files in JSON.
var jsonLimits = document.Limits{Bytes: MaxFile, Values: 30_000, Elements: 30_000}

func (f *File) skip(line int, format string, args ...any) {
	f.Skipped = append(f.Skipped, Skipped{f.Name, line, fmt.Sprintf(format, args...)})
}

// readJSON reads a file in JSON.
func (f *File) readJSON(src []byte) {
	parsed, err := ParseJSON(f.Name, src)
	if err != nil {
		f.skip(1, "%v", err)
		return
	}
	for _, sign := range []string{",", ":", "{", "["} {
		f.Parsed += jsonTokens * bytes.Count(src, []byte(sign))
	}
	if parsed != nil {
		f.body(parsed.Body, fileSchema)
	}
}

// ParseJSON parses a file in JSON. An error means that the file is too large. The result can be nil if the file is not JSON.
func ParseJSON(name string, src []byte) (*hcl.File, error) {
	if err := jsonLimits.Check(src); err != nil {
		return nil, err
	}
	parsed, _ := json.Parse(src, name)
	return parsed, nil
}

// readNative reads a file in the native syntax.
func (f *File) readNative(src []byte) {
	for b := range Blocks(src) {
		if len(f.Skipped) > maxSkipped {
			return
		}
		if !isRead(b.Type) || f.resourceOfType(b) {
			continue
		}
		if err := b.check(); err != nil {
			f.large(b, err)
			continue
		}
		if f.Parsed+b.tokens > maxParsed {
			f.skip(b.Line, "the blocks that call modules or need providers have more than %d words and signs", maxParsed)
			return
		}
		f.Parsed += b.tokens + blockTokens
		if parsed, err := b.Parse(f.Name); err == nil {
			f.body(parsed.Body, fileSchema)
		}
	}
}

// plainHeader matches the beginning of a resource whose labels need no parser.
var plainHeader = regexp.MustCompile(`^(?:resource|data|ephemeral|action)[ \t]+"(\w+)"[ \t]+"[\w-]+"[ \t]*\{`)

// resourceOfType adds a block if it is a resource that does not name its provider, so that its type says enough. Most blocks are
// such resources, and the HCL parser needs a hundred times as long.
func (f *File) resourceOfType(b Block) bool {
	m := plainHeader.FindSubmatch(b.Src[:min(len(b.Src), maxText)])
	if m == nil || bytes.Contains(b.Src, []byte("provider")) || len(f.Calls)+len(f.Required)+len(f.Uses) >= maxDeclared {
		return false
	}
	name, _, _ := strings.Cut(string(m[1]), "_")
	f.use(name, Argument{}, b.Line)
	return true
}

// Block is a block, or an argument, at the top level of a file in the native syntax. It is not parsed yet.
type Block struct {
	Type   string // the first word
	Src    []byte // the source text, which begins with the first word
	Line   int    // the line of the first word
	tokens int    // an upper bound for the number of tokens
	parts  int    // an upper bound for the number of parts of texts
	depth  int    // the maximum depth of nested brackets and templates
}

// Blocks returns the blocks of a file in the native syntax. Its costs grow with the size of the file, and no faster.
func Blocks(src []byte) iter.Seq[Block] {
	return func(yield func(Block) bool) {
		s := scanner{src: bytes.TrimPrefix(src, []byte("\ufeff")), line: 1}
		for b, ok := s.next(); ok && yield(b); b, ok = s.next() {
		}
	}
}

// Tokens returns an upper bound for the number of words, texts and signs in the block.
func (b Block) Tokens() int { return b.tokens }

// Parse parses the block with the library of Terraform and OpenTofu. It ignores syntax errors. The ranges in the result are
// those of Src, but with the lines of the file. An error means that the block is too large for that library.
func (b Block) Parse(file string) (*hcl.File, error) {
	if err := b.check(); err != nil {
		return nil, err
	}
	parsed, _ := hclsyntax.ParseConfig(b.Src, file, hcl.Pos{Line: b.Line, Column: 1})
	return parsed, nil
}

// check returns an error if the block is too large to be parsed.
func (b Block) check() error {
	if b.depth > maxDepth || b.tokens > maxTokens || b.parts > maxParts || len(b.Src) > maxBlock {
		return fmt.Errorf("the block has more than %d words and signs, %d parts of texts, %d nested brackets or %d bytes", maxTokens, maxParts, maxDepth, maxBlock)
	}
	return nil
}

var resourceHeader = regexp.MustCompile(`^(?:resource|data|ephemeral|action)[ \t]+"([\w-]+)"(?:[ \t]+"([\w-]+)")?`)

// Labels returns the labels of a resource, data, ephemeral or action block, without parsing the block. The bool is false for other
// blocks.
func (b Block) Labels() (typ, name string, ok bool) {
	m := resourceHeader.FindSubmatch(b.Src[:min(len(b.Src), maxText)])
	if m == nil {
		return "", "", false
	}
	return string(m[1]), string(m[2]), true
}

// large adds a block that is too large to be parsed. Of a resource, its type says enough.
func (f *File) large(b Block, reason error) {
	if typ, _, ok := b.Labels(); ok {
		name, _, _ := strings.Cut(typ, "_")
		f.use(name, Argument{}, b.Line)
		return
	}
	f.skip(b.Line, "%v", reason)
}

// scanner splits a file into blocks. It knows only what it needs for that: comments, texts, templates, heredocs, brackets and
// the ends of lines.
type scanner struct {
	src  []byte
	at   int
	line int
	// open has a character for each open bracket, text (") and template sequence ($). The innermost one is last.
	open []byte
}

var (
	heredoc = regexp.MustCompile(`^<<-?([\pL_][\pL\pN_-]*)\r?\n`)
	word    = regexp.MustCompile(`^[\pL\pN_][\pL\pN_-]*`)
)

// next returns the next block. The bool is false at the end of the file.
func (s *scanner) next() (out Block, ok bool) {
	s.open = s.open[:0]
	start := s.at
	for s.at < len(s.src) {
		c := s.src[s.at]
		if len(s.open) == 0 && c == '\n' {
			s.step(1)
			if ok {
				break
			}
			start = s.at
			continue
		}
		n := s.token()
		if c != ' ' && c != '\t' && c != '\r' {
			if !ok && !s.isComment() {
				ok, out.Line = true, s.line
				out.Type = string(s.src[s.at : s.at+wordOf(s.src[s.at:])])
				start = s.at
			}
			parts := s.parts(n)
			out.tokens, out.parts = out.tokens+1+parts, out.parts+parts
		}
		out.depth = max(out.depth, len(s.open))
		s.step(n)
	}
	out.Src = s.src[start:s.at]
	return out, ok
}

// step moves on by n bytes.
func (s *scanner) step(n int) {
	if n == 1 { // most steps
		if s.src[s.at] == '\n' {
			s.line++
		}
		s.at++
		return
	}
	s.line += bytes.Count(s.src[s.at:s.at+n], []byte("\n"))
	s.at += n
}

// isComment reports whether a comment begins here.
func (s *scanner) isComment() bool {
	rest := s.src[s.at:]
	return !s.quoted() && (rest[0] == '#' || bytes.HasPrefix(rest, []byte("//")) || bytes.HasPrefix(rest, []byte("/*")))
}

// quoted reports whether the current position is in a text.
func (s *scanner) quoted() bool { return len(s.open) > 0 && s.open[len(s.open)-1] == '"' }

// parts returns an upper bound for the number of parts of a text within the next n bytes.
func (s *scanner) parts(n int) (parts int) {
	if !s.quoted() && n == 1 {
		return 0
	}
	for _, c := range s.src[s.at : s.at+n] {
		if c == '\n' || c == '$' || c == '%' {
			parts++
		}
	}
	return parts
}

// token opens and closes brackets, and returns the number of bytes of the next token.
func (s *scanner) token() int {
	rest := s.src[s.at:]
	if s.quoted() {
		return s.text(rest)
	}
	switch c := rest[0]; c {
	case '#':
		return lineOf(rest)
	case '/':
		if bytes.HasPrefix(rest, []byte("//")) {
			return lineOf(rest)
		}
		if bytes.HasPrefix(rest, []byte("/*")) {
			if end := bytes.Index(rest[2:], []byte("*/")); end >= 0 {
				return end + 4
			}
			return len(rest)
		}
	case '<':
		if !bytes.HasPrefix(rest, []byte("<<")) {
			break
		}
		if m := heredoc.FindSubmatch(rest[:min(len(rest), maxText)]); m != nil {
			return len(m[0]) + endOfHeredoc(rest[len(m[0]):], m[1])
		}
	case '"', '{', '[', '(':
		s.open = append(s.open, c)
	case '}', ']', ')':
		s.open = s.open[:max(0, len(s.open)-1)]
	default:
		return max(1, wordOf(rest))
	}
	return 1
}

// wordOf returns the number of bytes of the word at the beginning of a text, of at most maxText bytes.
func wordOf(rest []byte) int {
	rest = rest[:min(len(rest), maxText)]
	for n, c := range rest {
		switch {
		case c >= 0x80:
			return len(word.Find(rest))
		case c != '_' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') && (n == 0 || c != '-'):
			return n
		}
	}
	return len(rest)
}

// text reads a part of a text in quotes.
func (s *scanner) text(rest []byte) int {
	switch {
	case rest[0] == '"':
		s.open = s.open[:len(s.open)-1]
		return 1
	case rest[0] == '\\':
		return min(2, len(rest))
	case bytes.HasPrefix(rest, []byte("$${")), bytes.HasPrefix(rest, []byte("%%{")):
		return 3
	case bytes.HasPrefix(rest, []byte("${")), bytes.HasPrefix(rest, []byte("%{")):
		s.open = append(s.open, '$')
		return 2
	}
	if end := bytes.IndexAny(rest[1:], `"\$%`); end >= 0 {
		return end + 1
	}
	return len(rest)
}

// lineOf returns the length of a line without its end.
func lineOf(rest []byte) int {
	if end := bytes.IndexByte(rest, '\n'); end >= 0 {
		return end
	}
	return len(rest)
}

// endOfHeredoc returns the length of a heredoc's lines and its closing word. The end of that last line is not included.
func endOfHeredoc(rest, closing []byte) int {
	at := 0
	for at < len(rest) {
		n := lineOf(rest[at:])
		if bytes.Equal(bytes.TrimSpace(rest[at:at+n]), closing) { // as the HCL parser compares them
			return at + n
		}
		at = min(len(rest), at+n+1)
	}
	return at
}
