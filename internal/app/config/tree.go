package config

import (
	"crypto/tls"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/gocty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// block holds the settings of a block, or of the top level of the file. Secrets are
// redacted. Its settings and blocks are in the order of the schema.
type block struct {
	name, label string
	path        string // the names of the enclosing blocks and of this block, joined by dots; "" if it is not in the configuration file
	index       int    // the position among repeated blocks without labels; -1 for other blocks
	source      string // "FILE:LINE"; "" if only its arguments have sources
	settings    []setting
	blocks      []*block

	body   *hclsyntax.Body // nil for a block that is not in the configuration file
	header hcl.Range
}

// setting is the value of an argument.
type setting struct {
	name string
	value
	source string
}

func (b *block) setting(name string) (setting, bool) {
	i := slices.IndexFunc(b.settings, func(s setting) bool { return s.name == name })
	if i < 0 {
		return setting{}, false
	}
	return b.settings[i], true
}

// has reports whether an argument has a value.
func (b *block) has(name string) bool { _, ok := b.setting(name); return ok }

// isEmpty reports whether an argument is an empty list.
func (b *block) isEmpty(name string) bool { s, ok := b.setting(name); return ok && s.hcl == "[]" }

// inner returns the nested blocks with the given name.
func (b *block) inner(name string) []*block {
	var out []*block
	for _, inner := range b.blocks {
		if inner.name == name {
			out = append(out, inner)
		}
	}
	return out
}

// at returns the range of an argument's value, or of the start of the block if the argument
// is not set.
func (b *block) at(name string) hcl.Range {
	if attr := b.body.Attributes[name]; attr != nil {
		return attr.Expr.Range()
	}
	return b.body.MissingItemRange()
}

// atElement returns the range of the element with index i in a list. It returns the range
// of the whole value if the element is not written out in the file.
func (b *block) atElement(name string, i int) hcl.Range {
	if attr := b.body.Attributes[name]; attr != nil {
		if list, ok := attr.Expr.(*hclsyntax.TupleConsExpr); ok && i < len(list.Exprs) {
			return list.Exprs[i].Range()
		}
	}
	return b.at(name)
}

// add adds an argument with the value x. It does nothing if x is a nil pointer, list or
// map.
func (b *block) add(name string, x any, source string) {
	if v, ok := valueOf(x); ok {
		b.settings = append(b.settings, setting{name, v, source})
	}
}

// value is the value of an argument in three forms. hcl is for people, json is for
// programs, and text is for flags.
type value struct {
	hcl  string // an expression
	json any
	text string // as on the command line; "" for types without flags
}

// valueOf converts a Go value. The bool is false for a nil pointer, list or map.
func valueOf(x any) (value, bool) {
	if v, ok := x.(cty.Value); ok {
		return newValue(v), !v.IsNull()
	}
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
	about      Diagnostic // the diagnostic to report if the file is unusable; its Detail is empty
}

// CheckFiles reads the login files, the key of the sign block, and the files of the gateway block, and returns a
// diagnostic for each unusable file. Parse does not read these files, because the user of
// another command may have no access to them.
func (c *Config) CheckFiles(env Environment) []Diagnostic {
	var out []Diagnostic
	content := map[string][]byte{}
	var certificate fileArgument
	report := func(a fileArgument, err error) {
		a.about.Detail = strings.TrimSpace(fmt.Sprintf("%s: %s %s", a.file, sentence(err.Error()), sentence(hint.Of(err))))
		out = append(out, a.about)
	}
	for _, a := range c.files {
		if strings.HasPrefix(a.path, "registry.") || strings.HasPrefix(a.path, "trust.") {
			continue // Parse has already read the file
		}
		b, err := env.ReadFile(a.file)
		if err != nil {
			report(a, files.Cause(err))
			continue
		}
		content[a.path] = b
		if a.path == "gateway.tls.cert_file" {
			certificate = a
		}
		mode := fs.FileMode(0)
		if env.Mode != nil {
			if mode, err = env.Mode(a.file); err != nil {
				report(a, files.Cause(err))
				continue
			}
		}
		if a.path == "oci_default_credentials.docker_style_config_files" {
			if err := login.CheckFile(b); err != nil {
				report(a, err)
			}
		}
		if a.path == "gateway.capability_key_file" {
			if _, err := access.ParseKeys(b); err != nil {
				report(a, err)
			}
			if err := access.CheckMode(a.file, mode); err != nil {
				report(a, err)
			}
		}
		cert, key := content["gateway.tls.cert_file"], content["gateway.tls.key_file"]
		if (a.path == "gateway.tls.key_file" || a.path == "sign.key") && mode.Perm()&0o007 != 0 {
			// serve accepts the key, because a user who made the folder private may have chosen
			// this mode.
			warning := a
			warning.about.Severity = SeverityWarning
			report(warning, hint.New(fmt.Sprintf("its mode is %04o, so other users can read the key", mode.Perm()), "run chmod o-rwx %s", a.file))
		}
		if a.path == "sign.key" {
			if err := env.checkSigningKey(b); err != nil {
				report(a, err)
			}
		}
		if a.path == "gateway.tls.key_file" && cert != nil {
			pair, err := tls.X509KeyPair(cert, key)
			switch {
			case err != nil:
				report(a, keyPairError(err))
			case time.Now().After(pair.Leaf.NotAfter):
				report(certificate, hint.New("the certificate has expired on "+pair.Leaf.NotAfter.Format(time.DateOnly), "renew it"))
			}
		}
	}
	return out
}
