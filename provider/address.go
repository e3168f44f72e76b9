package provider

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/opentofu/registry-address/v2"
	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/hint"
)

// Address is the source address of a provider, such as
// registry.opentofu.org/hashicorp/null. The zero value is no address.
type Address struct {
	host      svchost.Hostname
	namespace string
	typ       string
}

// maxAddressLen bounds what is handed to the address library, in bytes. A hostname has
// at most 253 characters, a namespace or a type 64.
const maxAddressLen = 2048

// tooLong refuses an address of more bytes than any has.
func tooLong(s string) error {
	if len(s) <= maxAddressLen {
		return nil
	}
	return hint.New(fmt.Sprintf("invalid provider address %.80q: it has more than %d bytes", s, maxAddressLen),
		"an address is HOSTNAME/NAMESPACE/TYPE, such as registry.opentofu.org/hashicorp/null")
}

// ParseAddress reads HOSTNAME/NAMESPACE/TYPE. The hostname is never left out:
// hashicorp/null alone is registry.terraform.io/hashicorp/null to Terraform and
// registry.opentofu.org/hashicorp/null to OpenTofu.
func ParseAddress(s string) (Address, error) {
	if err := tooLong(s); err != nil {
		return Address{}, err
	}
	if !utf8.ValidString(s) {
		return Address{}, hint.New(fmt.Sprintf("invalid provider address %q: it is not UTF-8", s), "check how it is written")
	}
	switch parts := strings.Split(s, "/"); len(parts) {
	case 3:
	case 1, 2:
		name := strings.TrimPrefix(s, "/")
		if len(parts) == 1 {
			name = "hashicorp/" + name
		}
		return Address{}, hint.New(
			fmt.Sprintf("provider address %q has no hostname", s),
			"Terraform reads it as registry.terraform.io/%[1]s, OpenTofu as registry.opentofu.org/%[1]s: write the one that you mean", name)
	default:
		return Address{}, hint.New(fmt.Sprintf("invalid provider address %q", s),
			"an address is HOSTNAME/NAMESPACE/TYPE, such as registry.opentofu.org/hashicorp/null")
	}
	p, err := parseSource(s)
	if err != nil {
		return Address{}, err
	}
	if !p.HasKnownNamespace() || p.IsLegacy() {
		return Address{}, hint.New(fmt.Sprintf("invalid provider address %q", s), "write its namespace in full")
	}
	if p.IsBuiltIn() {
		return Address{}, hint.New(fmt.Sprintf("provider %s is built into the clients", s), "leave it out: it has no packages")
	}
	// The host library accepts some names that it cannot show and read again: an
	// address is only what survives both ways.
	if back, err := svchost.ForComparison(svchost.ForDisplay(string(p.Hostname))); err != nil || back != p.Hostname {
		return Address{}, hint.New(fmt.Sprintf("invalid provider address %q: its hostname is not valid", s), "check how its hostname is written")
	}
	return Address{p.Hostname, p.Namespace, p.Type}, nil
}

// parseSource reads an address of three parts as the address library does, and also
// accepts a namespace with underscores.
func parseSource(s string) (regaddr.Provider, error) {
	host, rest, _ := strings.Cut(s, "/")
	namespace, typ, _ := strings.Cut(rest, "/")
	source, placeholder := s, namespace
	if strings.Contains(namespace, "_") {
		var err error
		if namespace, err = parseNamespace(namespace); err != nil {
			return regaddr.Provider{}, hint.New(fmt.Sprintf("invalid provider address %q: invalid provider namespace", s), "the namespace %v", err)
		}
		placeholder = "namespace" // the library checks the other parts
		source = host + "/" + placeholder + "/" + typ
	}
	p, err := regaddr.ParseProviderSource(source)
	if err != nil {
		var perr *regaddr.ParserError
		if errors.As(err, &perr) {
			// The library writes several sentences for a terminal; its summary
			// names the part, its detail what to write instead.
			detail := strings.ReplaceAll(perr.Detail, "/"+placeholder+"/", "/"+namespace+"/")
			return p, hint.New(fmt.Sprintf("invalid provider address %q: %s", s, strings.ToLower(perr.Summary)),
				"%s", strings.Join(strings.Fields(detail), " "))
		}
		return p, fmt.Errorf("invalid provider address %q: %w", s, err)
	}
	if placeholder != namespace {
		p.Namespace = namespace
	}
	return p, nil
}

// underscored matches a namespace with underscores, apart from consecutive dashes.
var underscored = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?$`)

// parseNamespace reads a namespace as Terraform 1.16 does: underscores are accepted
// because organizations of HCP Terraform have them. Besides underscores, such a namespace
// holds ASCII characters only, as those organizations and OCI repositories do. The
// address library, whose rules are those of OpenTofu, reads all other namespaces.
func parseNamespace(s string) (string, error) {
	switch {
	case !strings.Contains(s, "_"):
		return regaddr.ParseProviderPart(s)
	case !underscored.MatchString(s) || strings.Contains(s, "--"):
		return "", errors.New("must contain only letters, digits, dashes and underscores, begin and end with a letter or a digit, and have no consecutive dashes; with underscores, its letters are ASCII letters")
	}
	return strings.ToLower(s), nil
}

// MustParseAddress is [ParseAddress] for constants; it panics on error.
func MustParseAddress(s string) Address {
	a, err := ParseAddress(s)
	if err != nil {
		panic(err)
	}
	return a
}

// AddressFromPath reads the three parts of an address as clients write them
// into a request path: the hostname in Punycode, where [ParseAddress] wants it
// as people write it. Only the canonical form is accepted, so that a provider
// has one path.
func AddressFromPath(hostname, namespace, typ string) (Address, error) {
	if err := tooLong(hostname + "/" + namespace + "/" + typ); err != nil {
		return Address{}, err
	}
	a, err := ParseAddress(svchost.ForDisplay(hostname) + "/" + namespace + "/" + typ)
	if err != nil {
		return Address{}, err
	}
	if a.Hostname() != hostname || a.namespace != namespace || a.typ != typ {
		return Address{}, fmt.Errorf("provider address %s/%s/%s is not in its canonical form %s", hostname, namespace, typ, a.Path())
	}
	return a, nil
}

// AddressFromURL is [AddressFromPath] for the path of a request, in which the hostname
// may also be in Unicode, as [Address.String] writes it. Terraform and OpenTofu send
// Punycode; people, and tools that build URLs of addresses, send Unicode.
func AddressFromURL(hostname, namespace, typ string) (Address, error) {
	written := hostname + "/" + namespace + "/" + typ
	if a, err := ParseAddress(written); err == nil && a.String() == written {
		return a, nil
	}
	return AddressFromPath(hostname, namespace, typ)
}

// Hostname returns the origin's hostname as it is compared, sent and stored: in
// lower case and Punycode, with its port unless that is 443.
func (a Address) Hostname() string { return string(a.host) }

// ServiceHost returns the hostname as service discovery takes it.
func (a Address) ServiceHost() svchost.Hostname { return a.host }

// Namespace returns the second part of the address.
func (a Address) Namespace() string { return a.namespace }

// ClientWarning names the clients that refuse the address; it is "" if there are none.
func (a Address) ClientWarning() string { return PatternFor(a).ClientWarning() }

// Type returns the last part of the address.
func (a Address) Type() string { return a.typ }

// IsZero reports whether a is no address.
func (a Address) IsZero() bool { return a == Address{} }

// String returns the address for people: the hostname in Unicode.
func (a Address) String() string {
	if a.IsZero() {
		return ""
	}
	return svchost.ForDisplay(string(a.host)) + "/" + a.namespace + "/" + a.typ
}

// Path returns the address as clients write it into URLs and as it is stored.
func (a Address) Path() string {
	return a.Hostname() + "/" + a.namespace + "/" + a.typ
}

// MarshalText implements [encoding.TextMarshaler] with [Address.String].
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }
