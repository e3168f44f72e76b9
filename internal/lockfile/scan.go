package lockfile

import (
	"bytes"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
)

// The HCL parser has no bounds. It recurses over brackets, takes quadratic time for some texts and expressions,
// and uses about a kilobyte for each token. So Parse scans a file first, and refuses constructs that no lock
// file has.
const (
	// maxDepth bounds the nesting of brackets. A hash is two levels deep.
	maxDepth = 8
	// maxTokens bounds the tokens. A hash on its own line has five: 300 providers with 30 hashes each reach
	// this bound.
	maxTokens = 50_000
)

// scanner counts the tokens of a file, and tracks its open brackets.
type scanner struct {
	src    []byte
	at     int
	line   int
	tokens int
	open   []byte // the closing brackets of the open ones, innermost last
	before byte   // the last byte of the last token other than a comment or line feed
}

// scan returns a diagnostic if a file has something that no lock file has, such as an expression or deep
// nesting. It leaves the grammar to the parser.
func scan(src []byte) *hcl.Diagnostic {
	if !utf8.Valid(src) {
		return problem(hcl.Range{Start: hcl.InitialPos}, "Invalid character encoding", "A lock file is in UTF-8.")
	}
	if bytes.Count(src, []byte("\r")) != bytes.Count(src, []byte("\r\n")) {
		return problem(hcl.Range{Start: hcl.InitialPos}, "Invalid character", "A lock file has no carriage return within a line.")
	}
	s := scanner{src: bytes.TrimPrefix(src, []byte("\ufeff")), line: 1}
	return s.scan()
}

func (s *scanner) scan() *hcl.Diagnostic {
	for s.at < len(s.src) {
		if d := s.next(); d != nil {
			return d
		}
		if s.tokens > maxTokens {
			return s.problem("Too long", "A lock file has at most %d words, texts and signs.", maxTokens)
		}
	}
	return nil
}

// next skips one token, or white space.
func (s *scanner) next() *hcl.Diagnostic {
	b := s.src[s.at]
	switch {
	case b == ' ':
		s.at++
		return nil
	case b == '\n':
		s.line++
	case b == '\t', b == '\r':
	case b == '#':
		return s.comment("#", "\n")
	case s.has("//"):
		return s.comment("//", "\n")
	case s.has("/*"):
		return s.comment("/*", "*/")
	case b == '"':
		return s.text()
	case isWord(b):
		for s.at < len(s.src) && isWord(s.src[s.at]) {
			s.at++
		}
		s.end(1)
		return nil
	case b == '[' && s.before != '=' && s.before != '[' && s.before != ',':
		return s.expression() // an index
	case b == '[':
		s.open = append(s.open, ']')
	case b == '{':
		s.open = append(s.open, '}')
	case b == ']' || b == '}':
		last := len(s.open) - 1
		if last < 0 || s.open[last] != b {
			return s.problem("Brackets", "Here is a %q that closes nothing.", b)
		}
		s.open = s.open[:last]
	case b == '=' && s.before == '=', b != '=' && b != ',':
		return s.expression()
	}
	s.at++
	s.tokens++
	if b > ' ' {
		s.before = b
	}
	if len(s.open) > maxDepth {
		return s.problem("Too deep", "A lock file has at most %d levels of brackets.", maxDepth)
	}
	return nil
}

// comment skips a comment with its end. The file may end within a line comment, but for the parser an
// unterminated /* is not a comment.
func (s *scanner) comment(begin, end string) *hcl.Diagnostic {
	n := len(s.src) - s.at
	if i := bytes.Index(s.src[s.at+len(begin):], []byte(end)); i >= 0 {
		n = len(begin) + i + len(end)
	} else if end != "\n" {
		return s.expression()
	}
	s.line += bytes.Count(s.src[s.at:s.at+n], []byte("\n"))
	s.at += n
	s.tokens++
	return nil
}

// text skips a quoted text. It refuses templates and escapes, which would turn one text into many tokens.
func (s *scanner) text() *hcl.Diagnostic {
	n := bytes.IndexAny(s.src[s.at+1:], "\"\n\\$%")
	if n < 0 || s.src[s.at+1+n] == '\n' {
		return s.problem("Text without end", "A text ends in a quote on its line.")
	}
	if s.at += 1 + n; s.src[s.at] != '"' {
		return s.expression()
	}
	s.at++
	s.end(3) // both quotes are tokens
	return nil
}

// end counts tokens that end before s.at.
func (s *scanner) end(n int) {
	s.tokens += n
	s.before = s.src[s.at-1]
}

func (s *scanner) has(prefix string) bool { return bytes.HasPrefix(s.src[s.at:], []byte(prefix)) }

func (s *scanner) expression() *hcl.Diagnostic {
	r, _ := utf8.DecodeRune(s.src[s.at:])
	return s.problem("Expression", "A lock file has texts in quotes and no expressions, but here is %q.", r)
}

func (s *scanner) problem(summary, detail string, args ...any) *hcl.Diagnostic {
	return problem(hcl.Range{Start: hcl.Pos{Line: s.line}}, summary, detail, args...)
}

// isWord reports whether a byte can be in a name or a number.
func isWord(b byte) bool {
	return b == '_' || '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
}
