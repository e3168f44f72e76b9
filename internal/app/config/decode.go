package config

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/trust"
)

// Parse parses src, the content of a configuration file. name is the path of the file.
// Relative paths in the file are relative to its folder. If the file is invalid, the error is
// an [*Error] with all diagnostics.
func Parse(env Environment, name string, src []byte) (*Config, error) {
	d := &decoder{env: env, source: newSource(name, nil, nil), blocks: map[any]*block{}}
	d.byName, d.byKind = d.parsers()
	c := d.file(src)
	if d.diags.HasErrors() {
		return nil, &Error{name, d.source.diagnostics(d.diags)}
	}
	c.Warnings = d.source.diagnostics(d.diags)
	return c, nil
}

// decoder decodes one file, and collects the diagnostics.
type decoder struct {
	env    Environment
	source *source
	ctx    *hcl.EvalContext
	byName map[string]any // parsers, by the name of an argument
	byKind map[string]any // parsers, by the kind of a value
	diags  hcl.Diagnostics

	missing    bool           // whether some value could not be read, and the command does not use it
	incomplete bool           // whether an argument could not be decoded; combinations of arguments are then not checked
	blocks     map[any]*block // the key is the pointer to the struct that the block is decoded into
	files      []fileArgument
}

// file decodes a configuration file in four steps. It returns nil if the file is invalid.
// An error in one step can cause further errors in the later steps. After an error, file
// therefore skips the later steps, or they report less.
func (d *decoder) file(src []byte) *Config {
	// 1. Check the size and nesting of the file, because HCL's parser does not limit them.
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
	// 2. Parse the syntax of HCL.
	file, diags := hclsyntax.ParseConfig(src, d.source.name, hcl.InitialPos)
	if diags.HasErrors() {
		d.diags = append(d.diags, firstOfOpenQuote(diags)...)
		return nil
	}
	d.source.body, _ = file.Body.(*hclsyntax.Body)
	// 3. Check the names, and decode each value by itself.
	d.ctx = functions(d.env, d.source.name)
	if d.checkExpressions(d.source.body); d.diags.HasErrors() {
		return nil
	}
	var f fileBlock
	tree := d.block(reflect.ValueOf(&f).Elem(), d.source.body, d.source.body.MissingItemRange(), "")
	// 4. Build the Config, and check whether the values fit together.
	c := d.config(&f)
	if d.diags.HasErrors() {
		return nil
	}
	c.File, c.tree, c.files = d.source.name, tree, d.files
	return c
}

// firstOfOpenQuote drops all diagnostics after the first diagnostic about an unclosed
// quote, because the unclosed quote is their cause.
func firstOfOpenQuote(diags hcl.Diagnostics) hcl.Diagnostics {
	for i, diag := range diags {
		if diag.Summary == "Invalid multi-line string" {
			return diags[:i+1]
		}
	}
	return diags
}

// checkExpressions refuses loops. No configuration needs a loop, and nested loops could run
// for a very long time.
func (d *decoder) checkExpressions(b *hclsyntax.Body) {
	hclsyntax.VisitAll(b, func(n hclsyntax.Node) hcl.Diagnostics {
		switch n.(type) {
		case *hclsyntax.ForExpr, *hclsyntax.SplatExpr:
			d.fail(n.Range(), "Unsupported expression", "There are no loops in a configuration file: write the values out.")
		}
		return nil
	})
}

// block decodes body into v, a struct of the schema. It returns the settings of the block
// with secrets redacted. path consists of the names of the enclosing blocks and of this
// block, joined by dots.
func (d *decoder) block(v reflect.Value, body *hclsyntax.Body, header hcl.Range, path string) *block {
	out := &block{index: -1, path: path, source: place(header), body: body, header: header}
	d.blocks[v.Addr().Interface()] = out
	schema, partial := gohcl.ImpliedBodySchema(v.Interface())
	content, diags := body.Content(schema)
	if partial {
		content, _, diags = body.PartialContent(schema)
	}
	d.invalidNames(diags)
	for _, f := range Fields(v.Type()) {
		in := joinPath(path, f.Name)
		if !f.IsBlock {
			d.argument(out, v.Field(f.Go.Index[0]), f, in)
			continue
		}
		found := content.Blocks.OfType(f.Name)
		if len(found) > 1 && !f.Repeated {
			d.fail(found[1].DefRange, "Duplicate "+f.Name+" block", fmt.Sprintf("Only one %s block is allowed. Another was defined at %s.", f.Name, found[0].DefRange))
			found = found[:1]
		}
		seen := map[any]bool{}
		for i, inner := range f.allocate(v, len(found)) {
			b := d.block(inner, found[i].Body.(*hclsyntax.Body), found[i].DefRange, in)
			b.name = f.Name
			if f.Repeated && len(found[i].Labels) == 0 {
				b.index = i
			}
			for _, text := range found[i].Labels { // a block has at most one label
				d.label(b, f, inner.Field(0), text, seen)
			}
			out.blocks = append(out.blocks, b)
		}
	}
	return out
}

// label decodes text, the label of the block b, into v, a field of the block's struct. seen
// contains the labels of the earlier blocks of the same type.
func (d *decoder) label(b *block, f Field, v reflect.Value, text string, seen map[any]bool) {
	b.label = text
	_, kind := Label(f.Type)
	parsed, ok := d.parse(kind, kind, reflect.ValueOf(text), b.header)
	if !ok {
		return
	}
	v.Set(parsed)
	if seen[parsed.Interface()] && f.Name != "oci_credentials" { // package auth reports duplicate logins
		d.fail(b.header, "Duplicate "+f.Name+" block", fmt.Sprintf("There is a %s block for %s further up: remove one of them.", f.Name, text))
	}
	seen[parsed.Interface()] = true
}

// argument decodes the argument f of the block b into v, a field of the block's struct.
func (d *decoder) argument(b *block, v reflect.Value, f Field, path string) {
	attr := b.body.Attributes[f.Name]
	switch {
	case attr == nil:
		d.leftOut(v, f, b, b.header)
	case f.Kind == "template":
		v.SetString(d.template(attr))
		b.settings = append(b.settings, setting{f.Name, templateValue(v.String()), place(attr.Expr.Range())})
	default:
		if shown, ok := d.value(v, f, b, attr.Expr); ok {
			b.add(f.Name, shown, place(attr.Expr.Range()))
			d.names(b, f, path, shown)
		}
	}
}

// leftOut handles an argument that is left out or null. It sets the default of the
// argument, or reports that the argument is required.
func (d *decoder) leftOut(v reflect.Value, f Field, b *block, at hcl.Range) {
	switch {
	case f.Required:
		d.fail(at, "Missing argument", fmt.Sprintf("The argument %q is required here.", f.Name))
		d.incomplete = true
	case !f.elsewhere && f.Default != "":
		d.value(v, f, b, hcl.StaticExpr(cty.StringVal(f.Default), at))
	}
}

// value decodes expr into v, a field of a struct. shown is the value for output, with
// secrets redacted. ok is false if expr is null or cannot be decoded.
func (d *decoder) value(v reflect.Value, f Field, b *block, expr hcl.Expression) (shown any, ok bool) {
	if f.Kind == kindDeny || f.Kind == kindDeprecate {
		return d.deny(v, f, b, expr)
	}
	written := v.Type()
	if parser, ok := d.parser(f.Name, f.Kind); ok {
		written = parser.Type().In(0)
		if v.Kind() == reflect.Slice {
			written = reflect.SliceOf(written)
		}
	}
	decoded := reflect.New(reflect.PointerTo(written))
	if diags := gohcl.DecodeExpression(expr, d.ctx, decoded.Interface()); diags.HasErrors() {
		if err := functionError(diags[0]); errors.Is(err, errMissing) && !d.env.Use.needs(joinPath(b.path, f.Name)) {
			d.missing = true
			return fmt.Sprintf("[%v]", err), true
		}
		d.incomplete = true
		if f.Kind == "secret" {
			d.invalidSecret(f.Name, expr.Range(), diags)
		} else {
			d.invalidValue(f.Name, diags[0])
		}
		return nil, false
	}
	x := decoded.Elem().Elem()
	switch {
	case !x.IsValid() || (x.Kind() == reflect.Slice || x.Kind() == reflect.Map) && x.IsNil(): // null
		d.leftOut(v, f, b, expr.Range())
		return nil, false
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 0, x.Len())) // an empty list differs from no list
		for i := range x.Len() {
			if parsed, ok := d.parse(f.Name, f.Kind, x.Index(i), b.atElement(f.Name, i)); ok {
				v.Set(reflect.Append(v, parsed))
			}
		}
	default:
		if parsed, ok := d.parse(f.Name, f.Kind, x, expr.Range()); ok {
			v.Set(parsed)
		}
	}
	switch v.Interface().(type) {
	case login.Secret:
		return redacted, true
	case unsigned:
		if x.String() != trust.AsClients {
			return x.String() == "true", true
		}
	case string, []string:
		if v.Len() > 0 {
			x = v // output shows the parsed value
		}
	case [sha256.Size]byte:
		return x.String()[:min(8, x.Len())] + "...", true // enough to recognize the sum
	}
	return x.Interface(), true
}

// parser returns the parser for the argument with the given name, or else the parser for the
// given kind of values. The bool reports whether there is a parser.
func (d *decoder) parser(name, kind string) (reflect.Value, bool) {
	parser, ok := d.byName[name]
	if !ok {
		parser, ok = d.byKind[kind]
	}
	return reflect.ValueOf(parser), ok
}

// parse converts x with the parser of its argument. It returns x unchanged if there is no
// parser. ok reports whether x is valid.
func (d *decoder) parse(name, kind string, x reflect.Value, at hcl.Range) (parsed reflect.Value, ok bool) {
	parser, ok := d.parser(name, kind)
	if !ok {
		return x, true
	}
	out := parser.Call([]reflect.Value{x})
	if err, failed := out[1].Interface().(error); failed {
		d.errorf(at, name, err)
		d.incomplete = d.incomplete || kind == "secret"
		return x, false
	}
	return out[0], true
}

// names records the files that the argument f names. [Config.CheckFiles] checks them.
func (d *decoder) names(b *block, f Field, path string, shown any) {
	files, _ := shown.([]string)
	switch f.Kind {
	case "file":
		files = []string{shown.(string)}
	case "files":
	default:
		return
	}
	for i, file := range files {
		r := b.atElement(f.Name, i)
		d.files = append(d.files, fileArgument{path, file, d.source.diagnostic(&hcl.Diagnostic{Summary: "Unusable file", Subject: &r})})
	}
}

// of returns the block that was decoded into the struct at pointer. It returns nil if the
// file has no such block.
func (d *decoder) of(pointer any) *block { return d.blocks[pointer] }

// place returns the start of a range as FILE:LINE.
func place(r hcl.Range) string { return fmt.Sprintf("%s:%d", r.Filename, r.Start.Line) }

// invalidNames adds HCL's diagnostics about the names in a body.
func (d *decoder) invalidNames(diags hcl.Diagnostics) {
	sortByPlace(diags)
	for _, diag := range diags {
		d.incomplete = true
		if len(d.diags) < maxDiagnostics {
			d.diags = append(d.diags, d.unknown(diag))
		}
	}
}

// invalidValue adds HCL's diagnostic about the value of an argument.
func (d *decoder) invalidValue(name string, diag *hcl.Diagnostic) {
	if strings.HasPrefix(diag.Summary, "Unsupported ") {
		diag = d.unknown(diag)
	} else {
		diag.Summary = "Invalid " + name
		diag.Detail = sentence(strings.TrimPrefix(diag.Detail, "Unsuitable value: "))
		if err := functionError(diag); err != nil {
			diag.Detail = sentence(err.Error())
		}
	}
	d.diags = append(d.diags, diag)
}

// invalidSecret reports a secret that cannot be decoded. It drops HCL's own errors, because
// they could quote the secret. It keeps the errors of the functions env and file.
func (d *decoder) invalidSecret(name string, at hcl.Range, diags hcl.Diagnostics) {
	err := errors.New("it is not text")
	for _, diag := range diags {
		if ferr := functionError(diag); ferr != nil {
			err = ferr
		}
	}
	d.errorf(at, name, hint.Wrap(err, `write a quoted string, env("NAME") or file("PATH")`))
}

// functionError returns the error of the function call that diag is about. It returns nil
// if diag is not about a function call.
func functionError(diag *hcl.Diagnostic) error {
	if extra, ok := hcl.DiagnosticExtra[hclsyntax.FunctionCallDiagExtra](diag); ok {
		return extra.FunctionCallError()
	}
	return nil
}

func (d *decoder) fail(r hcl.Range, summary, detail string) {
	d.diags = append(d.diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: detail, Subject: &r})
}

// warn reports a setting that has no effect, or an effect that the user might not expect.
func (d *decoder) warn(r hcl.Range, summary, detail string) {
	d.diags = append(d.diags, &hcl.Diagnostic{Severity: hcl.DiagWarning, Summary: summary, Detail: detail, Subject: &r})
}

// errorf reports an invalid value of an argument, or an invalid label of a block.
func (d *decoder) errorf(r hcl.Range, name string, err error) {
	d.fail(r, "Invalid "+name, strings.TrimSpace(sentence(err.Error())+" "+sentence(hint.Of(err))))
}

// conflict reports arguments that contradict each other. It reports nothing if an argument
// could not be decoded, because the missing value could be the cause.
func (d *decoder) conflict(r hcl.Range, detail string) {
	if !d.incomplete {
		d.fail(r, "Arguments that do not go together", detail)
	}
}

// parsePath resolves a path relative to the folder of the file. It does not expand "~".
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
