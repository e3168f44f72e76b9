// Package module defines the addresses of modules, and the patterns that select them. Versions of modules have
// the type [provider.Version].
//
// Other programs may import this package. Until version 1.0, a change that breaks them needs a new minor version.
//
// The values are small and comparable. They are validated when they are created. The result
// of a Parse function prints to a string that parses to an equal value. The rules are those
// of the clients, and come from the clients' library. The package does no I/O.
package module

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/opentofu/registry-address/v2"
	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
)

// Address is the address of a module in a module registry, such as
// registry.opentofu.org/terraform-aws-modules/vpc/aws. The zero value is not a valid address.
type Address struct {
	host      svchost.Hostname
	namespace string
	name      string
	system    string
}

// maxAddressLen is the maximum length in bytes of an address that is given to the address
// library. A hostname has at most 253 characters, each other part at most 64.
const maxAddressLen = 2048

const addressForm = "an address is HOSTNAME/NAMESPACE/NAME/SYSTEM, such as registry.opentofu.org/terraform-aws-modules/vpc/aws"

// ParseAddress parses HOSTNAME/NAMESPACE/NAME/SYSTEM. The hostname is mandatory, because
// Terraform and OpenTofu have different default registries.
func ParseAddress(s string) (Address, error) {
	parts := strings.Split(s, "/")
	switch {
	case len(s) > maxAddressLen:
		return Address{}, hint.New(fmt.Sprintf("invalid module address %.80q: it has more than %d bytes", s, maxAddressLen), addressForm)
	case !utf8.ValidString(s):
		return Address{}, hint.New(fmt.Sprintf("invalid module address %q: it is not UTF-8", s), "check how it is written")
	case strings.Contains(s, "//"):
		address, _, _ := strings.Cut(s, "//")
		return Address{}, hint.New(fmt.Sprintf("invalid module address %q: it names a folder inside the module", s), "name the whole module: %s", address)
	case len(parts) == 3 && strings.Contains(parts[0], "."):
		return Address{}, hint.New(fmt.Sprintf("module address %q has three parts", s), "it may be the address of a provider; %s", addressForm)
	case len(parts) == 3:
		return Address{}, hint.New(fmt.Sprintf("module address %q has no hostname", s),
			"Terraform reads it as registry.terraform.io/%[1]s, OpenTofu as registry.opentofu.org/%[1]s: write the one that you mean", s)
	case len(parts) != 4:
		return Address{}, hint.New(fmt.Sprintf("invalid module address %q", s), addressForm)
	}
	m, err := regaddr.ParseModuleSource(s)
	if err != nil {
		return Address{}, hint.Wrap(fmt.Errorf("invalid module address %q: %w", s, err), addressForm)
	}
	p := m.Package
	// The host library accepts some hostnames although it cannot parse their form for
	// display. An address must be parseable in both forms.
	if back, err := svchost.ForComparison(svchost.ForDisplay(string(p.Host))); err != nil || back != p.Host {
		return Address{}, hint.New(fmt.Sprintf("invalid module address %q: its hostname is not valid", s), "check how its hostname is written")
	}
	return Address{p.Host, p.Namespace, p.Name, p.TargetSystem}, nil
}

// MustParseAddress is like [ParseAddress], but panics on error. It is for constants.
func MustParseAddress(s string) Address { return must(ParseAddress(s)) }

// AddressFromPath parses the four parts of an address in the request path of a client. The
// hostname is in Punycode there, but [ParseAddress] expects Unicode. AddressFromPath accepts
// only the canonical form, so each module has exactly one path.
func AddressFromPath(hostname, namespace, name, system string) (Address, error) {
	written := hostname + "/" + namespace + "/" + name + "/" + system
	if len(written) > maxAddressLen {
		return Address{}, errors.New("module address too long")
	}
	a, err := ParseAddress(svchost.ForDisplay(hostname) + strings.TrimPrefix(written, hostname))
	if err != nil {
		return Address{}, err
	}
	if a.Path() != written {
		return Address{}, fmt.Errorf("module address %s is not in its canonical form %s", written, a.Path())
	}
	return a, nil
}

// AddressFromURL is like [AddressFromPath], but also accepts a hostname in Unicode, as in the
// result of [Address.String]. Clients send Punycode, and people send Unicode.
func AddressFromURL(hostname, namespace, name, system string) (Address, error) {
	written := hostname + "/" + namespace + "/" + name + "/" + system
	if a, err := ParseAddress(written); err == nil && a.String() == written {
		return a, nil
	}
	return AddressFromPath(hostname, namespace, name, system)
}

// Hostname returns the registry's hostname in the form for comparison, requests and storage:
// in lower case and Punycode. The result contains the port if the port is not 443.
func (a Address) Hostname() string { return string(a.host) }

// ServiceHost returns the hostname in the type of the service discovery library.
func (a Address) ServiceHost() svchost.Hostname { return a.host }

// Namespace returns the second part of the address.
func (a Address) Namespace() string { return a.namespace }

// Name returns the third part of the address.
func (a Address) Name() string { return a.name }

// System returns the last part of the address, which usually is the type of a provider.
func (a Address) System() string { return a.system }

// Kind implements [subject.Address].
func (a Address) Kind() subject.Kind { return subject.Module }

// Parts implements [subject.Address].
func (a Address) Parts() [subject.MaxParts]string {
	return [subject.MaxParts]string{string(a.host), a.namespace, a.name, a.system}
}

// Pattern implements [subject.Address].
func (a Address) Pattern() subject.Pattern { return Pattern(a) }

// IsZero reports whether a is the zero value.
func (a Address) IsZero() bool { return a == Address{} }

// String returns the address in the form for people, with the hostname in Unicode.
func (a Address) String() string {
	if a.IsZero() {
		return ""
	}
	return subject.DisplayHost(a.host) + "/" + a.namespace + "/" + a.name + "/" + a.system
}

// Path returns the address in the form for URLs and storage.
func (a Address) Path() string {
	return a.Hostname() + "/" + a.namespace + "/" + a.name + "/" + a.system
}

// MarshalText implements [encoding.TextMarshaler] with [Address.String].
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// must returns value, and panics if err is not nil.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
