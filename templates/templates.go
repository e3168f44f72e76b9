// Package templates implements repository_template, the HCL template that maps a provider to
// its OCI repository.
//
// A template can use hostname, namespace and type, but no functions. The rules are those of
// OpenTofu, so both programs can use the same template. If the include patterns of a template
// do not restrict a part of an address to one value, the template must use that part.
// Otherwise two providers would share a repository. [Parse] reports errors that affect every
// provider. [Template.Repository] reports errors that depend on the provider.
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

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// Template maps each provider that its selector selects to a repository. It is immutable.
type Template struct {
	source   string
	expr     hclsyntax.Expression
	selector provider.Selector
}

// symbols are the variables that a template may use.
var symbols = []string{"hostname", "namespace", "type"}

const helpExample = "for example: ghcr.io/acme/providers/${hostname}/${namespace}/${type}"

// Parse parses and checks a template. The template applies to the providers that sel selects.
func Parse(source string, sel provider.Selector) (*Template, error) {
	if ociaddr.HideLogin(source) != source {
		// The parser's error could quote the login.
		return nil, invalid(source, errors.New("it contains a login, or a character that no repository name has"), "leave the login out, and log in with: ocibridge login REGISTRY")
	}
	expr, diags := hclsyntax.ParseTemplate([]byte(source), "repository_template", hcl.InitialPos)
	if diags.HasErrors() {
		return nil, invalid(source, diagsError(diags), helpExample)
	}
	used := map[string]bool{}
	for _, traversal := range expr.Variables() {
		used[traversal.RootName()] = true
	}
	if err := checkSymbols(used, sel); err != nil {
		return nil, invalid(source, err, helpExample)
	}
	t := &Template{source, expr, sel}
	// An evaluation with unknown values finds errors that do not depend on the provider, such
	// as a function call. The evaluation with an ordinary address below shows whether the
	// result is a repository.
	unknown := cty.UnknownVal(cty.String)
	if _, diags := expr.Value(context(unknown, unknown, unknown)); diags.HasErrors() {
		return nil, invalid(source, diagsError(diags), helpExample)
	}
	if _, err := t.evaluate("example.com", "example-namespace", "example-type"); err != nil {
		return nil, invalid(source, err, helpExample)
	}
	return t, nil
}

func checkSymbols(used map[string]bool, sel provider.Selector) error {
	for name := range used {
		if !slices.Contains(symbols, name) {
			return fmt.Errorf("it refers to %q, but only hostname, namespace and type are available", name)
		}
	}
	single := sel.SingleParts()
	for i, name := range symbols {
		if !used[name] && !single[i] {
			return hint.New(fmt.Sprintf("it does not refer to ${%s}, and the include patterns do not name exactly one %[1]s", name),
				"add ${%s} to the template, or include patterns that name one %[1]s", name)
		}
	}
	return nil
}

// Source returns the template as written.
func (t *Template) Source() string { return t.source }

// Selector returns the selector of the template.
func (t *Template) Selector() provider.Selector { return t.selector }

// Selects reports whether the template applies to the provider.
func (t *Template) Selects(a provider.Address) bool { return t.selector.Selects(a) }

// Repository returns the repository of a provider, even if the template does not select the
// provider. If the result is not a repository, the error wraps ErrNoRepository. A hostname
// with a port is one possible reason.
func (t *Template) Repository(a provider.Address) (ociaddr.Repository, error) {
	repo, err := t.evaluate(a.Hostname(), a.Namespace(), a.Type())
	if err != nil {
		if strings.Contains(a.Hostname(), ":") {
			err = hint.Replace(err, "a repository name cannot hold the port of %s: leave ${hostname} out of the template and write the host's name in its place", a.Hostname())
		}
		return ociaddr.Repository{}, fmt.Errorf("repository_template %q for %s: %w: %w", t.source, a, ErrNoRepository, err)
	}
	return repo, nil
}

func (t *Template) evaluate(hostname, namespace, typ string) (ociaddr.Repository, error) {
	val, diags := t.expr.Value(context(cty.StringVal(hostname), cty.StringVal(namespace), cty.StringVal(typ)))
	if diags.HasErrors() {
		return ociaddr.Repository{}, diagsError(diags)
	}
	val, err := convert.Convert(val, cty.String)
	if err != nil || val.IsNull() || !val.IsKnown() {
		return ociaddr.Repository{}, errors.New("it does not yield a string")
	}
	return ociaddr.ParseRepository(val.AsString())
}

func context(hostname, namespace, typ cty.Value) *hcl.EvalContext {
	return &hcl.EvalContext{Variables: map[string]cty.Value{"hostname": hostname, "namespace": namespace, "type": typ}}
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

// Set is an ordered list of templates. The first template that selects a provider applies to
// the provider.
type Set []*Template

// The reasons why a provider has no repository.
var (
	// ErrNotSelected means that no template selects the provider.
	ErrNotSelected = errors.New("no repository template is for this provider")
	// ErrNoRepository means that the result of the template is not a repository.
	ErrNoRepository = errors.New("it yields no repository")
)

// For returns the first template that selects the provider. If no template selects it, the
// error wraps ErrNotSelected.
func (s Set) For(a provider.Address) (*Template, error) {
	for _, t := range s {
		if t.Selects(a) {
			return t, nil
		}
	}
	return nil, hint.Wrap(fmt.Errorf("%s: %w", a, ErrNotSelected),
		"widen the include patterns, or give --template")
}

// Example returns a provider that t selects and that no earlier template in the set selects.
// The template t must be in the set. Example tries only a few common providers. If none of
// them is suitable, it returns the zero address.
func (s Set) Example(t *Template) provider.Address {
	for _, pattern := range t.patterns() {
		e := pattern.Example()
		for _, host := range []string{e.Hostname(), "registry.terraform.io", "registry.example.com"} {
			for _, namespace := range []string{e.Namespace(), "opentofu", "example"} {
				for _, typ := range []string{e.Type(), "random", "example"} {
					a, err := provider.AddressFromPath(host, namespace, typ)
					if err != nil || !pattern.Matches(a) {
						continue
					}
					if first, err := s.For(a); err == nil && first == t {
						return a
					}
				}
			}
		}
	}
	return provider.Address{}
}

// Repository returns the repository of a provider, according to the first template that
// selects the provider. If no template selects it, the error wraps ErrNotSelected.
func (s Set) Repository(a provider.Address) (ociaddr.Repository, error) {
	t, err := s.For(a)
	if err != nil {
		return ociaddr.Repository{}, err
	}
	return t.Repository(a)
}
