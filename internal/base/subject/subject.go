// Package subject is about what the versions in a repository are versions of: a provider or a module.
package subject

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/opentofu/svchost"
)

// Kind is a kind of subjects. Its text is the word for people, logs and JSON.
type Kind string

// The kinds.
const (
	Provider Kind = "provider"
	Module   Kind = "module"
)

// Kinds has every kind, in the order in which people see them.
var Kinds = kinds()

func kinds() (out []Kind) {
	for _, row := range table {
		out = append(out, row.kind)
	}
	return out
}

// Traits are how the subjects of one kind differ from those of others.
type Traits struct {
	// Plural is the word for several, also in JSON.
	Plural string
	// List is the command that lists versions.
	List string
	// Push is the command that stores versions. It contains %s for the address.
	Push string
	// Replace is the command that replaces what the tag of a version names.
	Replace string
	// Prefix precedes the path in names of files. It ends in a colon. No hostname contains a colon, so a path with a prefix
	// differs from every path without one.
	Prefix string
	// Page is the first part of the paths of pages.
	Page string
	// Packages means that a version has packages for platforms, and evidence that decides whether the version is served.
	Packages bool
	// Origins means that origins offer the subjects, and that network mirrors and mirror folders can have them.
	Origins bool
	// LeadingV means that the tag of a version may begin with a v. The same version can get another tag later.
	LeadingV bool
}

// table has the traits of every kind.
var table = []struct {
	kind Kind
	Traits
}{
	{Provider, Traits{
		Plural: "providers", List: "ocibridge list", Push: "ocibridge push '%s@>= 0'", Replace: "ocibridge push --force",
		Page: "p", Packages: true, Origins: true,
	}},
	{Module, Traits{
		Plural: "modules", List: "ocibridge module list", Push: "ocibridge module push FOLDER --as %s@VERSION", Replace: "ocibridge module push --force",
		Prefix: "module:", Page: "m", LeadingV: true,
	}},
}

// Traits returns the traits of the kind. It panics for a kind without traits.
func (k Kind) Traits() Traits {
	for i := range table {
		if table[i].kind == k {
			return table[i].Traits
		}
	}
	panic("subject: no traits of " + string(k))
}

// TraitsOf returns the traits of an address's kind.
func TraitsOf(a Address) Traits { return a.Kind().Traits() }

// MaxParts is the maximum number of parts of an address. Those of modules, the longest today, have four.
const MaxParts = 6

// Address is the address of a subject. It is a provider.Address or a module.Address, so it is comparable.
type Address interface {
	Kind() Kind
	// Hostname returns the registry's hostname in Punycode.
	Hostname() string
	// Namespace returns the part after the hostname.
	Namespace() string
	// Parts returns the parts of Path, and "" for those that the kind does not have. Unlike Path, it allocates nothing.
	Parts() [MaxParts]string
	// Pattern returns the pattern that matches only this address.
	Pattern() Pattern
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

// Wildcard is the part of a pattern that matches every value.
const Wildcard = "*"

// Pattern matches addresses of its kind, part by part. It is a provider.Pattern or a module.Pattern.
type Pattern interface {
	fmt.Stringer
	// Kind returns the kind of the addresses. The zero value of a pattern has a kind, too.
	Kind() Kind
	// Covers reports whether the pattern matches an address.
	Covers(Address) bool
	// Parts returns the number of parts that are not wildcards. Of two patterns that match the same address, the one with
	// more parts is more specific.
	Parts() int
	// Values returns all parts, with the hostname in Punycode.
	Values() []string
	// ServiceHost returns the host in the pattern. named reports whether it is not a wildcard.
	ServiceHost() (host svchost.Hostname, named bool)
	// ClientWarning names the clients that refuse addresses matching the pattern. It is "" if no
	// client refuses them.
	ClientWarning() string
}

// Named returns the number of the values of a pattern that are not wildcards.
func Named(values []string) (n int) {
	for _, v := range values {
		if v != Wildcard {
			n++
		}
	}
	return n
}

// Exactly reports whether a pattern matches an address. Unlike Covers, it distinguishes capitals.
func Exactly(p Pattern, a Address) bool {
	parts := a.Parts()
	for i, v := range p.Values() {
		if v != Wildcard && v != parts[i] {
			return false
		}
	}
	return a.Kind() == p.Kind()
}

// SelectorOf selects addresses by patterns. The zero value selects all.
type SelectorOf[P Pattern] struct {
	Include []P // empty selects every address; patterns for one kind alone select nothing of the others
	Exclude []P // takes precedence over Include
}

// Selector selects addresses of all kinds.
type Selector = SelectorOf[Pattern]

// Selects reports whether the address is included and not excluded.
func (s SelectorOf[P]) Selects(a Address) bool {
	covers := func(p P) bool { return p.Covers(a) }
	return !slices.ContainsFunc(s.Exclude, covers) && (len(s.Include) == 0 || slices.ContainsFunc(s.Include, covers))
}

// Any returns the same selector among those for all kinds.
func (s SelectorOf[P]) Any() (out Selector) {
	for _, p := range s.Include {
		out.Include = append(out.Include, p)
	}
	for _, p := range s.Exclude {
		out.Exclude = append(out.Exclude, p)
	}
	return out
}

// IsSingle reports whether the include patterns contain exactly one value for a part. A repository template need not contain
// a placeholder for such a part. Wildcards in other patterns are ignored, as in OpenTofu.
func (s SelectorOf[P]) IsSingle(part int) bool {
	named := map[string]bool{}
	for _, p := range s.Include {
		if v := p.Values()[part]; v != Wildcard {
			named[v] = true
		}
	}
	return len(named) == 1
}
