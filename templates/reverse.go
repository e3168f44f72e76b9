package templates

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// markers replace the parts of an address in a template. The literal text of a template is
// very unlikely to contain a marker.
func (p parts) markers() []string {
	out := make([]string, len(p.names))
	for i, name := range p.names {
		out[i] = "0" + name + "0" + markerEnd
	}
	return out
}

const markerEnd = "ocibridge0"

// Providers returns the selected providers that the template maps to the given repository.
// There may be several providers if the template joins parts with a character that parts can
// contain. The template ${namespace}-${type} is an example. Parts of an address that the
// template does not use come from the include patterns. In a template with conditions, such
// as %{ if }, only the branch for providers that no condition names is considered.
func (t *Template) Providers(repo ociaddr.Repository) []provider.Address {
	var out []provider.Address
	for _, pattern := range t.patterns() {
		e := pattern.Example()
		t.match(repo, []string{e.Hostname(), e.Namespace(), e.Type()}, func(parts []string) {
			a, err := provider.AddressFromPath(parts[0], parts[1], parts[2])
			if err != nil || !t.Selects(a) || slices.Contains(out, a) {
				return
			}
			if own, err := t.Repository(a); err == nil && own == repo {
				out = append(out, a)
			}
		})
	}
	slices.SortFunc(out, func(a, b provider.Address) int { return cmp.Compare(a.String(), b.String()) })
	return out
}

// patterns returns the include patterns, or the pattern that matches every provider.
func (t *Template) patterns() []provider.Pattern {
	if len(t.selector.Include) == 0 {
		return []provider.Pattern{provider.MustParsePattern("*/*/*")}
	}
	return t.selector.Include
}

// match finds every address for which the template could give repo, and calls yield with the
// parts of the address. If the template does not use a part, match takes that part from example.
func (e *expression) match(repo ociaddr.Repository, example []string, yield func([]string)) {
	markers := e.parts.markers()
	shape, err := e.evaluate(markers)
	if err != nil {
		return
	}
	used := shape.String()
	found := make([]string, len(markers))
	for i, m := range markers {
		if !strings.Contains(used, m) {
			found[i] = example[i]
		}
	}
	match(used, repo.String(), markers, found, yield)
}

// match calls yield for every way in which s matches shape, with the values of the markers in
// s. The values in found are already known. All occurrences of a marker must have the same
// value.
func match(shape, s string, markers, found []string, yield func([]string)) {
	at, which := len(shape), -1
	for i, m := range markers {
		if j := strings.Index(shape, m); j >= 0 && j < at {
			at, which = j, i
		}
	}
	rest, ok := strings.CutPrefix(s, shape[:at])
	switch {
	case !ok:
		return
	case which < 0:
		if rest == "" {
			yield(found)
		}
		return
	}
	shape = shape[at+len(markers[which]):]
	for end := 1; end <= len(rest); end++ {
		if rest[end-1] == '/' {
			return // parts of an address contain no slash
		}
		if known := found[which]; known == "" || known == rest[:end] {
			next := slices.Clone(found)
			next[which] = rest[:end]
			match(shape, rest[end:], markers, next, yield)
		}
	}
}

// Registry returns the registry of the template's repositories. The bool reports whether the
// registry is the same for all repositories.
func (e *expression) Registry() (ociaddr.Registry, bool) {
	repo, err := e.evaluate(e.parts.markers())
	return repo.Registry, err == nil && !strings.Contains(string(repo.Registry), markerEnd)
}
