// Package subject is about what the versions in a repository are versions of: a provider or a module.
package subject

import (
	"log/slog"
	"slices"
)

// Kind is a kind of subjects. Its text is the word for people, logs and JSON.
type Kind string

// The kinds.
const (
	Provider Kind = "provider"
	Module   Kind = "module"
)

// Address is the address of a subject. It is a provider.Address or a module.Address, so it is comparable.
type Address interface {
	Kind() Kind
	// Hostname returns the registry's hostname in Punycode.
	Hostname() string
	// Namespace returns the part after the hostname.
	Namespace() string
	// Parts returns the parts of Path. The last of them is "" for a provider. Unlike Path, it allocates nothing.
	Parts() [4]string
	// Path returns the address in the form for URLs and storage.
	Path() string
	// String returns the address in the form for people.
	String() string
}

// List returns addresses of one kind among those of all kinds.
func List[A Address](all []A) []Address {
	out := make([]Address, len(all))
	for i, a := range all {
		out[i] = a
	}
	return out
}

// Of returns the addresses of one kind among those of all kinds.
func Of[A Address](all []Address) (out []A) {
	for _, a := range all {
		if a, ok := a.(A); ok {
			out = append(out, a)
		}
	}
	return out
}

// ByKind groups what belongs to addresses by their kind.
func ByKind[T any](all []T, of func(T) Address) map[Kind][]T {
	out := map[Kind][]T{}
	for _, t := range all {
		k := of(t).Kind()
		out[k] = append(out[k], t)
	}
	return out
}

// Member returns a JSON object with the address, under the word for its kind.
func Member(a Address) map[Kind]Address { return map[Kind]Address{a.Kind(): a} }

// Attr returns the address for a log or a span, under the word for its kind.
func Attr(a Address) slog.Attr { return slog.String(string(a.Kind()), a.String()) }

// Pattern matches addresses. It is a provider.Pattern or a module.Pattern, and matches no address of the other kind.
type Pattern interface {
	// Covers reports whether the pattern matches an address.
	Covers(Address) bool
	// Parts returns the number of parts that are not wildcards.
	Parts() int
	// Values returns all parts.
	Values() []string
	// ClientWarning names the clients that refuse addresses matching the pattern. It is "" if no
	// client refuses them.
	ClientWarning() string
}

// Selector selects addresses of all kinds. The zero value selects all.
type Selector struct {
	Include []Pattern // empty selects every address; patterns for one kind alone select nothing of the others
	Exclude []Pattern // takes precedence over Include
}

// Selects reports whether the address is included and not excluded.
func (s Selector) Selects(a Address) bool {
	covers := func(p Pattern) bool { return p.Covers(a) }
	return !slices.ContainsFunc(s.Exclude, covers) && (len(s.Include) == 0 || slices.ContainsFunc(s.Include, covers))
}
