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

// parts describes the parts of the addresses that a kind of template maps to repositories.
type parts struct {
	names    []string // the variables that a template may use
	ordinary []string // values that every repository name accepts
	help     string   // an example of a template
}

// expression is the text of a template, parsed. It is immutable.
type expression struct {
	source string
	expr   hclsyntax.Expression
	parts  parts
}

// parse parses and checks the text of a template. Each element of single reports whether the
// include patterns restrict a part to one value.
func parse(source string, parts parts, single []bool) (expression, error) {
	if ociaddr.HideLogin(source) != source {
		// The parser's error could quote the login.
		return expression{}, invalid(source, errors.New("it contains a login, or a character that no repository name has"), "leave the login out, and log in with: ocibridge login REGISTRY")
	}
	expr, diags := hclsyntax.ParseTemplate([]byte(source), "repository_template", hcl.InitialPos)
	if diags.HasErrors() {
		return expression{}, invalid(source, diagsError(diags), parts.help)
	}
	used := map[string]bool{}
	for _, traversal := range expr.Variables() {
		used[traversal.RootName()] = true
	}
	if err := parts.checkUse(used, single); err != nil {
		return expression{}, invalid(source, err, parts.help)
	}
	e := expression{source, expr, parts}
	// An evaluation with unknown values finds errors that do not depend on the address, such
	// as a function call. The evaluation with an ordinary address below shows whether the
	// result is a repository.
	if _, diags := expr.Value(parts.context(func(int) cty.Value { return cty.UnknownVal(cty.String) })); diags.HasErrors() {
		return expression{}, invalid(source, diagsError(diags), parts.help)
	}
	if _, err := e.evaluate(parts.ordinary); err != nil {
		return expression{}, invalid(source, err, parts.help)
	}
	return e, nil
}

// checkUse checks the names that a template uses.
func (p parts) checkUse(used map[string]bool, single []bool) error {
	for name := range used {
		if !slices.Contains(p.names, name) {
			last := len(p.names) - 1
			return fmt.Errorf("it refers to %q, but only %s and %s are available", name, strings.Join(p.names[:last], ", "), p.names[last])
		}
	}
	for i, name := range p.names {
		if !used[name] && !single[i] {
			return hint.New(fmt.Sprintf("it does not refer to ${%s}, and the include patterns do not name exactly one %[1]s", name),
				"add ${%s} to the template, or include patterns that name one %[1]s", name)
		}
	}
	return nil
}

func (p parts) context(value func(i int) cty.Value) *hcl.EvalContext {
	variables := map[string]cty.Value{}
	for i, name := range p.names {
		variables[name] = value(i)
	}
	return &hcl.EvalContext{Variables: variables}
}

// Source returns the template as written.
func (e *expression) Source() string { return e.source }

// repository returns the repository of an address with the given parts. The first part is the
// hostname.
func (e *expression) repository(address string, values ...string) (ociaddr.Repository, error) {
	repo, err := e.evaluate(values)
	if err != nil {
		if hostname := values[0]; strings.Contains(hostname, ":") {
			err = hint.Replace(err, "a repository name cannot hold the port of %s: if this is your gateway itself, leave the port out of the address; for another registry, leave ${hostname} out of the template and write the host's name in its place", hostname)
		}
		return ociaddr.Repository{}, fmt.Errorf("repository_template %q for %s: %w: %w", e.source, address, ErrNoRepository, err)
	}
	return repo, nil
}

func (e *expression) evaluate(values []string) (ociaddr.Repository, error) {
	val, diags := e.expr.Value(e.parts.context(func(i int) cty.Value { return cty.StringVal(values[i]) }))
	if diags.HasErrors() {
		return ociaddr.Repository{}, diagsError(diags)
	}
	val, err := convert.Convert(val, cty.String)
	if err != nil || val.IsNull() || !val.IsKnown() {
		return ociaddr.Repository{}, errors.New("it does not yield a string")
	}
	return ociaddr.ParseRepository(val.AsString())
}

func invalid(source string, err error, help string) error {
	return hint.Wrap(fmt.Errorf("invalid repository_template %q: %w", ociaddr.HideLogin(source), err), "%s", help)
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
