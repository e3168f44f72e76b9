// Package calls reads what the files of a module call and require: module blocks, required_providers, and the providers of
// provider, resource, data, ephemeral, action and import blocks. It parses the blocks with the library of Terraform and OpenTofu.
// It opens no files. It reports no syntax errors, because clients report these.
//
// Files can come from other parties, and that library has no limits. Therefore the package first splits a file into its
// top-level blocks, and parses only those of the kinds above, one at a time. A block that is too large is not parsed, and is
// listed in [File.Skipped].
package calls

import (
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// MaxFile is the size in bytes above which callers skip a file. Clients have no such limit.
const MaxFile = 4 << 20

// maxText is the maximum length in bytes of a name, a source or a version constraint. A longer one is as one that is not
// constant.
const maxText = 2048

// File is what one file declares.
type File struct {
	Name     string // as it was given to [Read]
	Calls    []Call
	Required []Required
	Uses     []Use
	Skipped  []Skipped
	Parsed   int // roughly the number of tokens that were parsed, most of the cost of reading the file

	used map[usedProvider]bool // whether Uses has a provider
}

// Argument is the value of an argument.
type Argument struct {
	Set      bool
	Constant bool   // the value is a constant text
	Text     string // the constant text
}

// Call is a module block. In a test, it is in a run block.
type Call struct {
	Name            string // the label of the block; in a test, that of the run block
	Source, Version Argument
	File            string
	Line            int
}

// Required is an entry of a required_providers block.
type Required struct {
	Name            string // the local name
	Source, Version Argument
	File            string
	Line            int
}

// Use is a block that needs a provider. If no entry of required_providers has the local name, clients use the provider
// hashicorp/NAME of their default registry.
type Use struct {
	Name    string   // the local name of the provider
	Version Argument // of a provider block: the version constraint, which clients still respect
	File    string
	Line    int
}

// Skipped is a part of a file that was not read.
type Skipped struct {
	File   string
	Line   int
	Reason string // for messages
}

// IsFile reports whether a file with this name belongs to a module.
func IsFile(name string) bool {
	return isFile(name, ".tf", ".tofu", ".tf.json", ".tofu.json")
}

// IsTest reports whether a file with this name is a test of a module.
func IsTest(name string) bool {
	return isFile(name, ".tftest.hcl", ".tofutest.hcl", ".tftest.json", ".tofutest.json")
}

func isFile(name string, ends ...string) bool {
	name = name[strings.LastIndexByte(name, '/')+1:]
	if strings.HasPrefix(name, ".") {
		return false
	}
	for _, end := range ends {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// Read reads a file of a module or of its tests. name is the file's name, or its path with slashes.
func Read(name string, src []byte) *File {
	f := &File{Name: name}
	switch {
	case len(src) > MaxFile:
		f.skip(1, "it has more than %d bytes", MaxFile)
	case strings.HasSuffix(name, ".json"):
		f.readJSON(src)
	default:
		f.readNative(src)
	}
	return f
}

// IsLocal reports whether a source is a folder of the same package.
func IsLocal(source string) bool {
	return strings.HasPrefix(source, "./") || strings.HasPrefix(source, "../")
}

var (
	fileSchema = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
		{Type: "module", LabelNames: []string{"name"}}, {Type: "run", LabelNames: []string{"name"}}, {Type: "terraform"},
		{Type: "provider", LabelNames: []string{"name"}}, {Type: "check", LabelNames: []string{"name"}},
		{Type: "resource", LabelNames: []string{"type", "name"}}, {Type: "data", LabelNames: []string{"type", "name"}},
		{Type: "ephemeral", LabelNames: []string{"type", "name"}}, {Type: "action", LabelNames: []string{"type", "name"}}, {Type: "import"},
	}}
	runSchema       = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: "module"}}}
	terraformSchema = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: "required_providers"}}}
	checkSchema     = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: "data", LabelNames: []string{"type", "name"}}}}
	callSchema      = &hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "source"}, {Name: "version"}}}
	resourceSchema  = &hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "provider"}}}
	importSchema    = &hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "to"}}}
)

// isRead reports whether blocks of a type are read.
func isRead(blockType string) bool {
	for _, b := range fileSchema.Blocks {
		if b.Type == blockType {
			return true
		}
	}
	return false
}

// body adds what the blocks of a body declare.
func (f *File) body(body hcl.Body, schema *hcl.BodySchema) {
	content, _, _ := body.PartialContent(schema)
	for _, b := range content.Blocks {
		if len(f.Calls)+len(f.Required)+len(f.Uses) >= maxDeclared {
			f.skip(b.DefRange.Start.Line, "the file has more than %d blocks that call modules or need providers", maxDeclared)
			return
		}
		switch b.Type {
		case "module":
			f.call(b.Labels[0], b)
		case "run":
			inner, _, _ := b.Body.PartialContent(runSchema)
			for _, m := range inner.Blocks {
				f.call(b.Labels[0], m)
			}
		case "terraform":
			inner, _, _ := b.Body.PartialContent(terraformSchema)
			for _, r := range inner.Blocks {
				attributes, _ := r.Body.JustAttributes()
				for _, a := range attributes {
					f.require(a)
				}
			}
		case "provider":
			inner, _, _ := b.Body.PartialContent(callSchema)
			f.use(b.Labels[0], argument(inner, "version"), b.DefRange.Start.Line)
		case "check":
			f.body(b.Body, checkSchema)
		case "import":
			f.resource(b, "")
		default:
			f.resource(b, b.Labels[0])
		}
	}
}

// call adds a module block.
func (f *File) call(name string, b *hcl.Block) {
	inner, _, _ := b.Body.PartialContent(callSchema)
	f.Calls = append(f.Calls, Call{brief(name), argument(inner, "source"), argument(inner, "version"), f.Name, b.DefRange.Start.Line})
}

// require adds an entry of required_providers. Its value is an object or, as in old configurations, a version constraint.
func (f *File) require(a *hcl.Attribute) {
	r := Required{Name: brief(a.Name), File: f.Name, Line: a.NameRange.Start.Line}
	if text, ok := constant(a.Expr); ok {
		r.Version = Argument{true, true, text}
	}
	pairs, _ := hcl.ExprMap(a.Expr)
	for _, pair := range pairs {
		key := hcl.ExprAsKeyword(pair.Key)
		if key == "" {
			key, _ = constant(pair.Key)
		}
		value := Argument{Set: true}
		value.Text, value.Constant = constant(pair.Value)
		switch key {
		case "source":
			r.Source = value
		case "version":
			r.Version = value
		}
	}
	f.Required = append(f.Required, r)
}

// resource adds the provider of a block for a resource. An import block has no type of its own; "" stands for the type of the
// resource that it imports. Clients then generate this resource.
func (f *File) resource(b *hcl.Block, typ string) {
	if typ == "" {
		inner, _, _ := b.Body.PartialContent(importSchema)
		typ = root(inner.Attributes["to"])
	}
	name := ProviderOf(b.Body, typ)
	if name == "" || name == "module" && b.Type == "import" { // the module has a block for the resource
		return
	}
	f.use(name, Argument{}, b.DefRange.Start.Line)
}

// ProviderOf returns the local name of the provider of a block for a resource of a type: the one that the block names, or the one that
// the type names. It evaluates no expression.
func ProviderOf(body hcl.Body, typ string) string {
	inner, _, _ := body.PartialContent(resourceSchema)
	if name := root(inner.Attributes["provider"]); name != "" {
		return name
	}
	name, _, _ := strings.Cut(typ, "_")
	return name
}

// root returns the first name of the reference in an argument: "a" of a.b[c], or of "a.b" as in JSON and in old configurations.
func root(a *hcl.Attribute) string {
	if a == nil {
		return ""
	}
	if text, ok := constant(a.Expr); ok {
		name, _, _ := strings.Cut(text, ".")
		return name
	}
	for expr := a.Expr; ; {
		if index, ok := expr.(*hclsyntax.IndexExpr); ok { // whose key is not constant
			expr = index.Collection
			continue
		}
		traversal, diags := hcl.AbsTraversalForExpr(expr)
		if diags.HasErrors() {
			return ""
		}
		return traversal.RootName()
	}
}

// use adds a block that needs a provider, unless an equal one is there.
func (f *File) use(name string, version Argument, line int) {
	key := usedProvider{brief(name), version}
	if f.used[key] {
		return
	}
	if f.used == nil {
		f.used = map[usedProvider]bool{}
	}
	f.used[key] = true
	f.Uses = append(f.Uses, Use{key.name, version, f.Name, line})
}

// usedProvider is what makes two uses of a file equal.
type usedProvider struct {
	name    string
	version Argument
}

// argument returns an argument of a block. An argument with the value null is as one that is not set.
func argument(content *hcl.BodyContent, name string) (out Argument) {
	a := content.Attributes[name]
	if a == nil {
		return out
	}
	if literal, ok := a.Expr.(*hclsyntax.LiteralValueExpr); ok && literal.Val.IsNull() {
		return out
	}
	out.Set = true
	out.Text, out.Constant = constant(a.Expr)
	return out
}

// constant returns the value of a constant text or number. It evaluates no other expressions, because some take a long time.
func constant(expr hcl.Expression) (string, bool) {
	switch e := expr.(type) {
	case *hclsyntax.ObjectConsKeyExpr:
		return constant(e.Wrapped)
	case *hclsyntax.ParenthesesExpr:
		return constant(e.Expression)
	case *hclsyntax.TemplateWrapExpr:
		return constant(e.Wrapped)
	case *hclsyntax.TemplateExpr:
		for _, part := range e.Parts {
			if _, ok := part.(*hclsyntax.LiteralValueExpr); !ok {
				return "", false
			}
		}
	case *hclsyntax.LiteralValueExpr:
	case hclsyntax.Expression:
		return "", false
	}
	v, diags := expr.Value(nil)
	if diags.HasErrors() || v.IsNull() || !v.IsKnown() {
		return "", false
	}
	if v.Type() != cty.String && v.Type() != cty.Number {
		return "", false
	}
	v, err := convert.Convert(v, cty.String)
	if err != nil || len(v.AsString()) > maxText {
		return "", false
	}
	text := v.AsString()
	if _, native := expr.(hclsyntax.Expression); !native && (strings.Contains(text, "${") || strings.Contains(text, "%{")) {
		return "", false // a template in JSON
	}
	return strings.Clone(text), true
}

// brief truncates a long name, so that it does not keep its file in memory.
func brief(name string) string { return strings.Clone(name[:min(len(name), 200)]) }
