package lockfile

import (
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// FuzzScan compares scan with the lexer of the HCL library. If scan accepts a file, the lexer finds only known
// tokens, and at most twice as many tokens as scan.
func FuzzScan(f *testing.F) {
	for _, s := range []string{
		"provider \"a\" {\n  hashes = [\"h1:a\", # b\n]\n}\n", "\ufeffa = 1", "/* \" */ a = [ /* [ */ ]", "// \"\na = [[[]]]", "a = {b = \"{[\"}",
		"a = /* [", "#", "//", "/**/", "/*/", "\"\r\n", "# \r\n[", "a\t=\t1_000e5", "0a0a", "\"//\"", "a == b", "a = b[c]", "\u00e9 = \"\u00e9\"", strings.Repeat("[", 9), "a=b=c",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		counted, refused := scan(src)
		if refused != nil {
			return
		}
		tokens, _ := hclsyntax.LexConfig(src, "f", hcl.InitialPos)
		if n := len(tokens) - 1; n > 2*counted {
			t.Errorf("%d tokens, but %d were counted", n, counted)
		}
		depth := 0
		for _, token := range tokens {
			switch token.Type {
			case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack:
				depth++
			case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack:
				depth--
			case hclsyntax.TokenIdent, hclsyntax.TokenNumberLit, hclsyntax.TokenOQuote, hclsyntax.TokenQuotedLit, hclsyntax.TokenCQuote,
				hclsyntax.TokenComma, hclsyntax.TokenEqual, hclsyntax.TokenComment, hclsyntax.TokenNewline, hclsyntax.TokenEOF:
			default:
				t.Errorf("%s %q passed", token.Type, token.Bytes)
			}
			if depth < 0 || depth > maxDepth {
				t.Errorf("a depth of %d", depth)
			}
		}
	})
}
