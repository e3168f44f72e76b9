package templates

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// parse sets the expression of a template from its source, and checks it.
func (t *Template) parse() error {
	if ociaddr.HideLogin(t.source) != t.source {
		// The parser's error could quote the login.
		return t.invalid(errors.New("it contains a login, or a character that no repository name has"), "leave the login out, and log in with: ocibridge login REGISTRY")
	}
	expr, diags := hclsyntax.ParseTemplate([]byte(t.source), "repository_template", hcl.InitialPos)
	if diags.HasErrors() {
		return t.invalid(diagsError(diags), t.help)
	}
	t.expr = expr
	used := map[string]bool{}
	for _, traversal := range expr.Variables() {
		used[traversal.RootName()] = true
	}
	if err := t.checkUse(used); err != nil {
		return t.invalid(err, t.help)
	}
	// An evaluation with unknown values finds errors that do not depend on the address, such
	// as a function call. The evaluation with an ordinary address below shows whether the
	// result is a repository.
	if _, diags := expr.Value(t.context(func(int) cty.Value { return cty.UnknownVal(cty.String) })); diags.HasErrors() {
		return t.invalid(diagsError(diags), t.help)
	}
	if _, err := t.evaluate(t.ordinary); err != nil {
		return t.invalid(err, t.help)
	}
	return nil
}

// checkUse checks the names that the template uses.
func (t *Template) checkUse(used map[string]bool) error {
	for name := range used {
		if !slices.Contains(t.names, name) {
			last := len(t.names) - 1
			return fmt.Errorf("it refers to %q, but only %s and %s are available", name, strings.Join(t.names[:last], ", "), t.names[last])
		}
	}
	for i, name := range t.names {
		if !used[name] && !t.selector.IsSingle(i) {
			return hint.New(fmt.Sprintf("it does not refer to ${%s}, and the include patterns do not name exactly one %[1]s", name),
				"add ${%s} to the template, or include patterns that name one %[1]s", name)
		}
	}
	return nil
}

func (t *Template) context(value func(i int) cty.Value) *hcl.EvalContext {
	variables := map[string]cty.Value{}
	for i, name := range t.names {
		variables[name] = value(i)
	}
	return &hcl.EvalContext{Variables: variables}
}

// evaluate returns the repository of an address with the given parts.
func (t *Template) evaluate(values []string) (ociaddr.Repository, error) {
	val, diags := t.expr.Value(t.context(func(i int) cty.Value { return cty.StringVal(values[i]) }))
	if diags.HasErrors() {
		return ociaddr.Repository{}, diagsError(diags)
	}
	val, err := convert.Convert(val, cty.String)
	if err != nil || val.IsNull() || !val.IsKnown() {
		return ociaddr.Repository{}, errors.New("it does not yield a string")
	}
	return ociaddr.ParseRepository(val.AsString())
}

func (t *Template) invalid(err error, help string) error {
	return hint.Wrap(fmt.Errorf("invalid repository_template %q: %w", ociaddr.HideLogin(t.source), err), "%s", help)
}

// diagsError returns the first error in diags, with a message on one line. The message omits
// the position, because nearly all templates have a single line.
func diagsError(diags hcl.Diagnostics) error {
	for _, d := range diags {
		if d.Severity == hcl.DiagError {
			return fmt.Errorf("%s: %s", strings.ToLower(d.Summary[:1])+d.Summary[1:], strings.Join(strings.Fields(d.Detail), " "))
		}
	}
	return diags
}
