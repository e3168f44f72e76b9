package config

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/origins/pull"
)

// Field is an argument or a nested block in a type of the schema.
type Field struct {
	Go          reflect.StructField
	Name        string
	IsBlock     bool
	Type        reflect.Type // the struct of a block
	Repeated    bool         // whether a block can occur several times
	Kind        string       // the tag "value" of an argument
	Required    bool
	Default     string
	Flag, Group string

	elsewhere bool // whether the package that uses the value applies the default
}

// Schema returns the type of a whole file.
func Schema() reflect.Type { return reflect.TypeFor[fileBlock]() }

// Fields returns the arguments and blocks of a schema type, in order.
func Fields(t reflect.Type) []Field {
	var out []Field
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		name, kind, _ := strings.Cut(tag.Get("hcl"), ",")
		if name == "" || kind == "label" {
			continue
		}
		f := Field{
			Go: t.Field(i), Name: name, IsBlock: kind == "block", Type: t.Field(i).Type, Kind: tag.Get("value"),
			Required: tag.Get("required") == "true", Default: cmp.Or(constants[tag.Get("default")], tag.Get("default")),
			Flag: tag.Get("flag"), Group: tag.Get("group"),
		}
		f.elsewhere = f.Default != tag.Get("default")
		if f.IsBlock {
			f.Repeated = f.Type.Kind() == reflect.Slice
			if f.Type.Kind() != reflect.Struct {
				f.Type = f.Type.Elem()
			}
		}
		out = append(out, f)
	}
	return out
}

// Label returns the name of the label of a block, and the kind of the label's text. Both
// results are "" if the block has no label. The label is the first field of the block's
// type.
func Label(t reflect.Type) (name, kind string) {
	tag := t.Field(0).Tag
	name, isLabel := strings.CutSuffix(tag.Get("hcl"), ",label")
	if !isLabel {
		return "", ""
	}
	return name, tag.Get("value")
}

// constants are the values of the constants that "default" tags can name. The keys are
// the names of the constants.
var constants = map[string]string{
	"wire.DefaultTimeout":         durationText(wire.DefaultTimeout),
	"catalog.DefaultTagTTL":       durationText(catalog.DefaultTagTTL),
	"catalog.DefaultStaleIfError": durationText(catalog.DefaultStaleIfError),
	"pull.DefaultConcurrent":      strconv.Itoa(pull.DefaultConcurrent),
	"pull.DefaultSpool":           fmt.Sprintf("%dGiB", pull.DefaultSpool>>30),
	"DefaultShutdownTimeout":      durationText(DefaultShutdownTimeout),
}

// durationText formats a duration without trailing zero units: 5m, not 5m0s.
func durationText(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// allocate sets the field f of the struct v to n empty blocks, and returns their structs.
func (f Field) allocate(v reflect.Value, n int) []reflect.Value {
	v = v.Field(f.Go.Index[0])
	var out []reflect.Value
	switch {
	case n == 0:
	case f.Repeated:
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			out = append(out, v.Index(i))
		}
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(f.Type))
		out = append(out, v.Elem())
	default:
		out = append(out, v)
	}
	return out
}

// opposite converts between the value of a flag and the value of its argument. A flag whose
// name begins with "no-" negates the argument. Any other flag has the same value as its
// argument.
func (f Field) opposite(text string) string {
	if b, err := strconv.ParseBool(text); err == nil && strings.HasPrefix(f.Flag, "no-") {
		return strconv.FormatBool(!b)
	}
	return text
}

// eachField calls f for every field of the schema type t and of the blocks in it. The first
// argument of f is the path of the enclosing block. It is "" at the top level of the file.
func eachField(t reflect.Type, f func(in string, _ Field)) { eachFieldIn("", t, f) }

func eachFieldIn(in string, t reflect.Type, f func(in string, _ Field)) {
	for _, each := range Fields(t) {
		f(in, each)
		if each.IsBlock {
			eachFieldIn(joinPath(in, each.Name), each.Type, f)
		}
	}
}

func joinPath(in, name string) string {
	if in == "" {
		return name
	}
	return in + "." + name
}
