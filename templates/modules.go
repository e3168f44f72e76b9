package templates

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// ModuleTemplate maps each module that its selector selects to a repository. It is immutable.
type ModuleTemplate struct {
	expression
	selector module.Selector
}

// modules are the parts of a module's address, which its template may use.
var modules = parts{
	names:    []string{"hostname", "namespace", "name", "system"},
	ordinary: []string{"example.com", "example-namespace", "example-name", "examplesystem"},
	help:     "for example: ghcr.io/acme/modules/${hostname}/${namespace}/${name}/${system}",
}

// ParseModule parses and checks a template. The template applies to the modules that sel
// selects.
func ParseModule(source string, sel module.Selector) (*ModuleTemplate, error) {
	expr, err := parse(source, modules, sel.SingleParts())
	if err != nil {
		return nil, err
	}
	return &ModuleTemplate{expr, sel}, nil
}

// Selector returns the selector of the template.
func (t *ModuleTemplate) Selector() module.Selector { return t.selector }

// Selects reports whether the template applies to the module. Include patterns are
// case-sensitive, because modules whose addresses differ only in case are stored separately.
// Exclude patterns ignore case.
func (t *ModuleTemplate) Selects(a module.Address) bool {
	exactly := func(p module.Pattern) bool { return p.MatchesExactly(a) }
	return t.selector.Selects(a) && (len(t.selector.Include) == 0 || slices.ContainsFunc(t.selector.Include, exactly))
}

// Repository returns the repository of a module, even if the template does not select the
// module. If the parts of the address yield no repository, for example because a name has
// capitals, the template gets the parts in the form of [ociaddr.EncodeComponent]. If the
// result is still not a repository, the error wraps ErrNoRepository. A hostname with a port
// is a possible reason.
func (t *ModuleTemplate) Repository(a module.Address) (ociaddr.Repository, error) {
	repo, err := t.repository(a.String(), a.Hostname(), a.Namespace(), a.Name(), a.System())
	if !errors.Is(err, ErrNoRepository) {
		return repo, err
	}
	encode := ociaddr.EncodeComponent
	if repo, err := t.evaluate([]string{a.Hostname(), encode(a.Namespace()), encode(a.Name()), a.System()}); err == nil {
		return repo, nil
	}
	if !strings.Contains(a.Hostname(), ":") {
		err = hint.Replace(err, "a repository name has lower-case letters and digits, joined by single dots, one or two underscores, or dashes: "+
			"give %s a template of its own, with a name of this form in place of the part", a)
	}
	return ociaddr.Repository{}, err
}

// Modules returns the selected modules that the template maps to the given repository. See
// [Template.Providers].
func (t *ModuleTemplate) Modules(repo ociaddr.Repository) []module.Address {
	var out []module.Address
	for _, pattern := range t.patterns() {
		e := pattern.Example()
		t.match(repo, []string{e.Hostname(), e.Namespace(), e.Name(), e.System()}, func(parts []string) {
			for i, part := range parts {
				if text, ok := ociaddr.DecodeComponent(part); ok && i > 0 {
					parts[i] = text
				}
			}
			a, err := module.AddressFromPath(parts[0], parts[1], parts[2], parts[3])
			if err != nil || !t.Selects(a) || slices.Contains(out, a) {
				return
			}
			if own, err := t.Repository(a); err == nil && own == repo {
				out = append(out, a)
			}
		})
	}
	slices.SortFunc(out, func(a, b module.Address) int { return cmp.Compare(a.String(), b.String()) })
	return out
}

// patterns returns the include patterns, or the pattern of all modules if there are none.
func (t *ModuleTemplate) patterns() []module.Pattern {
	if len(t.selector.Include) == 0 {
		return []module.Pattern{module.MustParsePattern("*/*/*/*")}
	}
	return t.selector.Include
}

// ModuleSet is an ordered list of templates. The first template that selects a module applies
// to the module.
type ModuleSet []*ModuleTemplate

// For returns the first template that selects the module. If no template selects it, the error
// wraps ErrNotSelected.
func (s ModuleSet) For(a module.Address) (*ModuleTemplate, error) {
	t, err := first(s, a)
	if err != nil {
		return nil, hint.Replace(err, "add a module_mirror block that includes it, or give --template")
	}
	return t, nil
}

// Example returns a module that t selects and that no earlier template in the set selects. See
// [Set.Example].
func (s ModuleSet) Example(t *ModuleTemplate) module.Address {
	for _, pattern := range t.patterns() {
		e := pattern.Example()
		for _, host := range []string{e.Hostname(), "registry.terraform.io", "registry.example.com"} {
			for _, namespace := range []string{e.Namespace(), "example"} {
				for _, name := range []string{e.Name(), "example"} {
					for _, system := range []string{e.System(), "google", "example"} {
						a, err := module.AddressFromPath(host, namespace, name, system)
						if err != nil || !pattern.MatchesExactly(a) {
							continue
						}
						if first, err := s.For(a); err == nil && first == t {
							return a
						}
					}
				}
			}
		}
	}
	return module.Address{}
}

// Repository returns the repository of a module, according to the first template that selects
// the module. If no template selects it, the error wraps ErrNotSelected.
func (s ModuleSet) Repository(a module.Address) (ociaddr.Repository, error) {
	t, err := s.For(a)
	if err != nil {
		return ociaddr.Repository{}, err
	}
	return t.Repository(a)
}
