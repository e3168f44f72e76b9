// Package subject is about what the versions in a repository are versions of: a provider or a module.
package subject

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

// Pattern matches addresses. It is a provider.Pattern or a module.Pattern, and matches no address of the other kind.
type Pattern interface {
	// Covers reports whether the pattern matches an address.
	Covers(Address) bool
	// Parts returns the number of parts that are not wildcards.
	Parts() int
	// Values returns all parts.
	Values() []string
}
