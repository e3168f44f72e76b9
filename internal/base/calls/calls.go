// Package calls reads which modules the files of a module call. It parses the files with the library of Terraform and
// OpenTofu. It opens no files. It reports no syntax errors, because clients report these.
package calls

import (
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/json"
	"github.com/zclconf/go-cty/cty"
)

// MaxFile is the size in bytes above which callers skip a file. Clients have no such limit.
const MaxFile = 4 << 20

// A Parser returns the valid parts of a file.
type Parser func(src []byte) hcl.Body

// ParserOf returns the parser for a file of a module. It returns nil for other files.
func ParserOf(name string) Parser {
	switch {
	case strings.HasPrefix(name, "."):
		return nil
	case strings.HasSuffix(name, ".tf"), strings.HasSuffix(name, ".tofu"):
		return parseNative
	case strings.HasSuffix(name, ".tf.json"), strings.HasSuffix(name, ".tofu.json"):
		return parseJSON
	}
	return nil
}

// TestParserOf is like ParserOf, for the tests of a module.
func TestParserOf(name string) Parser {
	switch {
	case strings.HasSuffix(name, ".tftest.hcl"), strings.HasSuffix(name, ".tofutest.hcl"):
		return parseNative
	case strings.HasSuffix(name, ".tftest.json"), strings.HasSuffix(name, ".tofutest.json"):
		return parseJSON
	}
	return nil
}

func parseNative(src []byte) hcl.Body {
	f, _ := hclsyntax.ParseConfig(src, "", hcl.InitialPos) // it returns the valid parts of an invalid file
	return f.Body
}

func parseJSON(src []byte) hcl.Body {
	if f, _ := json.Parse(src, ""); f != nil {
		return f.Body
	}
	return hcl.EmptyBody()
}

var (
	callSchema = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
		{Type: "module", LabelNames: []string{"name"}}, {Type: "run", LabelNames: []string{"name"}},
	}}
	runSchema    = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: "module"}}}
	sourceSchema = &hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "source"}}}
)

// Sources returns the sources of the module blocks in a file, also of those in the run blocks of a test. It omits
// sources that are not constant.
func Sources(body hcl.Body) (out []string) {
	add := func(body hcl.Body) {
		attributes, _, _ := body.PartialContent(sourceSchema)
		if source := attributes.Attributes["source"]; source != nil {
			if text, ok := Text(source.Expr); ok {
				out = append(out, text)
			}
		}
	}
	content, _, _ := body.PartialContent(callSchema)
	for _, b := range content.Blocks {
		if b.Type == "module" {
			add(b.Body)
			continue
		}
		content, _, _ := b.Body.PartialContent(runSchema)
		for _, b := range content.Blocks {
			add(b.Body)
		}
	}
	return out
}

// IsLocal reports whether a source is a folder of the same package.
func IsLocal(source string) bool {
	return strings.HasPrefix(source, "./") || strings.HasPrefix(source, "../")
}

// Text returns the value of a constant text.
func Text(expr hcl.Expression) (string, bool) {
	v, diags := expr.Value(nil)
	if diags.HasErrors() || v.IsNull() || !v.IsKnown() || v.Type() != cty.String {
		return "", false
	}
	return v.AsString(), true
}
