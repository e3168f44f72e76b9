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

// Kinds has every kind, in the order in which people see them.
var Kinds = []Kind{Provider, Module}

// Traits are how the subjects of one kind differ from those of others.
type Traits struct {
	// List is the command that lists versions.
	List string
	// Push is the command that stores versions. It contains %s for the address.
	Push string
	// Prefix precedes the path in names of files. It ends in a colon. No hostname contains a colon, so a path with a prefix
	// differs from every path without one.
	Prefix string
	// Packages means that a version has packages for platforms, and evidence that decides whether the version is served.
	Packages bool
	// Origins means that origins offer the subjects, and that network mirrors and mirror folders can have them.
	Origins bool
	// LeadingV means that the tag of a version may begin with a v. The same version can get another tag later.
	LeadingV bool
}

var traits = map[Kind]Traits{
	Provider: {List: "ocibridge list", Push: "ocibridge push '%s@>= 0'", Packages: true, Origins: true},
	Module:   {List: "ocibridge module list", Push: "ocibridge module push FOLDER --as %s@VERSION", Prefix: "module:", LeadingV: true},
}

// TraitsOf returns the traits of an address's kind. It panics for a kind without traits.
func TraitsOf(a Address) Traits {
	t, ok := traits[a.Kind()]
	if !ok {
		panic("subject: no traits of " + string(a.Kind()))
	}
	return t
}

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
