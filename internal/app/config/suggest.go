package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// clientSettings are the names of settings that belong in the CLI configuration, and have no
// equivalent in ocibridge.hcl.
var clientSettings = []string{"host", "credentials", "credentials_helper", "plugin_cache_dir", "disable_checkpoint", "provider_meta"}

// unknown replaces the suggestion in HCL's diagnostic about an unknown name. HCL itself
// does not suggest names that are already set.
func (d *decoder) unknown(diag *hcl.Diagnostic) *hcl.Diagnostic {
	if !strings.HasPrefix(diag.Summary, "Unsupported ") || diag.Subject == nil {
		return diag
	}
	name := string(diag.Subject.SliceBytes(d.source.src))
	detail, _, guessed := strings.Cut(diag.Detail, " Did you mean to ") // HCL has noticed that the name is a block instead of an argument, or the reverse
	if guessed {
		return diag
	}
	detail, _, _ = strings.Cut(detail, " Did you mean ")
	diag.Detail = detail + d.suggestion(name, diag.Subject.Start.Byte)
	return diag
}

// suggestion returns sentences about the name that the user probably meant, or about the
// block where the name belongs. An example is " Did you mean ...?". The result is "" if
// there is no suggestion. at is the byte offset of the unknown name.
func (d *decoder) suggestion(name string, at int) string {
	t := schemaAt(d.source.body, Schema(), at)
	var here []string
	for _, f := range Fields(t) {
		here = append(here, f.Name)
	}
	var elsewhere, all []string
	eachField(Schema(), func(in string, f Field) {
		all = append(all, f.Name)
		if f.Name == name && !slices.Contains(elsewhere, in) {
			elsewhere = append(elsewhere, in)
		}
	})
	switch {
	case len(elsewhere) == 1 && elsewhere[0] == "":
		return " It belongs outside of all blocks."
	case len(elsewhere) > 0:
		if elsewhere[0] == "" { // the schema begins with the arguments outside of all blocks
			return fmt.Sprintf(" It belongs outside of all blocks, or in the block %s.", strings.Join(elsewhere[1:], " or "))
		}
		return fmt.Sprintf(" It belongs in the block %s.", strings.Join(elsewhere, " or "))
	case t == Schema() && slices.Contains(clientSettings, name):
		return " It belongs in the CLI configuration of OpenTofu and Terraform, where ocibridge reads host, credentials and credentials_helper blocks, too."
	}
	if like := hint.Nearest(name, here); like != "" {
		return fmt.Sprintf(" Did you mean %q?", like)
	}
	if like := hint.Nearest(name, all); like != "" {
		return fmt.Sprintf(" Did you mean %q?%s", like, d.suggestion(like, at))
	}
	return ""
}

// schemaAt returns the schema type of the innermost block around a byte offset. t is the
// type of the body b.
func schemaAt(b *hclsyntax.Body, t reflect.Type, at int) reflect.Type {
	for _, block := range b.Blocks {
		if block.OpenBraceRange.Start.Byte > at || at >= block.CloseBraceRange.End.Byte {
			continue
		}
		for _, f := range Fields(t) {
			if f.IsBlock && f.Name == block.Type {
				return schemaAt(block.Body, f.Type, at)
			}
		}
	}
	return t
}
