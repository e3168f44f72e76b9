// Package subject defines subjects. A subject is what a repository stores versions of: a provider or a module.
package subject

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/opentofu/svchost"
)

// Kind is the kind of a subject. Its text is the word for people, logs and JSON.
type Kind string

// The kinds of subjects.
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

// Traits describe how the subjects of one kind differ from other subjects.
type Traits struct {
	// Plural is the word for several subjects, also in JSON. Copied is the JSON member that has the results of a copy.
	Plural, Copied string
	// List is the command that lists versions.
	List string
	// Push is the command that stores versions. It contains %s for the address.
	Push string
	// Fetch is the command that stores a version from its origin. It contains %s for the address.
	Fetch string
	// Replace is the command that replaces a stored version.
	Replace string
	// Prefix precedes the path in names of files. It ends in a colon. No hostname contains a colon, so a path with a prefix
	// differs from every path without one.
	Prefix string
	// Page is the first part of the path of a subject's web page.
	Page string
	// Packages means that a version has packages for platforms, and evidence that decides whether the version is served.
	Packages bool
	// Origins means that origins offer the subjects, and that network mirrors and mirror folders can have them.
	Origins bool
	// Mirrors means that OpenTofu's oci_mirror blocks, --include and the variable OCIBRIDGE_TEMPLATE are about the subjects.
	Mirrors bool
	// LeadingV means that the tag of a version may begin with a v. The same version can get another tag later.
	LeadingV bool
}

// table has the traits of every kind.
var table = []struct {
	kind Kind
	Traits
}{
	{Provider, Traits{
		Plural: "providers", Copied: "results", List: "ocibridge list", Push: "ocibridge push '%s@>= 0'", Fetch: "ocibridge push %s@VERSION", Replace: "ocibridge push --force",
		Page: "p", Packages: true, Origins: true, Mirrors: true,
	}},
	{Module, Traits{
		Plural: "modules", Copied: "modules", List: "ocibridge module list", Push: "ocibridge module push FOLDER --as %s@VERSION", Fetch: "ocibridge module push %s@VERSION", Replace: "ocibridge module push --force",
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
	// Parts returns the parts of Path, and "" for parts that the kind does not have. Unlike Path, it allocates nothing.
	Parts() [MaxParts]string
	// Pattern returns the pattern that matches only this address.
	Pattern() Pattern
	// Path returns the address in the form for URLs and storage.
	Path() string
	// String returns the address in the form for people.
	String() string
}

// List converts a list of addresses of one kind to a list of [Address].
func List[A Address](all []A) []Address {
	out := make([]Address, len(all))
	for i, a := range all {
		out[i] = a
	}
	return out
}

// Of returns the addresses of one kind from a list of addresses of all kinds.
func Of[A Address](all []Address) (out []A) {
	for _, a := range all {
		if a, ok := a.(A); ok {
			out = append(out, a)
		}
	}
	return out
}

// ByKind groups a list by the kind of each element's address. The function "of" returns this address.
func ByKind[T any](all []T, of func(T) Address) map[Kind][]T {
	out := map[Kind][]T{}
	for _, t := range all {
		k := of(t).Kind()
		out[k] = append(out[k], t)
	}
	return out
}

// Member returns a JSON object with the address as its only member. The name of the member is the kind.
func Member(a Address) map[Kind]Address { return map[Kind]Address{a.Kind(): a} }

// DisplayHost returns a host of an address in the form for people. Only hosts with Punycode have another form. For the
// others, the conversion would be a tenth of the time of a gateway's answer.
func DisplayHost(h svchost.Hostname) string {
	if !strings.Contains(string(h), "xn--") {
		return string(h)
	}
	return svchost.ForDisplay(string(h))
}

// Attr returns the address as an attribute of a log or a span. The key is the kind.
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
	// Parts returns the number of parts that are not wildcards. Of two patterns that match the same address, the one
	// with more such parts is more specific.
	Parts() int
	// Values returns all parts, with the hostname in Punycode.
	Values() []string
	// ServiceHost returns the host in the pattern. named is false if the host is a wildcard.
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

// Exactly reports whether a pattern matches an address. Unlike Covers, it is case-sensitive.
func Exactly(p Pattern, a Address) bool {
	parts := a.Parts()
	for i, v := range p.Values() {
		if v != Wildcard && v != parts[i] {
			return false
		}
	}
	return a.Kind() == p.Kind()
}

// Overlap reports whether an address can match both patterns.
func Overlap(p, other Pattern) bool {
	values := other.Values()
	for i, v := range p.Values() {
		if p.Kind() != other.Kind() || v != Wildcard && values[i] != Wildcard && !strings.EqualFold(v, values[i]) {
			return false
		}
	}
	return true
}

// SelectorOf selects addresses by patterns. The zero value selects all.
type SelectorOf[P Pattern] struct {
	Include []P // empty selects every address; if all patterns are of one kind, no address of another kind is selected
	Exclude []P // takes precedence over Include
}

// Selector selects addresses of all kinds.
type Selector = SelectorOf[Pattern]

// Selects reports whether the address is included and not excluded.
func (s SelectorOf[P]) Selects(a Address) bool {
	covers := func(p P) bool { return p.Covers(a) }
	return !slices.ContainsFunc(s.Exclude, covers) && (len(s.Include) == 0 || slices.ContainsFunc(s.Include, covers))
}

// Any converts the selector to one for addresses of all kinds, with the same patterns.
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
