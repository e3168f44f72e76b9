package lockfile

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
)

var fileSchema = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
	{Type: "provider", LabelNames: []string{"source_addr"}},
	{Type: "module", LabelNames: []string{"path"}}, // clients reserve it for later
}}

// providerBlock has the arguments of a provider block.
type providerBlock struct {
	Version     string         `hcl:"version"`
	Constraints string         `hcl:"constraints,optional"`
	Hashes      hcl.Expression `hcl:"hashes,optional"`
}

// entry has the positions of an entry's parts in the file.
type entry struct {
	block  *hclsyntax.Block
	list   *hclsyntax.TupleConsExpr // nil without hashes
	hashes []listed
}

// listed is one hash and its position in bytes, quotes included.
type listed struct {
	text       string
	start, end int
	line       int
}

// Parse reads a lock file; name is for messages. An error names the line of the first problem.
func Parse(name string, src []byte) (*File, error) {
	if len(src) > MaxBytes {
		return nil, fmt.Errorf("%s has more than %d bytes: no lock file is that large", name, MaxBytes)
	}
	if d := scan(src); d != nil {
		return nil, failure(name, hcl.Diagnostics{d})
	}
	parsed, diags := hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	if diags.HasErrors() {
		return nil, failure(name, diags)
	}
	f := &File{Name: name, src: src, entries: map[provider.Address]*entry{}}
	content, diags := parsed.Body.Content(fileSchema)
	if diags.HasErrors() {
		return nil, failure(name, diags)
	}
	body := parsed.Body.(*hclsyntax.Body)
	for _, block := range body.Blocks {
		if block.Type == "provider" {
			diags = append(diags, f.decode(block)...)
		}
	}
	if diags.HasErrors() {
		return nil, failure(name, diags)
	}
	if modules := content.Blocks.OfType("module"); len(modules) > 0 {
		f.Warnings = append(f.Warnings, fmt.Sprintf("%s: locks of modules are not supported, by clients either", f.Where(modules[0].TypeRange.Start.Line)))
	}
	return f, nil
}

// decode reads one provider block into the file.
func (f *File) decode(block *hclsyntax.Block) hcl.Diagnostics {
	label := block.LabelRanges[0]
	a, err := provider.ParseAddress(block.Labels[0])
	if err != nil {
		return hcl.Diagnostics{problem(label, "Invalid provider source address", "%v.", err)}
	}
	if a.String() != block.Labels[0] {
		return hcl.Diagnostics{problem(label, "Provider source address not in canonical form", "It must be written as %q.", a.String())}
	}
	if earlier, ok := f.Provider(a); ok {
		return hcl.Diagnostics{problem(block.TypeRange, "Duplicate provider lock", "%s is locked in line %d already.", a, earlier.Line)}
	}
	var written providerBlock
	if diags := gohcl.DecodeBody(block.Body, nil, &written); diags.HasErrors() {
		return diags
	}
	attrs := block.Body.Attributes
	p := Provider{Address: a, Constraints: written.Constraints, Line: block.TypeRange.Start.Line}
	e := &entry{block: block}
	var diags hcl.Diagnostics
	if p.Version, err = provider.ParseVersion(written.Version); err != nil {
		diags = append(diags, problem(attrs["version"].Expr.Range(), "Invalid provider version number", "%v.", err))
	}
	// Clients only show constraints in messages.
	if _, err := provider.ParseConstraint(p.Constraints); err != nil && p.Constraints != "" {
		diags = append(diags, problem(attrs["constraints"].Expr.Range(), "Invalid provider version constraints", "%v.", err))
	}
	diags = append(diags, e.decodeHashes(attrs["hashes"])...)
	for _, h := range e.hashes {
		p.Hashes = append(p.Hashes, h.text)
	}
	f.Providers = append(f.Providers, p)
	f.entries[a] = e
	return diags
}

// decodeHashes reads the list of hashes. Like clients, it requires that each hash has a scheme, and that the
// list is not empty.
func (e *entry) decodeHashes(attr *hclsyntax.Attribute) hcl.Diagnostics {
	if attr == nil {
		return nil
	}
	exprs, diags := hcl.ExprList(attr.Expr)
	list, ok := attr.Expr.(*hclsyntax.TupleConsExpr)
	switch {
	case diags.HasErrors():
		return diags
	case !ok:
		return hcl.Diagnostics{problem(attr.Expr.Range(), "Invalid provider hash set", "Hashes are a list of texts.")}
	case len(exprs) == 0:
		return hcl.Diagnostics{problem(attr.Expr.Range(), "Invalid provider hash set", "Hashes are left out, or are at least one.")}
	}
	e.list = list
	for _, expr := range exprs {
		var raw string
		if diags := gohcl.DecodeExpression(expr, nil, &raw); diags.HasErrors() {
			return diags
		}
		if strings.Index(raw, ":") < 1 {
			return hcl.Diagnostics{problem(expr.Range(), "Invalid provider hash", "%.100q must start with a scheme and a colon, such as h1: or zh:.", raw)}
		}
		r := expr.Range()
		e.hashes = append(e.hashes, listed{raw, r.Start.Byte, r.End.Byte, r.Start.Line})
	}
	return nil
}

func problem(at hcl.Range, summary, detail string, args ...any) *hcl.Diagnostic {
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(detail, args...), Subject: &at}
}

// failure turns diagnostics into one error: the first, and the number of others.
func failure(name string, diags hcl.Diagnostics) error {
	var first *hcl.Diagnostic
	more := -1
	for _, d := range diags {
		if d.Severity == hcl.DiagError {
			more++
			if first == nil {
				first = d
			}
		}
	}
	line := 1
	if first.Subject != nil {
		line = first.Subject.Start.Line
	}
	// Detail may quote any amount of the file's text.
	text := fmt.Sprintf("%s:%d: %s: %.400s", name, line, strings.ToLower(first.Summary[:1])+first.Summary[1:], strings.TrimSuffix(first.Detail, "."))
	if more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return hint.New(text, "correct the line, or have tofu init or terraform init write the lock file anew")
}
