package moduledoc

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/terraform-config-inspect/tfconfig"
	"github.com/zclconf/go-cty/cty"

	"github.com/ocibridge/ocibridge/internal/base/calls"
)

// sources collects what the source files of a part declare.
type sources struct {
	part   *Part
	budget *budget
	module *tfconfig.Module
	more   map[string]*extra // of the inputs, by name
	notes  map[string]*extra // of the outputs, by name
	seen   map[Resource]bool
	uses   map[string]bool // the local names of the providers of resources
}

// extra is what tfconfig does not read of an input or output.
type extra struct {
	comment    string // above the block
	expression string // the default value, if it is not constant
	optional   bool   // there is a default value that is not constant
	nullable   *bool
	ephemeral  *bool
}

func newSources(p *Part, b *budget) *sources {
	return &sources{
		part: p, budget: b, module: tfconfig.NewModule(p.Path), more: map[string]*extra{}, notes: map[string]*extra{},
		seen: map[Resource]bool{}, uses: map[string]bool{},
	}
}

// file reads a source file.
func (s *sources) file(ctx context.Context, name string, data []byte) {
	if strings.HasSuffix(name, ".json") {
		if s.budget.parse(s.part, len(data)/bytesOfToken+price(data)) {
			s.json(name, data)
		}
		return
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	above := comments{data: data, line: 1, begin: -1}
	for b := range calls.Blocks(data) {
		above.advance(b.Line)
		if ctx.Err() != nil {
			return
		}
		switch b.Type {
		case "variable", "output", "terraform", "provider", "module", "resource", "data", "ephemeral", "action":
		default:
			continue
		}
		if !s.budget.block(s.part) {
			return
		}
		if typ, label, ok := b.Labels(); ok {
			if b.Type == "resource" || b.Type == "data" {
				s.resource(Resource{typ, label, b.Type == "data"})
			}
			s.use(b, typ, name)
			continue
		}
		if !s.budget.parse(s.part, b.Tokens()+price(b.Src)) {
			continue
		}
		file, err := b.Parse(name)
		if err == nil {
			err = s.native(b.Type, file, above.text(), calls.IsOverride(name))
		}
		if err != nil {
			s.part.skip("%s:%d: %v", name, b.Line, err)
		}
	}
}

// resource adds a resource or data source.
func (s *sources) resource(r Resource) {
	if !s.seen[r] {
		s.seen[r] = true
		s.part.Resources = append(s.part.Resources, r)
	}
}

// use adds the provider of a block for a resource of a type. The block is parsed only if it can name another provider than its type.
func (s *sources) use(b calls.Block, typ, file string) {
	var body hcl.Body = hcl.EmptyBody()
	if bytes.Contains(b.Src, []byte("provider")) && s.budget.parse(s.part, b.Tokens()+price(b.Src)) {
		if parsed, err := b.Parse(file); err == nil && len(parsed.Body.(*hclsyntax.Body).Blocks) > 0 {
			body = parsed.Body.(*hclsyntax.Body).Blocks[0].Body
		}
	}
	s.uses[calls.ProviderOf(body, typ)] = true
}

// native reads one block in the native syntax.
func (s *sources) native(blockType string, file *hcl.File, comment string, override bool) error {
	body := file.Body.(*hclsyntax.Body)
	for _, b := range body.Blocks {
		if len(b.Labels) == 0 {
			harden(b.Body)
			continue
		}
		name := b.Labels[0]
		switch blockType {
		case "variable":
			e := &extra{comment: comment}
			if a := b.Body.Attributes["default"]; a != nil && !isConstant(a.Expr) {
				e.optional, e.expression = true, string(a.Expr.Range().SliceBytes(file.Bytes))
				delete(b.Body.Attributes, "default")
			}
			if a := b.Body.Attributes["type"]; a != nil && !isCheap(a.Expr) {
				delete(b.Body.Attributes, "type")
			}
			harden(b.Body)
			before := s.module.Variables[name]
			err := s.load(file, override)
			s.variable(name, b.Body, e, before, override)
			return err
		case "output":
			harden(b.Body)
			before := s.module.Outputs[name]
			err := s.load(file, override)
			s.output(name, b.Body, &extra{comment: comment}, before, override)
			return err
		default:
			harden(b.Body)
		}
	}
	return s.load(file, override)
}

// variable completes an input that was loaded. In an override file, a block replaces only the arguments that it sets of the block
// before.
func (s *sources) variable(name string, body hcl.Body, e *extra, before *tfconfig.Variable, override bool) {
	known := cmp.Or(s.more[name], &extra{})
	e.nullable, e.ephemeral = constantBool(body, "nullable"), constantBool(body, "ephemeral")
	s.more[name] = e
	v := s.module.Variables[name]
	if !override || before == nil || v == nil {
		return
	}
	v.Type, v.Description, v.Deprecated = cmp.Or(v.Type, before.Type), cmp.Or(v.Description, before.Description), cmp.Or(v.Deprecated, before.Deprecated)
	if v.Required && !e.optional {
		v.Required, v.Default, e.optional, e.expression = before.Required, before.Default, known.optional, known.expression
	}
	if constantBool(body, "sensitive") == nil {
		v.Sensitive = before.Sensitive
	}
	e.comment, e.nullable, e.ephemeral = known.comment, cmp.Or(e.nullable, known.nullable), cmp.Or(e.ephemeral, known.ephemeral)
}

// output is like variable, for an output.
func (s *sources) output(name string, body hcl.Body, e *extra, before *tfconfig.Output, override bool) {
	known := cmp.Or(s.notes[name], &extra{})
	e.ephemeral = constantBool(body, "ephemeral")
	s.notes[name] = e
	o := s.module.Outputs[name]
	if !override || before == nil || o == nil {
		return
	}
	o.Description, o.Deprecated = cmp.Or(o.Description, before.Description), cmp.Or(o.Deprecated, before.Deprecated)
	if constantBool(body, "sensitive") == nil {
		o.Sensitive = before.Sensitive
	}
	e.comment, e.ephemeral = known.comment, cmp.Or(e.ephemeral, known.ephemeral)
}

// largeNumber matches a number in JSON whose decimal form would be very long.
var largeNumber = regexp.MustCompile(`[0-9.][eE][+-]?0*[1-9][0-9]{2,}`)

// jsonSchema has the blocks of which a JSON file can declare more than tfconfig reads.
var jsonSchema = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
	{Type: "variable", LabelNames: []string{"name"}}, {Type: "output", LabelNames: []string{"name"}},
	{Type: "ephemeral", LabelNames: []string{"type", "name"}}, {Type: "action", LabelNames: []string{"type", "name"}},
}}

// json reads a file in JSON.
func (s *sources) json(name string, data []byte) {
	if largeNumber.Match(data) {
		s.part.skip("%s: it has a number that is too large", name)
		return
	}
	variables, outputs := maps.Clone(s.module.Variables), maps.Clone(s.module.Outputs)
	file, err := calls.ParseJSON(name, data)
	if err == nil && file != nil {
		err = s.load(file, calls.IsOverride(name))
	}
	if err != nil {
		s.part.skip("%s: %v", name, err)
	}
	if err != nil || file == nil {
		return
	}
	content, _, _ := file.Body.PartialContent(jsonSchema)
	for _, b := range content.Blocks {
		switch label := b.Labels[0]; b.Type {
		case "variable":
			s.variable(label, b.Body, &extra{}, variables[label], calls.IsOverride(name))
		case "output":
			s.output(label, b.Body, &extra{}, outputs[label], calls.IsOverride(name))
		default:
			s.uses[calls.ProviderOf(b.Body, label)] = true
		}
	}
}

// load passes a file to the library. Its errors are panics of the library. The library reports syntax errors, which clients
// report as well, so they are ignored.
func (s *sources) load(file *hcl.File, override bool) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it cannot be read: %.200v", p)
		}
	}()
	if !override {
		tfconfig.LoadModuleFromFile(file, s.module)
		return nil
	}
	// The library adds the version constraints of an override file to those before, and replaces whole module blocks.
	before := *s.module
	s.module.RequiredCore, s.module.RequiredProviders, s.module.ModuleCalls = nil, map[string]*tfconfig.ProviderRequirement{}, map[string]*tfconfig.ModuleCall{}
	defer s.override(before)
	tfconfig.LoadModuleFromFile(file, s.module)
	return nil
}

// override completes what an override file has set with what the files before have set.
func (s *sources) override(before tfconfig.Module) {
	m := s.module
	if len(m.RequiredCore) == 0 {
		m.RequiredCore = before.RequiredCore
	}
	for name, r := range before.RequiredProviders {
		if now := m.RequiredProviders[name]; now == nil || now.Source == "" && len(now.VersionConstraints) == 0 { // as for the provider of a resource
			m.RequiredProviders[name] = r
		}
	}
	for name, c := range before.ModuleCalls {
		if now := m.ModuleCalls[name]; now != nil {
			now.Source, now.Version = cmp.Or(now.Source, c.Source), cmp.Or(now.Version, c.Version)
		} else {
			m.ModuleCalls[name] = c
		}
	}
}

// constantBool returns the value of an argument, or nil if it is not set or not constant.
func constantBool(body hcl.Body, name string) *bool {
	content, _, _ := body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: name}}})
	a := content.Attributes[name]
	if a == nil {
		return nil
	}
	if e, ok := a.Expr.(hclsyntax.Expression); ok && !isConstant(e) {
		return nil
	}
	v, diags := a.Expr.Value(nil)
	if diags.HasErrors() || v.Type() != cty.Bool || !v.IsKnown() || v.IsNull() {
		return nil
	}
	value := v.True()
	return &value
}

// harden removes the arguments that take long to evaluate, in a body and the blocks in it.
func harden(body *hclsyntax.Body) {
	for name, a := range body.Attributes {
		if !isCheap(a.Expr) {
			delete(body.Attributes, name)
		}
	}
	for _, b := range body.Blocks {
		harden(b.Body)
	}
}

// The limits of expressions that are evaluated. Without them, loops and powers of ten would take any time and memory.
const maxOperations = 100

var maxNumber = new(big.Float).SetFloat64(1e30)

// isCheap reports whether an expression is evaluated in a time that grows with its length.
func isCheap(e hclsyntax.Expression) bool { return allows(e, true) }

// isConstant reports whether an expression is cheap and refers to nothing.
func isConstant(e hclsyntax.Expression) bool { return allows(e, false) }

func allows(e hclsyntax.Expression, references bool) bool {
	ok, operations := true, 0
	hclsyntax.VisitAll(e, func(n hclsyntax.Node) hcl.Diagnostics {
		switch n := n.(type) {
		case *hclsyntax.ForExpr, *hclsyntax.SplatExpr, *hclsyntax.TemplateJoinExpr:
			ok = false
		case *hclsyntax.ScopeTraversalExpr, *hclsyntax.FunctionCallExpr:
			ok = ok && references
		case *hclsyntax.BinaryOpExpr:
			operations++
		case *hclsyntax.LiteralValueExpr:
			if v := n.Val; v.Type() == cty.Number && v.IsKnown() && !v.IsNull() {
				f := v.AsBigFloat()
				ok = ok && new(big.Float).Abs(f).Cmp(maxNumber) < 0 && (f.Sign() == 0 || f.MantExp(nil) > -100)
			}
		}
		return nil
	})
	return ok && operations <= maxOperations
}

// comments finds the comments above blocks.
type comments struct {
	data  []byte
	line  int // the number of the line at the position at
	at    int
	begin int // the position of the first of the comment lines directly before at, or -1
}

// advance moves on to the beginning of a line.
func (c *comments) advance(to int) {
	for ; c.line < to && c.at < len(c.data); c.line++ {
		rest := c.data[c.at:]
		if !bytes.HasPrefix(rest, []byte("#")) && !bytes.HasPrefix(rest, []byte("//")) {
			c.begin = -1
		} else if c.begin < 0 {
			c.begin = c.at
		}
		if end := bytes.IndexByte(rest, '\n'); end >= 0 {
			c.at += end + 1
		} else {
			c.at = len(c.data)
		}
	}
}

// text returns the comment directly above the current line, in one line, or "".
func (c *comments) text() string {
	if c.begin < 0 || c.at-c.begin > maxText {
		return ""
	}
	var lines []string
	for line := range strings.Lines(string(c.data[c.begin:c.at])) {
		line = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(line), "#"), "//")
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, " ")
}

// finish fills the lists of the part.
func (s *sources) finish() {
	p, m := s.part, s.module
	p.Inputs, p.Outputs, p.Requires, p.Calls = []Input{}, []Output{}, []Requirement{}, []Call{}
	for _, v := range m.Variables {
		p.Inputs = append(p.Inputs, s.input(v))
	}
	slices.SortFunc(p.Inputs, func(a, b Input) int {
		if a.Required != b.Required {
			return map[bool]int{true: -1, false: 1}[a.Required]
		}
		return strings.Compare(a.Name, b.Name)
	})
	for _, o := range m.Outputs {
		e := cmp.Or(s.notes[o.Name], &extra{})
		p.Outputs = append(p.Outputs, Output{
			p.text(o.Name), p.text(described(o.Description, e.comment)), o.Sensitive, e.ephemeral != nil && *e.ephemeral, p.text(o.Deprecated),
		})
	}
	slices.SortFunc(p.Outputs, func(a, b Output) int { return strings.Compare(a.Name, b.Name) })
	s.resources()
	s.requirements()
	for _, c := range m.ModuleCalls {
		p.Calls = append(p.Calls, Call{p.text(c.Name), p.text(c.Source), p.text(c.Version)})
	}
	slices.SortFunc(p.Calls, func(a, b Call) int { return strings.Compare(a.Name, b.Name) })
	for _, c := range m.RequiredCore {
		p.Core = append(p.Core, p.text(c))
	}
}

func (s *sources) input(v *tfconfig.Variable) Input {
	e := cmp.Or(s.more[v.Name], &extra{})
	in := Input{
		Name: s.part.text(v.Name), Type: s.part.text(v.Type), Description: s.part.text(described(v.Description, e.comment)), Expression: s.part.text(e.expression),
		Required: v.Required && !e.optional, Sensitive: v.Sensitive, Nullable: e.nullable == nil || *e.nullable, Ephemeral: e.ephemeral != nil && *e.ephemeral,
		Deprecated: s.part.text(v.Deprecated),
	}
	if !v.Required {
		in.Default = s.encode(v.Default)
	}
	if in.Type == "" {
		in.Type, in.inferred = typeOf(v.Default), true
	}
	return in
}

// encode returns the JSON of a default value.
func (s *sources) encode(value any) json.RawMessage {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return nil
	}
	return json.RawMessage(s.part.text(strings.TrimSuffix(out.String(), "\n")))
}

// typeOf returns the type of an input without a type: that of its default value.
func typeOf(value any) string {
	switch value.(type) {
	case string:
		return "string"
	case float64:
		return "number"
	case bool:
		return "bool"
	case []any:
		return "list"
	case map[string]any:
		return "map"
	}
	return "any"
}

// described returns a description, or else the comment.
func described(description, comment string) string {
	return cmp.Or(strings.ReplaceAll(description, "\r\n", "\n"), comment)
}

// text returns a text that is not too long, with valid UTF-8. A text that is too long is left out.
func (p *Part) text(text string) string {
	if len(text) > maxText {
		p.skip("a text of %d bytes", len(text))
		return ""
	}
	return strings.Clone(strings.ToValidUTF8(text, "\ufffd"))
}

// resources adds the resources of JSON files, and sorts the list.
func (s *sources) resources() {
	p := s.part
	if p.Resources == nil {
		p.Resources = []Resource{}
	}
	for data, all := range map[bool]map[string]*tfconfig.Resource{false: s.module.ManagedResources, true: s.module.DataResources} {
		for _, r := range all {
			s.uses[r.Provider.Name] = true
			if of := (Resource{r.Type, r.Name, data}); !s.seen[of] {
				p.Resources = append(p.Resources, of)
			}
		}
	}
	slices.SortFunc(p.Resources, func(a, b Resource) int {
		return cmp.Or(strings.Compare(a.Type, b.Type), strings.Compare(a.Name, b.Name), map[bool]int{true: 1}[a.Data]-map[bool]int{true: 1}[b.Data])
	})
}

// requirements fills the list of providers.
func (s *sources) requirements() {
	p := s.part
	for name, r := range s.module.RequiredProviders {
		out := Requirement{Name: p.text(name), Source: p.text(r.Source)}
		for _, v := range r.VersionConstraints {
			out.Version = append(out.Version, p.text(v))
		}
		p.Requires = append(p.Requires, out)
	}
	for name := range s.uses {
		if _, known := s.module.RequiredProviders[name]; !known && name != "" {
			p.Requires = append(p.Requires, Requirement{Name: p.text(name)})
		}
	}
	slices.SortFunc(p.Requires, func(a, b Requirement) int { return strings.Compare(a.Name, b.Name) })
}
