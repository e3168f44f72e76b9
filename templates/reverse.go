package templates

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// markers returns texts that replace the parts of an address in a template. The literal text of
// a template is very unlikely to contain a marker.
func (t *Template) markers() []string {
	out := make([]string, len(t.names))
	for i, name := range t.names {
		out[i] = "0" + name + "0" + markerEnd
	}
	return out
}

const markerEnd = "ocibridge0"

// Addresses returns the selected addresses that the template maps to the given repository.
// There may be several if the template joins parts with a character that parts can contain. The
// template ${namespace}-${type} is an example. Parts of an address that the template does not
// use come from the include patterns. In a template with conditions, such as %{ if }, Addresses
// considers only one branch: the branch for an address whose parts equal no text in a
// condition.
func (t *Template) Addresses(repo ociaddr.Repository) (out []subject.Address) {
	markers := t.markers()
	shape, err := t.evaluate(markers)
	if err != nil {
		return nil
	}
	used := shape.String()
	for _, example := range t.examples() {
		found := make([]string, len(markers))
		for i, m := range markers {
			if !strings.Contains(used, m) {
				found[i] = example[i][0]
			}
		}
		match(used, repo.String(), markers, found, func(parts []string) {
			for i, part := range parts {
				if text, ok := ociaddr.DecodeComponent(part); ok && t.encodes && i > 0 {
					parts[i] = text
				}
			}
			a, err := t.address(parts)
			if err != nil || !t.Selects(a) || slices.Contains(out, a) {
				return
			}
			if own, err := t.Repository(a); err == nil && own == repo {
				out = append(out, a)
			}
		})
	}
	slices.SortFunc(out, func(a, b subject.Address) int { return cmp.Compare(a.String(), b.String()) })
	return out
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
func (t *Template) Registry() (ociaddr.Registry, bool) {
	repo, err := t.evaluate(t.markers())
	return repo.Registry, err == nil && !strings.Contains(string(repo.Registry), markerEnd)
}
