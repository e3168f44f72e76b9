// Package templates implements repository_template, the HCL template that maps a provider or a
// module to its OCI repository.
//
// Other programs may import this package. Until version 1.0, a change that breaks them needs a new minor version.
//
// The template of providers can use hostname, namespace and type. The template of modules can
// use hostname, namespace, name and system. No template can use functions. For providers, the
// rules are those of OpenTofu, so both programs can use the same template. If the include
// patterns of a template do not restrict a part of an address to one value, the template must
// use that part. Otherwise two providers or modules would share a repository. [Parse] and
// [ParseModule] report errors that affect every address. [Template.Repository] and
// [ModuleTemplate.Repository] report errors that depend on the address.
package templates

import (
	"errors"
	"fmt"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// The reasons why a provider or a module has no repository.
var (
	// ErrNotSelected means that no template selects the address.
	ErrNotSelected = errors.New("no repository template selects this address")
	// ErrNoRepository means that the result of the template is not a repository.
	ErrNoRepository = errors.New("it yields no repository")
)

// Template maps each provider that its selector selects to a repository. It is immutable.
type Template struct {
	expression
	selector provider.Selector
}

// providers are the parts of a provider's address, which its template may use.
var providers = parts{
	names:    []string{"hostname", "namespace", "type"},
	ordinary: []string{"example.com", "example-namespace", "example-type"},
	help:     "for example: ghcr.io/acme/providers/${hostname}/${namespace}/${type}",
}

// Parse parses and checks a template. The template applies to the providers that sel selects.
func Parse(source string, sel provider.Selector) (*Template, error) {
	expr, err := parse(source, providers, sel.SingleParts())
	if err != nil {
		return nil, err
	}
	return &Template{expr, sel}, nil
}

// Selector returns the selector of the template.
func (t *Template) Selector() provider.Selector { return t.selector }

// Selects reports whether the template applies to the provider.
func (t *Template) Selects(a provider.Address) bool { return t.selector.Selects(a) }

// Repository returns the repository of a provider, even if the template does not select the
// provider. If the result is not a repository, the error wraps ErrNoRepository. A hostname
// with a port is one possible reason.
func (t *Template) Repository(a provider.Address) (ociaddr.Repository, error) {
	return t.repository(a.String(), a.Hostname(), a.Namespace(), a.Type())
}

// Set is an ordered list of templates. The first template that selects a provider applies to
// the provider.
type Set []*Template

// For returns the first template that selects the provider. If no template selects it, the
// error wraps ErrNotSelected.
func (s Set) For(a provider.Address) (*Template, error) { return first(s, a) }

// first returns the first template that selects the address.
func first[T interface{ Selects(A) bool }, A fmt.Stringer](set []T, a A) (T, error) {
	for _, t := range set {
		if t.Selects(a) {
			return t, nil
		}
	}
	var none T
	return none, hint.Wrap(fmt.Errorf("%s: %w", a, ErrNotSelected),
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
