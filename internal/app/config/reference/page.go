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
	"strings"
	"unicode/utf8"

	"github.com/ocibridge/ocibridge/internal/app/config"
)

//go:embed intro.md
var intro string

// width is the maximum length of a line of the page, unless the line cannot be broken.
const width = 118

// words describes the kinds of values whose names in the tag are not clear enough for the
// page.
var words = map[string]string{
	"bool": "true or false", "unsigned": "true, false or `\"where-clients-do\"`", "secret": "text, kept secret", "sha256": "text", "level": "text", "source": "text", "name": "text", "time": "text",
	"patterns": "list of provider patterns", "platforms": "list of platforms", "files": "list of files", "fingerprints": "list of fingerprints",
}

// docs maps "TYPE.FIELD" to the comment of the field.
type docs map[string]string

// page returns the reference page. The arguments come from the schema. Their descriptions
// come from the comments in source, the Go file that declares the schema.
func page(source string) ([]byte, error) {
	file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	comments := docs{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		for _, f := range spec.Type.(*ast.StructType).Fields.List {
			comments[spec.Name.Name+"."+f.Names[0].Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
		}
		return false
	})
	var out bytes.Buffer
	out.WriteString(intro)
	out.WriteString("\n## Outside of all blocks\n\n")
	err = comments.block(&out, config.Schema(), "")
	return out.Bytes(), err
}

// block writes the arguments of a block, and then a section for each block in it.
func (d docs) block(out *bytes.Buffer, t reflect.Type, path string) error {
	fields := config.Fields(t)
	for _, f := range fields {
		doc := d[t.Name()+"."+f.Go.Name]
		switch {
		case doc == "":
			return fmt.Errorf("%s.%s has no comment", t.Name(), f.Name)
		case !f.IsBlock:
			argument(out, f, doc)
		}
	}
	for _, f := range fields {
		if !f.IsBlock {
			continue
		}
		if err := d.section(out, f, d[t.Name()+"."+f.Go.Name], path); err != nil {
			return err
		}
	}
	return nil
}

func argument(out *bytes.Buffer, f config.Field, doc string) {
	facts := []string{cmp.Or(words[f.Kind], f.Kind)}
	if f.Required {
		facts = append(facts, "required")
	}
	if f.Default != "" {
		facts = append(facts, "default `"+f.Default+"`")
	}
	if f.Flag != "" {
		variable := "OCIBRIDGE_" + strings.ToUpper(strings.ReplaceAll(f.Flag, "-", "_"))
		facts = append(facts, fmt.Sprintf("flag `--%s`, variable `%s`", f.Flag, variable))
	}
	writeWrapped(out, "- ", "  ", fmt.Sprintf("`%s` (%s): %s", f.Name, strings.Join(facts, "; "), doc))
}

func (d docs) section(out *bytes.Buffer, f config.Field, doc, path string) error {
	// A block that only clients read has no arguments in the schema. A block whose comment
	// refers to another block needs no section of its own.
	if len(config.Fields(f.Type)) == 0 || path != "" && strings.HasPrefix(doc, "As ") {
		writeWrapped(out, "- ", "  ", fmt.Sprintf("`%s {}`: %s", f.Name, doc))
		return nil
	}
	header, level, once := f.Name, "##", "At most once."
	if label, _ := config.Label(f.Type); label != "" {
		header += fmt.Sprintf(" %q", label)
	}
	if path != "" {
		path += "."
		level = "###"
	}
	switch {
	case strings.Contains(doc, "May be repeated"):
		once = ""
	case f.Repeated:
		once = "May be repeated."
	}
	fmt.Fprintf(out, "\n%s %s%s\n\n    %s { ... }\n\n", level, path, f.Name, header)
	writeWrapped(out, "", "", strings.TrimSpace(doc+" "+once))
	out.WriteByte('\n')
	return d.block(out, f.Type, path+f.Name)
}

// writeWrapped writes a paragraph or list item. It breaks lines at spaces, except in code.
// The first line begins with first, and each further line begins with rest.
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
