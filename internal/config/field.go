package config

import (
	"reflect"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
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
			required: tag.Get("required") == "true", defaultText: tag.Get("default"),
			flag: tag.Get("flag"), group: tag.Get("group"),
		}
		if f.isBlock {
			f.repeated = f.typ.Kind() == reflect.Slice
			f.typ = f.typ.Elem()
		}
		out = append(out, f)
	}
	return out
}

// orDefault returns the default of an argument in a type of the schema for an argument that is
// left out.
func orDefault[T any](s *string, name string) *string {
	if s != nil {
		return s
	}
	for _, f := range fields(reflect.TypeFor[T]()) {
		if f.name == name {
			return &f.defaultText
		}
	}
	panic("config: " + name + " is not in the schema")
}

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

// body returns the source of a block of the schema.
func body(v reflect.Value) hcl.Body {
	b, _ := v.FieldByName("Body").Interface().(hcl.Body)
	return b
}

// header returns the range of a block's header, or the start of the file.
func header(v reflect.Value) hcl.Range {
	if f := v.FieldByName("Range"); f.IsValid() {
		return f.Interface().(hcl.Range)
	}
	return missing(body(v))
}
