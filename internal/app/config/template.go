package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// templateText returns the template in a quoted string of HCL. It decodes the escapes of
// the string, and does not evaluate ${...}. OpenTofu reads the same template from the same
// string.
func templateText(quoted []byte) (string, error) {
	tokens, diags := hclsyntax.LexExpression(quoted, "", hcl.InitialPos)
	if last := len(tokens) - 1; last > 0 && tokens[last].Type == hclsyntax.TokenEOF {
		tokens = tokens[:last]
	}
	if diags.HasErrors() || len(tokens) < 2 || tokens[0].Type != hclsyntax.TokenOQuote || tokens[len(tokens)-1].Type != hclsyntax.TokenCQuote {
		return "", errors.New("it is not a quoted string")
	}
	var out strings.Builder
	depth := 0 // of nested ${ and %{
	for i, t := range tokens[1 : len(tokens)-1] {
		switch t.Type {
		case hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			depth++
		case hclsyntax.TokenTemplateSeqEnd:
			depth--
		case hclsyntax.TokenCQuote:
			if depth == 0 {
				return "", errors.New("it is not one quoted string")
			}
		case hclsyntax.TokenQuotedLit, hclsyntax.TokenStringLit:
			if depth == 0 {
				// strconv.Unquote decodes all escapes of HCL's strings. It keeps $${ and
				// %%{, because they are escapes of templates.
				text, err := strconv.Unquote(`"` + string(t.Bytes) + `"`)
				if err != nil {
					return "", errors.New("it has an escape that HCL does not know")
				}
				out.WriteString(text)
				continue
			}
		}
		if i > 0 { // white space between tokens is part of the expression in ${...}
			out.Write(quoted[tokens[i].Range.End.Byte:t.Range.Start.Byte])
		}
		out.Write(t.Bytes)
	}
	return out.String(), nil
}

// QuoteTemplate returns a template as a quoted string of HCL. templateText is its inverse.
func QuoteTemplate(text string) string {
	var out strings.Builder
	out.WriteByte('"')
	tokens, _ := hclsyntax.LexTemplate([]byte(text), "", hcl.InitialPos)
	depth, last := 0, 0
	for _, t := range tokens {
		out.WriteString(text[last:t.Range.Start.Byte])
		last = t.Range.End.Byte
		switch t.Type {
		case hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			depth++
		case hclsyntax.TokenTemplateSeqEnd:
			depth--
		case hclsyntax.TokenStringLit, hclsyntax.TokenQuotedLit:
			if depth == 0 {
				out.WriteString(escape(string(t.Bytes)))
				continue
			}
		}
		out.Write(t.Bytes)
	}
	out.WriteByte('"')
	return out.String()
}

func escape(s string) string {
	var out strings.Builder
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			out.WriteRune('\\')
			out.WriteRune(r)
		case !unicode.IsPrint(r) && r <= 0xffff:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

const templateHelp = `write the template itself, in one pair of quotes, such as "ghcr.io/acme/${namespace}/${type}": it is kept as it is, so that env, file and heredocs have no place in it`

// template returns the template of an argument. It reports an invalid template, and returns
// "" for it.
func (d *decoder) template(attr *hclsyntax.Attribute) string {
	text, err := templateText(d.source.src[attr.EqualsRange.End.Byte:attr.SrcRange.End.Byte])
	if err == nil && text == "" {
		err = hint.New("it is empty", "for the embedded registry, leave out the block")
	}
	if err != nil {
		d.errorf(attr.Expr.Range(), attr.Name, hint.Wrap(err, "%s", templateHelp))
		return ""
	}
	return text
}
