package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ocibridge/ocibridge/internal/config"
)

//go:embed intro.md
var intro string

// width is how long a line of the page is at most, where it can be broken.
const width = 118

// schema is the source of the types.
type schema map[string]*ast.StructType

// words are what the page says for values whose name in the tag is not enough.
var words = map[string]string{
	"bool": "true or false", "secret": "text, kept secret", "sha256": "text", "level": "text", "source": "text", "name": "text", "time": "text",
	"patterns": "list of provider patterns", "platforms": "list of platforms", "files": "list of files", "fingerprints": "list of fingerprints",
}

// page writes the reference page from the file that declares the types.
func page(source string) ([]byte, error) {
	file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	types := schema{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			if t, ok := spec.Type.(*ast.StructType); ok {
				types[spec.Name.Name] = t
			}
		}
		return true
	})
	var out bytes.Buffer
	out.WriteString(intro)
	out.WriteString("\n## Outside of all blocks\n\n")
	err = types.block(&out, "fileBlock", "")
	return out.Bytes(), err
}

// entry is an argument, a block or a label: a field of a type.
type entry struct {
	tag            reflect.StructTag
	name, kind     string // of the tag hcl
	doc            string
	typ            string // of a block: its type
	repeated       bool
	flag, variable string
}

func (s schema) entries(typ string) ([]entry, error) {
	t, ok := s[typ]
	if !ok {
		return nil, fmt.Errorf("there is no type %s", typ)
	}
	var out []entry
	for _, f := range t.Fields.List {
		if f.Tag == nil {
			continue
		}
		text, err := strconv.Unquote(f.Tag.Value)
		if err != nil {
			return nil, err
		}
		e := entry{tag: reflect.StructTag(text), doc: strings.Join(strings.Fields(f.Doc.Text()), " ")}
		e.name, e.kind, _ = strings.Cut(e.tag.Get("hcl"), ",")
		if e.name == "" {
			continue
		}
		switch t := f.Type.(type) {
		case *ast.ArrayType:
			e.repeated = true
			e.typ = fmt.Sprint(t.Elt)
		case *ast.StarExpr:
			e.typ = fmt.Sprint(t.X)
		case *ast.Ident:
			e.typ = t.Name
		}
		if e.flag = e.tag.Get("flag"); e.flag != "" {
			e.variable = "OCIBRIDGE_" + strings.ToUpper(strings.ReplaceAll(e.flag, "-", "_"))
		}
		if e.doc == "" && e.kind != "label" {
			return nil, fmt.Errorf("%s.%s has no comment", typ, e.name)
		}
		out = append(out, e)
	}
	return out, nil
}

// block writes the arguments of a block, and then a section for each block in it.
func (s schema) block(out *bytes.Buffer, typ, path string) error {
	entries, err := s.entries(typ)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.kind != "label" && e.kind != "block" {
			e.argument(out)
		}
	}
	for _, e := range entries {
		if e.kind != "block" {
			continue
		}
		inner := e.name
		if path != "" {
			inner = path + "." + e.name
		}
		if err := s.section(out, e, inner); err != nil {
			return err
		}
	}
	return nil
}

func (e entry) argument(out *bytes.Buffer) {
	value := e.tag.Get("value")
	facts := []string{cmp.Or(words[value], value)}
	if e.tag.Get("required") == "true" {
		facts = append(facts, "required")
	}
	if d := config.DefaultText(e.tag.Get("default")); d != "" {
		facts = append(facts, "default `"+d+"`")
	}
	if e.flag != "" {
		facts = append(facts, fmt.Sprintf("flag `--%s`, variable `%s`", e.flag, e.variable))
	}
	text := fmt.Sprintf("`%s` (%s): %s", e.name, strings.Join(facts, "; "), e.doc)
	writeWrapped(out, "- ", "  ", text)
}

func (s schema) section(out *bytes.Buffer, e entry, path string) error {
	// What clients read has no arguments here, and what is written above is not
	// written again.
	if e.typ == "clientBlock" || path != e.name && strings.HasPrefix(e.doc, "As ") {
		writeWrapped(out, "- ", "  ", fmt.Sprintf("`%s {}`: %s", e.name, e.doc))
		return nil
	}
	entries, err := s.entries(e.typ)
	if err != nil {
		return err
	}
	header := e.name
	for _, l := range entries {
		if l.kind == "label" {
			header += fmt.Sprintf(" %q", l.name)
		}
	}
	level := "##"
	if strings.Contains(path, ".") {
		level = "###"
	}
	fmt.Fprintf(out, "\n%s %s\n\n", level, path)
	once := "At most once."
	switch {
	case strings.Contains(e.doc, "May be repeated"):
		once = ""
	case e.repeated:
		once = "May be repeated."
	}
	fmt.Fprintf(out, "    %s { ... }\n\n", header)
	writeWrapped(out, "", "", strings.TrimSpace(e.doc+" "+once))
	out.WriteByte('\n')
	return s.block(out, e.typ, path)
}

// writeWrapped writes a paragraph or list item, broken into lines at blanks but
// those of code.
func writeWrapped(out *bytes.Buffer, first, rest, text string) {
	line, code := first, false
	for i, word := range strings.Split(text, " ") {
		if i > 0 {
			if !code && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
				out.WriteString(line + "\n")
				line = rest
			} else {
				line += " "
			}
		}
		line += word
		if strings.Count(word, "`")%2 == 1 {
			code = !code
		}
	}
	out.WriteString(line + "\n")
}
