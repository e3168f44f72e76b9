package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// Parse reads the content of a file. Its error is an [*Error] that lists everything that is
// wrong.
func Parse(env Environment, name string, src []byte) (*Config, error) {
	d := &decoder{env: env, source: newSource(name, nil, nil)}
	c := d.parse(src)
	if d.diags.HasErrors() {
		return nil, &Error{name, d.source.diagnostics(d.diags)}
	}
	c.Warnings = d.source.diagnostics(d.diags)
	return c, nil
}

// decoder reads one file, and collects diagnostics.
type decoder struct {
	env    Environment
	source *source
	ctx    *hcl.EvalContext
	diags  hcl.Diagnostics

	incomplete bool                   // an argument could not be read, so combinations are not checked
	arguments  []*hclsyntax.Attribute // in the order of the file
	failed     map[*hclsyntax.Attribute]bool
	files      []fileArgument
}

// parse reads a file in steps. Errors in the first three end the parse, or limit what the
// next step reports: it would report consequences of them.
func (d *decoder) parse(src []byte) *Config {
	// 1. Bounds: the parser has none.
	if len(src) > maxFile {
		d.fail(hcl.Range{Filename: d.source.name, Start: hcl.InitialPos, End: hcl.InitialPos}, "File too large",
			fmt.Sprintf("A configuration file has at most %d KiB.", maxFile>>10))
		return nil
	}
	tokens, _ := hclsyntax.LexConfig(src, d.source.name, hcl.InitialPos)
	d.source = newSource(d.source.name, src, hidden(src, tokens))
	if diag := checkDepth(tokens); diag != nil {
		d.diags = append(d.diags, diag)
		return nil
	}
	// 2. The syntax of HCL.
	file, diags := hclsyntax.ParseConfig(src, d.source.name, hcl.InitialPos)
	if diags.HasErrors() {
		d.diags = append(d.diags, firstOfOpenQuote(diags)...)
		return nil
	}
	d.source.body, _ = file.Body.(*hclsyntax.Body)
	// 3. Names, and the types of values.
	d.ctx = functions(d.env, d.source.name)
	if d.checkExpressions(d.source.body); d.diags.HasErrors() {
		return nil
	}
	var f fileBlock
	d.arguments = allArguments(d.source.body)
	d.decodeFailed(gohcl.DecodeBody(file.Body, d.ctx, &f))
	d.checkRequired(reflect.ValueOf(f))
	// 4. What the values mean.
	d.incomplete = d.diags.HasErrors()
	c := d.config(&f)
	if d.diags.HasErrors() {
		return nil
	}
	c.File = d.source.name
	c.tree = d.tree(reflect.ValueOf(f), "")
	c.files = d.files
	return c
}

// firstOfOpenQuote drops the diagnostics after one about a quote that is not closed, because
// that quote has caused them.
func firstOfOpenQuote(diags hcl.Diagnostics) hcl.Diagnostics {
	for i, diag := range diags {
		if diag.Summary == "Invalid multi-line string" {
			return diags[:i+1]
		}
	}
	return diags
}

// checkExpressions refuses loops: no configuration needs them, and they could run for ever.
func (d *decoder) checkExpressions(b *hclsyntax.Body) {
	hclsyntax.VisitAll(b, func(n hclsyntax.Node) hcl.Diagnostics {
		switch n.(type) {
		case *hclsyntax.ForExpr, *hclsyntax.SplatExpr:
			d.fail(n.Range(), "Unsupported expression", "There are no loops in a configuration file: write the values out.")
		}
		return nil
	})
}

// checkRequired reports required arguments that are missing in a block and the blocks in it.
func (d *decoder) checkRequired(v reflect.Value) {
	for _, f := range fields(v.Type()) {
		if f.required && attribute(body(v), f.name) == nil {
			d.fail(header(v), "Missing argument", fmt.Sprintf("The argument %q is required here.", f.name))
		}
		if !f.isBlock {
			continue
		}
		for _, inner := range blocks(v, f) {
			d.checkRequired(inner)
		}
	}
}

// blocks returns the blocks that a field of a block holds.
func blocks(v reflect.Value, f field) []reflect.Value {
	v = v.Field(f.index)
	if !f.repeated {
		if v.IsNil() {
			return nil
		}
		return []reflect.Value{v.Elem()}
	}
	var out []reflect.Value
	for i := range v.Len() {
		out = append(out, v.Index(i))
	}
	return out
}

// attribute returns the source of an argument; nil if the argument is left out.
func attribute(b hcl.Body, name string) *hclsyntax.Attribute {
	if b, ok := b.(*hclsyntax.Body); ok {
		return b.Attributes[name]
	}
	return nil
}

// missing returns the range for a diagnostic about a missing argument: the block's start.
func missing(b hcl.Body) hcl.Range {
	if b == nil {
		return hcl.Range{Start: hcl.InitialPos, End: hcl.InitialPos}
	}
	return b.MissingItemRange()
}

// at returns the range of an argument's value.
func at(b hcl.Body, name string) hcl.Range {
	if attr := attribute(b, name); attr != nil {
		return attr.Expr.Range()
	}
	return missing(b)
}

// atElement returns the range of an element of a list.
func atElement(b hcl.Body, name string, i int) hcl.Range {
	if attr := attribute(b, name); attr != nil {
		if list, ok := attr.Expr.(*hclsyntax.TupleConsExpr); ok && i < len(list.Exprs) {
			return list.Exprs[i].Range()
		}
	}
	return at(b, name)
}

// place returns a range as FILE:LINE.
func place(r hcl.Range) string { return fmt.Sprintf("%s:%d", r.Filename, r.Start.Line) }

// decodeFailed adds gohcl's diagnostics. It keeps only the first one about each argument, and
// suppresses all later ones.
func (d *decoder) decodeFailed(diags hcl.Diagnostics) {
	place := func(diag *hcl.Diagnostic) int {
		if attr := d.argumentAt(diag.Subject); attr != nil {
			return attr.SrcRange.Start.Byte
		}
		return start(diag).Byte
	}
	slices.SortStableFunc(diags, func(a, b *hcl.Diagnostic) int { return cmp.Compare(place(a), place(b)) })
	d.failed = map[*hclsyntax.Attribute]bool{}
	for _, diag := range diags {
		attr := d.argumentAt(diag.Subject)
		switch {
		case len(d.diags) >= maxDiagnostics:
			return
		case d.failed[attr]:
			continue
		case attr == nil || strings.HasPrefix(diag.Summary, "Unsupported "):
			diag = d.unknown(diag)
		default:
			d.failed[attr] = true
			diag.Summary = "Invalid " + attr.Name
			diag.Detail = sentence(strings.TrimPrefix(diag.Detail, "Unsuitable value: "))
			if err := functionError(diag); err != nil {
				diag.Detail = sentence(err.Error())
			}
		}
		d.diags = append(d.diags, diag)
	}
}

// functionError returns the error of a function call that a diagnostic is about; nil for none.
func functionError(diag *hcl.Diagnostic) error {
	if extra, ok := hcl.DiagnosticExtra[hclsyntax.FunctionCallDiagExtra](diag); ok {
		return extra.FunctionCallError()
	}
	return nil
}

// allArguments returns the arguments of a file, in order.
func allArguments(b *hclsyntax.Body) []*hclsyntax.Attribute {
	var out []*hclsyntax.Attribute
	var add func(*hclsyntax.Body)
	add = func(b *hclsyntax.Body) {
		for _, attr := range b.Attributes {
			out = append(out, attr)
		}
		for _, block := range b.Blocks {
			add(block.Body)
		}
	}
	add(b)
	slices.SortFunc(out, func(a, b *hclsyntax.Attribute) int { return cmp.Compare(a.SrcRange.Start.Byte, b.SrcRange.Start.Byte) })
	return out
}

// argumentAt returns the argument in which a range begins; nil for none.
func (d *decoder) argumentAt(r *hcl.Range) *hclsyntax.Attribute {
	if r == nil {
		return nil
	}
	i, found := slices.BinarySearchFunc(d.arguments, r.Start.Byte, func(attr *hclsyntax.Attribute, at int) int {
		return cmp.Compare(attr.SrcRange.Start.Byte, at)
	})
	if !found {
		i--
	}
	if i < 0 || r.Start.Byte >= d.arguments[i].SrcRange.End.Byte {
		return nil
	}
	return d.arguments[i]
}

func (d *decoder) fail(r hcl.Range, summary, detail string) {
	if d.failed[d.argumentAt(&r)] {
		return
	}
	d.diags = append(d.diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: detail, Subject: &r})
}

// warn reports something that has no effect, or an effect that the user may not expect.
func (d *decoder) warn(r hcl.Range, summary, detail string) {
	d.diags = append(d.diags, &hcl.Diagnostic{Severity: hcl.DiagWarning, Summary: summary, Detail: detail, Subject: &r})
}

// errorf reports an invalid value of an argument, or an invalid label of a block.
func (d *decoder) errorf(r hcl.Range, name string, err error) {
	d.fail(r, "Invalid "+name, strings.TrimSpace(sentence(err.Error())+" "+sentence(hint.Of(err))))
}

// conflict reports arguments that contradict each other, unless an argument could not be
// read.
func (d *decoder) conflict(r hcl.Range, detail string) {
	if !d.incomplete {
		d.fail(r, "Arguments that do not go together", detail)
	}
}

// parseOne reads the value of an argument. It returns the zero value if the argument is left
// out.
func parseOne[T any](d *decoder, b hcl.Body, name string, s *string, parse func(string) (T, error)) T {
	var zero T
	if s == nil {
		return zero
	}
	v, err := parse(*s)
	if err != nil {
		d.errorf(at(b, name), name, err)
		return zero
	}
	return v
}

// parseEach reads the elements of a list.
func parseEach[T any](d *decoder, b hcl.Body, name string, list []string, parse func(string) (T, error)) []T {
	var out []T
	for i, s := range list {
		v, err := parse(s)
		if err != nil {
			d.errorf(atElement(b, name, i), name, err)
			continue
		}
		out = append(out, v)
	}
	return out
}

// parseLabel reads a block's label.
func parseLabel[T any](d *decoder, what string, r hcl.Range, s string, parse func(string) (T, error)) T {
	v, err := parse(s)
	if err != nil {
		d.errorf(r, what, err)
	}
	return v
}

func (d *decoder) selector(b hcl.Body, include, exclude []string) provider.Selector {
	for i, s := range include {
		if p, err := provider.ParsePattern(s); err == nil {
			d.warnOfClients(atElement(b, "include", i), p.ClientWarning())
		}
	}
	return provider.Selector{
		Include: parseEach(d, b, "include", include, provider.ParsePattern),
		Exclude: parseEach(d, b, "exclude", exclude, provider.ParsePattern),
	}
}

// path resolves a path relative to the folder of the file. It does not expand "~".
func (d *decoder) path(b hcl.Body, name string, s *string) string {
	return parseOne(d, b, name, s, d.parsePath)
}

func (d *decoder) parsePath(s string) (string, error) {
	switch {
	case s == "":
		return "", errors.New("it is empty")
	case s == "~" || strings.HasPrefix(s, "~/"):
		return "", hint.New(fmt.Sprintf("no folder is named %q", "~"), `write "${env("HOME")}%s"`, s[1:])
	case strings.ContainsRune(s, 0):
		return "", errors.New("it holds a zero byte")
	}
	return d.env.beside(d.source.name, s), nil
}

// positive checks a number, which must be at least 1.
func (d *decoder) positive(b hcl.Body, name string, n *int, largest int) int {
	switch {
	case n == nil:
		return 0
	case *n < 1 || *n > largest:
		d.errorf(at(b, name), name, fmt.Errorf("%d is not a number from 1 to %d", *n, largest))
		return 0
	}
	return *n
}

// secret evaluates an argument that is a secret. It drops the errors of HCL, which may quote
// the secret, and keeps those of env and file.
func (d *decoder) secret(b hcl.Body, name string) auth.Secret {
	attr := attribute(b, name)
	if attr == nil {
		return auth.Secret{}
	}
	const help = `write a quoted string, env("NAME") or file("PATH")`
	v, diags := attr.Expr.Value(d.ctx)
	if diags.HasErrors() {
		err := errors.New("it has no value")
		for _, diag := range diags {
			if ferr := functionError(diag); ferr != nil {
				err = ferr
			}
		}
		d.errorf(attr.Expr.Range(), name, hint.Wrap(err, "%s", help))
		d.incomplete = true
		return auth.Secret{}
	}
	v, err := convert.Convert(v, cty.String)
	if err != nil || !v.IsWhollyKnown() {
		d.errorf(attr.Expr.Range(), name, hint.New("it is not text", "%s", help))
		d.incomplete = true
		return auth.Secret{}
	}
	if v.IsNull() {
		return auth.Secret{}
	}
	if v.AsString() == "" {
		d.errorf(attr.Expr.Range(), name, hint.New("it is empty", "leave the argument out, or give it a value"))
		d.incomplete = true
	}
	return auth.NewSecret(v.AsString())
}
