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
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/gocty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

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
	if strings.HasSuffix(v.Type().Field(0).Tag.Get("hcl"), ",label") {
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
		shown, ok := d.value(v, f, in)
		if !ok {
			continue
		}
		out.settings[f.name] = setting{shown, place(at(body(v), f.name))}
	}
	return out
}

// value converts the value of an argument, if the file sets it, and records the files that it
// names. path is the path of the argument.
func (d *decoder) value(v reflect.Value, f field, path string) (value, bool) {
	attr := attribute(body(v), f.name)
	if attr == nil {
		return value{}, false
	}
	switch f.kind {
	case "secret":
		return valueOf(redacted)
	case "template":
		text, _ := d.templateArgument(body(v), f.name)
		return templateValue(text), true
	}
	x := v.Field(f.index).Interface()
	switch written := x.(type) {
	case *string:
		if written == nil {
			break
		}
		text := d.text(f, *written)
		if f.kind == "file" {
			d.names(path, text, at(body(v), f.name))
		}
		x = text
	case []string:
		if f.kind != "files" {
			break
		}
		names := slices.Clone(written)
		for i, name := range names {
			names[i] = d.env.beside(d.source.name, name)
			d.names(path, names[i], atElement(body(v), f.name, i))
		}
		x = names
	}
	return valueOf(x)
}

// text returns a text as it is shown.
func (d *decoder) text(f field, s string) string {
	switch f.kind {
	case "file", "folder":
		return d.env.beside(d.source.name, s)
	case "sha256":
		return s[:8] + "..." // enough to recognize it
	}
	return s
}

// valueOf converts a value of Go. A nil pointer, list or map is no value.
func valueOf(x any) (value, bool) {
	t, err := gocty.ImpliedType(x)
	if err != nil {
		panic("config: " + err.Error()) // the schema has no such type
	}
	v, err := gocty.ToCtyValue(x, t)
	if err != nil {
		panic("config: " + err.Error())
	}
	return newValue(v), !v.IsNull()
}

func newValue(v cty.Value) value {
	out := value{hcl: string(hclwrite.TokensForValue(v).Bytes()), json: ctyjson.SimpleJSONValue{Value: v}}
	if text, err := convert.Convert(v, cty.String); err == nil && !text.IsNull() {
		out.text = text.AsString()
	}
	return out
}

func textValue(s string) value { return newValue(cty.StringVal(s)) }

func templateValue(s string) value { return value{QuoteTemplate(s), s, ""} }

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
