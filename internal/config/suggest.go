package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// clientSettings are settings of the CLI configuration that have no place in
// ours.
var clientSettings = []string{"host", "credentials", "credentials_helper", "plugin_cache_dir", "disable_checkpoint", "provider_meta"}

// unknown puts in the place of HCL's guess, which leaves out what is set
// already, what an unknown name may be meant for.
func (d *decoder) unknown(diag *hcl.Diagnostic) *hcl.Diagnostic {
	if !strings.HasPrefix(diag.Summary, "Unsupported ") || diag.Subject == nil {
		return diag
	}
	name := string(diag.Subject.SliceBytes(d.source.src))
	detail, _, guessed := strings.Cut(diag.Detail, " Did you mean to ") // say it as a block, or as an argument
	if guessed {
		return diag
	}
	detail, _, _ = strings.Cut(detail, " Did you mean ")
	diag.Detail = detail + d.suggestion(name, diag.Subject.Start.Byte)
	return diag
}

// suggestion says what an unknown name at a place may be meant for, if there is
// anything: " Did you mean ...?".
func (d *decoder) suggestion(name string, at int) string {
	t := schemaAt(d.source.body, reflect.TypeFor[fileBlock](), at)
	var here []string
	for _, f := range fields(t) {
		here = append(here, f.name)
	}
	var elsewhere, all []string
	eachField(reflect.TypeFor[fileBlock](), func(in string, f field) {
		all = append(all, f.name)
		if f.name == name && !slices.Contains(elsewhere, in) {
			elsewhere = append(elsewhere, in)
		}
	})
	switch {
	case len(elsewhere) == 1 && elsewhere[0] == "":
		return " It belongs outside of all blocks."
	case len(elsewhere) > 0:
		return fmt.Sprintf(" It belongs in the block %s.", strings.Join(elsewhere, " or "))
	case t == reflect.TypeFor[fileBlock]() && slices.Contains(clientSettings, name):
		return " It belongs in the CLI configuration of OpenTofu and Terraform, where ocibridge reads host, credentials and credentials_helper blocks, too."
	}
	if like := nearest(name, here); like != "" {
		return fmt.Sprintf(" Did you mean %q?", like)
	}
	if like := nearest(name, all); like != "" {
		return fmt.Sprintf(" Did you mean %q?%s", like, d.suggestion(like, at))
	}
	return ""
}

// schemaAt returns the type of the block around a place.
func schemaAt(b *hclsyntax.Body, t reflect.Type, at int) reflect.Type {
	for _, block := range b.Blocks {
		if block.OpenBraceRange.Start.Byte > at || at >= block.CloseBraceRange.End.Byte {
			continue
		}
		for _, f := range fields(t) {
			if f.isBlock && f.name == block.Type {
				return schemaAt(block.Body, f.typ, at)
			}
		}
	}
	return t
}

// nearest returns the name that takes the fewest letters wrong, missing, too many
// or swapped to come to the given one: at most two, and fewer than half of it.
func nearest(name string, names []string) string {
	best, least := "", 3
	if len(name) > maxName {
		return ""
	}
	for _, n := range names {
		if d := distance(name, n); d < least && 2*d < len(name) {
			best, least = n, d
		}
	}
	return best
}

// maxName bounds the names that are compared.
const maxName = 64

// distance is the optimal string alignment distance of two names.
func distance(a, b string) int {
	before, last, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(last[j+1]+1, next[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, last, next = last, next, before
	}
	return last[len(b)]
}
