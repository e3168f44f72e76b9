package templates

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/ocibridge/ocibridge/internal/base/subject"
)

// URITemplate converts a repository template into a URI template (RFC 6570, level 1), with
// {hostname} in place of ${hostname}. Since OpenTofu 1.13, the command tofu providers lock
// -oci-mirror accepts URI templates. The bool is false if the repository template does more
// than insert parts of an address, so that there is no equivalent URI template.
func URITemplate(source string) (string, bool) {
	expr, diags := hclsyntax.ParseTemplate([]byte(source), "repository_template", hcl.InitialPos)
	if diags.HasErrors() {
		return "", false
	}
	parsed, ok := expr.(*hclsyntax.TemplateExpr)
	if !ok {
		return "", false
	}
	var out strings.Builder
	for _, part := range parsed.Parts {
		switch part := part.(type) {
		case *hclsyntax.LiteralValueExpr:
			if part.Val.Type() != cty.String || strings.ContainsAny(part.Val.AsString(), "{}%'") {
				return "", false
			}
			out.WriteString(part.Val.AsString())
		case *hclsyntax.ScopeTraversalExpr:
			name := part.Traversal.RootName()
			if len(part.Traversal) != 1 || !slices.Contains(kinds[subject.Provider].names, name) {
				return "", false
			}
			out.WriteString("{" + name + "}")
		default:
			return "", false
		}
	}
	return out.String(), true
}
