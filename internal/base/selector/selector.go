// Package selector selects the addresses of providers or modules by patterns. An address has several parts. A pattern
// has a value or the [Wildcard] for each part.
package selector

import "slices"

// Wildcard is the part of a pattern that matches every value.
const Wildcard = "*"

// Pattern matches addresses of type A part by part.
type Pattern[A any] interface {
	Matches(A) bool
	// Values returns the parts of the pattern. All patterns of one type have the same number of parts.
	Values() []string
}

// Selector selects addresses. The zero value selects all.
type Selector[A any, P Pattern[A]] struct {
	Include []P // empty selects every address
	Exclude []P // takes precedence over Include
}

// Selects reports whether the address is included and not excluded.
func (s Selector[A, P]) Selects(a A) bool {
	matches := func(p P) bool { return p.Matches(a) }
	return !slices.ContainsFunc(s.Exclude, matches) &&
		(len(s.Include) == 0 || slices.ContainsFunc(s.Include, matches))
}

// SingleParts reports, for each part, whether the include patterns contain exactly one value. A repository template need
// not contain a placeholder for such a part. Wildcards in other patterns are ignored, as in OpenTofu.
func (s Selector[A, P]) SingleParts() []bool {
	var none P
	single := make([]bool, len(none.Values()))
	for i := range single {
		named := map[string]bool{}
		for _, p := range s.Include {
			if v := p.Values()[i]; v != Wildcard {
				named[v] = true
			}
		}
		single[i] = len(named) == 1
	}
	return single
}

// Parts returns the number of parts of a pattern that are not wildcards. Of two patterns that match the same address,
// the one with more parts is more specific.
func Parts[A any](p Pattern[A]) int {
	n := 0
	for _, v := range p.Values() {
		if v != Wildcard {
			n++
		}
	}
	return n
}
