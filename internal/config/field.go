package config

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/pull"
)

// field is an argument or a nested block in a type of the schema.
type field struct {
	index       int
	name        string
	isBlock     bool
	typ         reflect.Type // of a block: its struct
	repeated    bool         // a block that may occur several times
	kind        string       // of an argument: the text of the tag "value"
	required    bool
	defaultText string
	elsewhere   bool // the package that uses the value applies the default
	flag, group string
}

// fields returns the arguments and blocks of a schema type, in order.
func fields(t reflect.Type) []field {
	var out []field
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		name, kind, _ := strings.Cut(tag.Get("hcl"), ",")
		if name == "" || kind == "label" {
			continue
		}
		f := field{
			index: i, name: name, isBlock: kind == "block", typ: t.Field(i).Type, kind: tag.Get("value"),
			required: tag.Get("required") == "true", defaultText: DefaultText(tag.Get("default")),
			flag: tag.Get("flag"), group: tag.Get("group"),
		}
		f.elsewhere = f.defaultText != tag.Get("default")
		if f.isBlock {
			f.repeated = f.typ.Kind() == reflect.Slice
			if f.typ.Kind() != reflect.Struct {
				f.typ = f.typ.Elem()
			}
		}
		out = append(out, f)
	}
	return out
}

// constants are the defaults that the packages that use them state.
func constants() map[string]string {
	return map[string]string{
		"auth.DefaultTimeout":         durationText(auth.DefaultTimeout),
		"catalog.DefaultTagTTL":       durationText(catalog.DefaultTagTTL),
		"catalog.DefaultStaleIfError": durationText(catalog.DefaultStaleIfError),
		"pull.DefaultConcurrent":      strconv.Itoa(pull.DefaultConcurrent),
		"pull.DefaultSpool":           fmt.Sprintf("%dGiB", pull.DefaultSpool>>30),
		"DefaultShutdownTimeout":      durationText(DefaultShutdownTimeout),
	}
}

// DefaultText returns the default that a tag of the schema states or names.
func DefaultText(tag string) string { return cmp.Or(constants()[tag], tag) }

// durationText returns a duration without its units that are 0.
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

// allocate makes room for n blocks in the field of a struct, and returns their structs.
func (f field) allocate(v reflect.Value, n int) []reflect.Value {
	v = v.Field(f.index)
	var out []reflect.Value
	switch {
	case n == 0:
	case f.repeated:
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			out = append(out, v.Index(i))
		}
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(f.typ))
		out = append(out, v.Elem())
	default:
		out = append(out, v)
	}
	return out
}

// labelKind returns the kind of a block's label, which is its type's first field.
func labelKind(t reflect.Type) string { return t.Field(0).Tag.Get("value") }

// opposite converts between the value of a flag and the value of its argument: a "no-" flag
// negates the argument, and others equal it.
func (f field) opposite(text string) string {
	if b, err := strconv.ParseBool(text); err == nil && strings.HasPrefix(f.flag, "no-") {
		return strconv.FormatBool(!b)
	}
	return text
}

// eachField calls f for every field of a type and of the blocks in it. in is the path of the
// enclosing block; "" for the file.
func eachField(t reflect.Type, f func(in string, _ field)) { eachFieldIn("", t, f) }

func eachFieldIn(in string, t reflect.Type, f func(in string, _ field)) {
	for _, each := range fields(t) {
		f(in, each)
		if each.isBlock {
			eachFieldIn(joinPath(in, each.name), each.typ, f)
		}
	}
}

func joinPath(in, name string) string {
	if in == "" {
		return name
	}
	return in + "." + name
}
