package config

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// HCL's parser has no limits of its own. These limits are checked before the parser runs.
const (
	maxDepth     = 64   // the maximum depth of nested brackets and templates
	maxOperators = 1000 // the maximum number of operators in a file
)

// checkDepth refuses a file that is nested too deeply or has too many operators.
func checkDepth(tokens hclsyntax.Tokens) *hcl.Diagnostic {
	depth, operators := 0, 0
	for i, t := range tokens {
		switch {
		case opens(t.Type):
			depth++
			if t.Type == hclsyntax.TokenOBrack && i > 0 && isOperand(tokens[i-1].Type) {
				operators++ // an index
			}
		case closes(t.Type):
			depth--
		case isOperator(t.Type):
			operators++
		}
		if depth > maxDepth || operators > maxOperators {
			return &hcl.Diagnostic{
				Severity: hcl.DiagError, Summary: "Too complex",
				Detail:  fmt.Sprintf("A configuration file has at most %d levels of brackets and %d operators.", maxDepth, maxOperators),
				Subject: t.Range.Ptr(),
			}
		}
	}
	return nil
}

func opens(t hclsyntax.TokenType) bool {
	return slices.Contains([]hclsyntax.TokenType{
		hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenOQuote, hclsyntax.TokenOHeredoc,
		hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl,
	}, t)
}

func closes(t hclsyntax.TokenType) bool {
	return slices.Contains([]hclsyntax.TokenType{
		hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenCQuote, hclsyntax.TokenCHeredoc,
		hclsyntax.TokenTemplateSeqEnd,
	}, t)
}

func isOperand(t hclsyntax.TokenType) bool {
	return t == hclsyntax.TokenIdent || t == hclsyntax.TokenNumberLit || closes(t)
}

func isOperator(t hclsyntax.TokenType) bool {
	return slices.Contains([]hclsyntax.TokenType{
		hclsyntax.TokenBang, hclsyntax.TokenMinus, hclsyntax.TokenPlus, hclsyntax.TokenStar, hclsyntax.TokenSlash, hclsyntax.TokenPercent,
		hclsyntax.TokenEqualOp, hclsyntax.TokenNotEqual, hclsyntax.TokenLessThan, hclsyntax.TokenLessThanEq, hclsyntax.TokenGreaterThan,
		hclsyntax.TokenGreaterThanEq, hclsyntax.TokenAnd, hclsyntax.TokenOr, hclsyntax.TokenQuestion, hclsyntax.TokenDot,
	}, t)
}

// span is the part of the file between two byte offsets.
type span struct{ from, to int }

// hidden returns the parts of a file that no message may show, in the order of the file.
// These parts are the values of secret arguments, the values of unknown arguments, and
// logins in URLs. An unknown argument can be a secret argument whose name is misspelt.
// hidden works on tokens, and therefore also finds the secrets in a file that does not
// parse.
func hidden(src []byte, tokens hclsyntax.Tokens) []span {
	var out []span
	statement := true // whether an argument or block may begin here
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		switch {
		case endsLine(t) || t.Type == hclsyntax.TokenOBrace || t.Type == hclsyntax.TokenCBrace:
			statement = true
			continue
		case !statement || t.Type == hclsyntax.TokenComment:
			continue
		}
		statement = false
		if t.Type != hclsyntax.TokenIdent || i+1 >= len(tokens) {
			continue
		}
		name := string(t.Bytes)
		isArgument := tokens[i+1].Type == hclsyntax.TokenEqual || tokens[i+1].Type == hclsyntax.TokenColon
		if !isArgument && !soundsSecret(name) {
			continue // a block
		}
		first := i + 1
		if isArgument {
			first++
		}
		end := endOfValue(tokens, first)
		if soundsSecret(name) || !showable()[name] {
			if end > first {
				out = append(out, span{tokens[first].Range.Start.Byte, tokens[end-1].Range.End.Byte})
			}
		}
		i = end - 1
	}
	for _, m := range secretLine.FindAllSubmatchIndex(src, -1) {
		out = append(out, span{m[2], m[3]})
	}
	out = slices.DeleteFunc(out, func(s span) bool { return reference.Match(src[s.from:s.to]) })
	for _, m := range userInfo.FindAllSubmatchIndex(src, -1) {
		out = append(out, span{m[2], m[3]})
	}
	return merge(out)
}

// endsLine reports whether a token ends its line. A newline, and a comment that begins with
// # or //, end their lines.
func endsLine(t hclsyntax.Token) bool {
	return t.Type == hclsyntax.TokenNewline || t.Type == hclsyntax.TokenComment && bytes.HasSuffix(t.Bytes, []byte("\n"))
}

// endOfValue returns the index after the last token of the value that begins at index i. A
// value ends with its line, or with the enclosing block.
func endOfValue(tokens hclsyntax.Tokens, i int) int {
	for depth := 0; i < len(tokens); i++ {
		t := tokens[i]
		switch {
		case depth == 0 && (endsLine(t) || t.Type == hclsyntax.TokenEOF || closes(t.Type)):
			return i
		case opens(t.Type):
			depth++
		case closes(t.Type):
			depth--
		}
	}
	return i
}

var (
	secretName = regexp.MustCompile(`(?i)passw|username|token|secret|sha256`)
	// secretLine finds the rest of a line after the name of a secret, even if an earlier
	// unclosed quote makes the line part of a string.
	secretLine = regexp.MustCompile(`(?im)\b\w*(?:passw|username|token|secret)\w*"?[ \t]*[=:]([^\n]*)`)
	// quotedSecret finds the name of a secret and its value in a quoted string.
	quotedSecret = regexp.MustCompile(`(?i)\b\w*(?:passw|username|token|secret)\w*\\?"? *[=:] *\\?["'].*`)
	// reference matches a call of env or file with a constant name. The call names the
	// variable or file with the secret, and does not contain the secret itself.
	reference = regexp.MustCompile(`^[ \t]*(?:env|file)\([ \t]*"[^"\n]*"[ \t]*\)[ \t\r]*$`)
	// userInfo finds the user and password in a URL.
	userInfo = regexp.MustCompile(`://([^/\s"]*)@`)
)

// soundsSecret reports whether the text after a name can be a secret. The text after
// "token" is no secret, because it is the label of a token block.
func soundsSecret(name string) bool {
	return secretName.MatchString(name) && !strings.EqualFold(name, "token")
}

func merge(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var out []span
	for _, s := range spans {
		if n := len(out); n > 0 && s.from <= out[n-1].to {
			out[n-1].to = max(out[n-1].to, s.to)
		} else if s.to > s.from {
			out = append(out, s)
		}
	}
	return out
}

// showable returns the names of the arguments whose values may be shown.
var showable = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	eachField(Schema(), func(_ string, f Field) {
		if !f.IsBlock && f.Kind != "secret" && f.Kind != "sha256" {
			names[f.Name] = true
		}
	})
	return names
})
