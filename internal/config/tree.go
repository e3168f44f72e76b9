package config

import (
	"crypto/tls"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/internal/files"
	"github.com/ocibridge/ocibridge/internal/hint"
)

// block has the settings of a block, or of the top level, as they can be shown: without
// secrets.
type block struct {
	label    string // "" for none
	source   string // "FILE:LINE"
	settings map[string]setting
	blocks   map[string][]*block // by type
}

// setting is the value of an argument.
type setting struct {
	value  value
	source string
}

// value is a value in the forms that people and programs read.
type value struct {
	hcl  string // an expression
	json any
	text string // as a flag takes it; "" for types without flags
}

// tree converts a valid block. It also collects the files that the block names.
func (d *decoder) tree(v reflect.Value, path string) *block {
	out := &block{source: place(header(v)), settings: map[string]setting{}, blocks: map[string][]*block{}}
	if len(labels(v.Type())) > 0 {
		out.label = v.Field(0).String()
	}
	for _, f := range fields(v.Type()) {
		in := joinPath(path, f.name)
		if f.isBlock {
			for _, inner := range blocks(v, f) {
				out.blocks[f.name] = append(out.blocks[f.name], d.tree(inner, in))
			}
			continue
		}
		shown, ok := d.value(v, f)
		if !ok {
			continue
		}
		r := at(body(v), f.name)
		if f.kind == "file" {
			d.names(in, shown.text, r)
		}
		if list, ok := shown.json.([]string); ok && f.kind == "files" {
			for i, name := range list {
				d.names(in, name, atElement(body(v), f.name, i))
			}
		}
		out.settings[f.name] = setting{shown, place(r)}
	}
	return out
}

// value converts the value of an argument, if the file sets it.
func (d *decoder) value(v reflect.Value, f field) (value, bool) {
	attr := attribute(body(v), f.name)
	if attr == nil {
		return value{}, false
	}
	switch f.kind {
	case "secret":
		return textValue(redacted), true
	case "template":
		text, _ := d.templateArgument(body(v), f.name)
		return templateValue(text), true
	}
	switch x := v.Field(f.index).Interface().(type) {
	case *string:
		if x == nil {
			return value{}, false
		}
		s := *x
		switch f.kind {
		case "file", "folder":
			s = d.env.beside(d.source.name, s)
		case "sha256":
			s = s[:8] + "..." // enough to recognize it
		}
		return textValue(s), true
	case *bool:
		if x == nil {
			return value{}, false
		}
		return otherValue(cty.BoolVal(*x), *x), true
	case *int:
		if x == nil {
			return value{}, false
		}
		return otherValue(cty.NumberIntVal(int64(*x)), *x), true
	case *float64:
		if x == nil {
			return value{}, false
		}
		return otherValue(cty.NumberFloatVal(*x), *x), true
	case []string:
		if x == nil {
			return value{}, false
		}
		if x = slices.Clone(x); f.kind == "files" {
			for i := range x {
				x[i] = d.env.beside(d.source.name, x[i])
			}
		}
		return listValue(x), true
	case []int:
		if x == nil {
			return value{}, false
		}
		var all []cty.Value
		for _, n := range x {
			all = append(all, cty.NumberIntVal(int64(n)))
		}
		return otherValue(cty.TupleVal(all), x), true
	case map[string]string:
		if x == nil {
			return value{}, false
		}
		all := map[string]cty.Value{}
		for k, s := range x {
			all[k] = cty.StringVal(s)
		}
		return otherValue(cty.ObjectVal(all), x), true
	}
	panic(fmt.Sprintf("config: %s has the type %s", f.name, v.Field(f.index).Type()))
}

func textValue(s string) value {
	return value{string(hclwrite.TokensForValue(cty.StringVal(s)).Bytes()), s, s}
}

func templateValue(s string) value { return value{QuoteTemplate(s), s, ""} }

func listValue(list []string) value {
	all := []cty.Value{cty.EmptyTupleVal}[:0]
	for _, s := range list {
		all = append(all, cty.StringVal(s))
	}
	return value{string(hclwrite.TokensForValue(cty.TupleVal(all)).Bytes()), list, ""}
}

func otherValue(v cty.Value, json any) value {
	return value{string(hclwrite.TokensForValue(v).Bytes()), json, fmt.Sprint(json)}
}

// fileArgument is an argument that names a file.
type fileArgument struct {
	path, file string
	about      Diagnostic // without its detail
}

// names records a file that an argument names.
func (d *decoder) names(path, file string, r hcl.Range) {
	d.files = append(d.files, fileArgument{path, file, d.source.diagnostic(&hcl.Diagnostic{Summary: "Unusable file", Subject: &r})})
}

// CheckFiles reads login files and the files of the gateway block, and returns diagnostics.
// Parse does not read them, because not every command has the right to.
func (c *Config) CheckFiles(env Environment) []Diagnostic {
	var out []Diagnostic
	content := map[string][]byte{}
	report := func(a fileArgument, err error) {
		a.about.Detail = strings.TrimSpace(fmt.Sprintf("%s: %s %s", a.file, sentence(err.Error()), sentence(hint.Of(err))))
		out = append(out, a.about)
	}
	for _, a := range c.files {
		if strings.HasPrefix(a.path, "registry.") || strings.HasPrefix(a.path, "trust.") {
			continue // read by Parse
		}
		b, err := env.ReadFile(a.file)
		if err != nil {
			report(a, files.Cause(err))
			continue
		}
		content[a.path] = b
		if a.path == "oci_default_credentials.docker_style_config_files" {
			if err := auth.CheckLoginFile(b); err != nil {
				report(a, err)
			}
		}
		cert, key := content["gateway.tls.cert_file"], content["gateway.tls.key_file"]
		if a.path == "gateway.tls.key_file" && cert != nil {
			if _, err := tls.X509KeyPair(cert, key); err != nil {
				report(a, keyPairError(err))
			}
		}
	}
	return out
}
