package lockfile

import (
	"bytes"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
)

// The HCL parser has no limits. It recurses into brackets, needs quadratic time for some texts and expressions,
// and uses about a kilobyte of memory for each token. Therefore Parse scans a file first. The scan refuses
// constructs that no lock file contains.
const (
	// maxDepth is the maximum depth of nested brackets. A hash is two levels deep.
	maxDepth = 8
	// maxTokens is the maximum number of tokens in a file. A hash on its own line takes five tokens, so 300
	// providers with 30 hashes each are about as many as a file can contain.
	maxTokens = 50_000
)

// token matches one token or a run of spaces at the beginning of a text. It does not match operators. It does
// not match a quoted text with a template or an escape either, because the HCL lexer turns such a text into many
// tokens.
var token = regexp.MustCompile(`^(?: +|\t|\r?\n|(?:#|//).*\n?|(?s:/\*.*?\*/)|"[^"\n\\$%]*"|\w+|[=,{}\[\]])`)

// scan counts the tokens of a file. It returns a diagnostic for a construct that no lock file contains, such as
// an expression or deep nesting. It does not check the grammar.
func scan(src []byte) (tokens int, refused *hcl.Diagnostic) {
	line := 1
	refuse := func(summary, detail string, args ...any) (int, *hcl.Diagnostic) {
		return tokens, problem(hcl.Range{Start: hcl.Pos{Line: line}}, summary, detail, args...)
	}
	if !utf8.Valid(src) {
		return refuse("Invalid character encoding", "A lock file is in UTF-8.")
	}
	if bytes.Count(src, []byte("\r")) != bytes.Count(src, []byte("\r\n")) {
		return refuse("Invalid character", "A lock file has no carriage return within a line.")
	}
	var open brackets
	before := byte(' ') // the last byte of the previous token that is neither white space nor a comment
	for rest := bytes.TrimPrefix(src, []byte("\ufeff")); len(rest) > 0; {
		t := token.Find(rest)
		first := rest[0]
		if t == nil || first == '[' && !strings.ContainsRune("=[,", rune(before)) || first == '=' && before == '=' {
			return refuse("Expression", "A lock file has texts in quotes and no expressions, but here is %.20q.", rest)
		}
		if !open.follow(first) {
			return refuse("Brackets", "Here is a %q that closes nothing.", first)
		}
		if len(open) > maxDepth {
			return refuse("Too deep", "A lock file has at most %d levels of brackets.", maxDepth)
		}
		switch {
		case first == '"':
			tokens += 3 // the text and both quotes
		case first != ' ':
			tokens++
		}
		if !strings.ContainsRune(" \t\r\n#/", rune(first)) {
			before = t[len(t)-1]
		}
		line += bytes.Count(t, []byte("\n"))
		if tokens > maxTokens {
			return refuse("Too long", "A lock file has at most %d words, texts and signs.", maxTokens)
		}
		rest = rest[len(t):]
	}
	return tokens, nil
}

// brackets contains the expected closing bracket for each open bracket. The innermost bracket is last.
type brackets []byte

// follow opens or closes a bracket if b is a bracket. It returns false if b is a closing bracket that does not
// match the innermost open bracket. It ignores other bytes.
func (open *brackets) follow(b byte) bool {
	switch b {
	case '[':
		*open = append(*open, ']')
	case '{':
		*open = append(*open, '}')
	case ']', '}':
		last := len(*open) - 1
		if last < 0 || (*open)[last] != b {
			return false
		}
		*open = (*open)[:last]
	}
	return true
}
