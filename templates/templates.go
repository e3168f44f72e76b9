// Package templates implements repository_template, the HCL template that maps a provider or a
// module to its OCI repository.
//
// Other programs may import this package. Until version 1.0, a change that breaks them needs a new minor version.
//
// The template of providers can use hostname, namespace and type. The template of modules can
// use hostname, namespace, name and system. No template can use functions. For providers, the
// rules are those of OpenTofu, so both programs can use the same template. If the include
// patterns of a template do not restrict a part of an address to one value, the template must
// use that part. Otherwise two providers or modules would share a repository. [Parse] reports
// errors that affect every address. [Template.Repository] reports errors that depend on the address.
package templates

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
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

// kind describes how templates map addresses of one kind. Each list has an element for each part of an address.
type kind struct {
	names    []string   // the variables that a template may use
	ordinary []string   // values that every repository name accepts
	common   [][]string // values that examples have in place of wildcards, the usual one first
	address  func(parts []string) (subject.Address, error)
	// encodes means that parts of an address are encoded with [ociaddr.EncodeComponent] if they would otherwise yield
	// no repository, for example because a name has capitals.
	encodes bool
	help    string // an example of a template
	widen   string // what to do if no template selects an address
}

var hosts = []string{"registry.opentofu.org", "registry.terraform.io", "registry.example.com"}

var kinds = map[subject.Kind]kind{
	subject.Provider: {
		names:    []string{"hostname", "namespace", "type"},
		ordinary: []string{"example.com", "example-namespace", "example-type"},
		common:   [][]string{hosts, {"hashicorp", "opentofu", "example"}, {"null", "random", "example"}},
		address:  func(p []string) (subject.Address, error) { return provider.AddressFromPath(p[0], p[1], p[2]) },
		help:     "for example: ghcr.io/acme/providers/${hostname}/${namespace}/${type}",
		widen:    "widen the include patterns, or give --template",
	},
	subject.Module: {
		names:    []string{"hostname", "namespace", "name", "system"},
		ordinary: []string{"example.com", "example-namespace", "example-name", "examplesystem"},
		common:   [][]string{hosts, {"terraform-aws-modules", "example"}, {"vpc", "example"}, {"aws", "google", "example"}},
		address:  func(p []string) (subject.Address, error) { return module.AddressFromPath(p[0], p[1], p[2], p[3]) },
		encodes:  true,
		help:     "for example: ghcr.io/acme/modules/${hostname}/${namespace}/${name}/${system}",
		widen:    "add a module_mirror block that includes it, or give --template",
	},
}

// Template maps each provider or each module that its selector selects to a repository. It is immutable.
type Template struct {
	kind
	of       subject.Kind
	selector subject.Selector
	source   string
	expr     hclsyntax.Expression
}

// Parse parses and checks a template. The template applies to the providers or modules that sel selects.
func Parse[P subject.Pattern](source string, sel subject.SelectorOf[P]) (*Template, error) {
	var none P
	return New(none.Kind(), source, sel.Any())
}

// New parses and checks a template for one kind. It returns an error if a pattern of the selector is for another kind.
func New(of subject.Kind, source string, sel subject.Selector) (*Template, error) {
	for _, p := range slices.Concat(sel.Include, sel.Exclude) {
		if p.Kind() != of {
			return nil, hint.New(fmt.Sprintf("the pattern %s is for %s, and the template is for %s", p, p.Kind().Traits().Plural, of.Traits().Plural),
				"give each kind a template of its own")
		}
	}
	t := &Template{kind: kinds[of], of: of, selector: sel, source: source}
	if err := t.parse(); err != nil {
		return nil, err
	}
	return t, nil
}

// KindOf returns the kind that a template is for. For each kind, KindOf counts the variables that the template
// uses, and it returns the kind with the most variables.
func KindOf(source string) subject.Kind {
	used := func(of subject.Kind) (n int) {
		for _, name := range kinds[of].names {
			n += min(strings.Count(source, "${"+name+"}"), 1)
		}
		return n
	}
	return slices.MaxFunc(subject.Kinds, func(a, b subject.Kind) int { return used(a) - used(b) })
}

// Whole returns the template that has every part of an address. It begins with a folder for the kind, except for providers.
func Whole(of subject.Kind) string {
	whole := "${" + strings.Join(kinds[of].names, "}/${") + "}"
	if of == subject.Provider {
		return whole
	}
	return of.Traits().Plural + "/" + whole
}

// NamesOf returns the names that only templates of one kind can use, as in "${name} and ${system}".
func NamesOf(of subject.Kind) string {
	return "${" + strings.Join(kinds[of].names[2:], "} and ${") + "}"
}

// Source returns the template as written.
func (t *Template) Source() string { return t.source }

// Selector returns the selector of the template.
func (t *Template) Selector() subject.Selector { return t.selector }

// Selects reports whether the template applies to the address. Include patterns are case-sensitive, because modules whose
// addresses differ only in case are stored separately. Exclude patterns ignore case.
func (t *Template) Selects(a subject.Address) bool {
	exactly := func(p subject.Pattern) bool { return subject.Exactly(p, a) }
	return a.Kind() == t.of && t.selector.Selects(a) && (len(t.selector.Include) == 0 || slices.ContainsFunc(t.selector.Include, exactly))
}

// Repository returns the repository of an address, even if the template does not select the address. If the result is not a
// repository, the error wraps ErrNoRepository. A hostname with a port is one possible reason. The parts of a module's address
// that yield no repository are encoded with [ociaddr.EncodeComponent].
func (t *Template) Repository(a subject.Address) (ociaddr.Repository, error) {
	all := a.Parts()
	parts := all[:len(t.names)]
	repo, err := t.evaluate(parts)
	if err == nil {
		return repo, nil
	}
	encoded := slices.Clone(parts)
	for i := range encoded[1:] {
		encoded[i+1] = ociaddr.EncodeComponent(encoded[i+1])
	}
	if repo, err := t.evaluate(encoded); err == nil && t.encodes {
		return repo, nil
	}
	if hostname := parts[0]; strings.Contains(hostname, ":") {
		err = hint.Replace(err, "a repository name cannot hold the port of %s: if this is your gateway itself, leave the port out of the address; for another registry, leave ${hostname} out of the template and write the host's name in its place", hostname)
	} else if t.encodes {
		err = hint.Replace(err, "a repository name has lower-case letters and digits, joined by single dots, one or two underscores, or dashes: "+
			"give %s a template of its own, with a name of this form in place of the part", a)
	}
	return ociaddr.Repository{}, fmt.Errorf("repository_template %q for %s: %w: %w", t.source, a, ErrNoRepository, err)
}

// HasRepository reports whether the template yields a repository for an ordinary address with the given host. If the
// host has a port, there may be no repository, because a repository name cannot contain a port.
func (t *Template) HasRepository(host string) bool {
	a, err := t.address(append([]string{host}, t.ordinary[1:]...))
	if err == nil {
		_, err = t.Repository(a)
	}
	return err == nil
}

// examples returns, for each include pattern, the values of each part of addresses that the pattern matches.
func (t *Template) examples() (out [][][]string) {
	if len(t.selector.Include) == 0 {
		return [][][]string{t.common}
	}
	for _, p := range t.selector.Include {
		values := slices.Clone(t.common)
		for i, v := range p.Values() {
			if v != subject.Wildcard {
				values[i] = []string{v}
			}
		}
		out = append(out, values)
	}
	return out
}

// Set is an ordered list of templates, of all kinds. The first template that selects an address applies to it.
type Set []*Template

// Of returns the templates of one kind.
func (s Set) Of(kind subject.Kind) (out Set) {
	for _, t := range s {
		if t.of == kind {
			out = append(out, t)
		}
	}
	return out
}

// For returns the first template that selects the address. If no template selects it, the error wraps ErrNotSelected.
func (s Set) For(a subject.Address) (*Template, error) {
	for _, t := range s {
		if t.Selects(a) {
			return t, nil
		}
	}
	return nil, hint.Wrap(fmt.Errorf("%s: %w", a, ErrNotSelected), "%s", kinds[a.Kind()].widen)
}

// Repository returns the repository of an address, according to the first template that selects the address. If no template
// selects it, the error wraps ErrNotSelected.
func (s Set) Repository(a subject.Address) (ociaddr.Repository, error) {
	t, err := s.For(a)
	if err != nil {
		return ociaddr.Repository{}, err
	}
	return t.Repository(a)
}

// Example returns an address that t selects and that no earlier template in the set selects. The template t must be in the
// set. Example tries only a few common addresses. If none of them is suitable, it returns nil.
func (s Set) Example(t *Template) subject.Address {
	for _, values := range t.examples() {
		all := [][]string{nil}
		for _, of := range values {
			var longer [][]string
			for _, parts := range all {
				for _, v := range of {
					longer = append(longer, append(slices.Clone(parts), v))
				}
			}
			all = longer
		}
		for _, parts := range all {
			a, err := t.address(parts)
			if err != nil {
				continue
			}
			if first, err := s.For(a); err == nil && first == t {
				return a
			}
		}
	}
	return nil
}
