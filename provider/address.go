// Package provider defines the basic types of the project: provider addresses, versions and
// version constraints, platforms, package hashes, and include and exclude patterns.
//
// Other programs may import this package. Until version 1.0, a change that breaks them needs a new minor version.
//
// The values are small and comparable. They are validated and normalised when they are
// created. The result of a Parse function prints to a string that parses to an equal value.
// The rules come from the libraries of the clients, Terraform and OpenTofu. The checks are
// stricter where those libraries panic, or accept texts that they never write.
//
// The package does no I/O. [H1] and [CheckZip] read a zip from the reader that the caller
// provides.
package provider

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/opentofu/registry-address/v2"
	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
)

// Address is the source address of a provider, such as
// registry.opentofu.org/hashicorp/null. The zero value is not a valid address.
type Address struct {
	host      svchost.Hostname
	namespace string
	typ       string
}

// maxAddressLen is the maximum length of an address in bytes. A hostname has at most 253
// characters, a namespace or a type at most 64.
const maxAddressLen = 2048

func tooLong(s string) error {
	if len(s) <= maxAddressLen {
		return nil
	}
	return hint.New(fmt.Sprintf("invalid provider address %.80q: it has more than %d bytes", s, maxAddressLen),
		"an address is HOSTNAME/NAMESPACE/TYPE, such as registry.opentofu.org/hashicorp/null")
}

// ParseAddress parses HOSTNAME/NAMESPACE/TYPE. The hostname is mandatory, because
// hashicorp/null alone means registry.terraform.io/hashicorp/null to Terraform and
// registry.opentofu.org/hashicorp/null to OpenTofu.
func ParseAddress(s string) (Address, error) {
	if err := tooLong(s); err != nil {
		return Address{}, err
	}
	if !utf8.ValidString(s) {
		return Address{}, hint.New(fmt.Sprintf("invalid provider address %q: it is not UTF-8", s), "check how it is written")
	}
	if a := FromPasted(s); a != "" {
		return Address{}, hint.New(fmt.Sprintf("invalid provider address %q", s), "write it as %s", a)
	}
	switch parts := strings.Split(s, "/"); len(parts) {
	case 3:
	case 1, 2:
		if host := parts[0]; strings.ContainsAny(host, ".:") {
			return Address{}, hint.New(fmt.Sprintf("provider address %q is not complete", s),
				"write %s/NAMESPACE/TYPE. Arguments that may be patterns take %[1]s/*/* and %[1]s/NAMESPACE/*, too", host)
		}
		name := strings.TrimPrefix(s, "/")
		if len(parts) == 1 {
			name = "hashicorp/" + name
		}
		return Address{}, hint.New(fmt.Sprintf("provider address %q has no hostname", s),
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
	// The host library accepts some hostnames although it cannot parse their form for
	// display. An address must be parseable in both forms.
	if back, err := svchost.ForComparison(svchost.ForDisplay(string(p.Hostname))); err != nil || back != p.Hostname {
		return Address{}, hint.New(fmt.Sprintf("invalid provider address %q: its hostname is not valid", s), "check how its hostname is written")
	}
	return Address{p.Hostname, p.Namespace, p.Type}, nil
}

// FromPasted returns the provider address in the URL of a registry's page or document, such as
// registry.terraform.io/providers/hashicorp/null/latest. The URL may lack its https://. For any other text, even an
// address, FromPasted returns "".
func FromPasted(s string) string {
	rest, isURL := strings.CutPrefix(s, "https://")
	rest, _, _ = strings.Cut(rest, "?")
	rest, _, _ = strings.Cut(rest, "#")
	parts := strings.Split(strings.TrimSuffix(rest, "/"), "/")
	if parts[0] == "search.opentofu.org" {
		parts[0] = "registry.opentofu.org"
	}
	switch {
	case len(parts) >= 5 && parts[1] == "v1" && parts[2] == "providers":
		parts = append(parts[:1], parts[3:5]...)
	case len(parts) >= 4 && (parts[1] == "providers" || parts[1] == "provider"):
		parts = append(parts[:1], parts[2:4]...)
	case !isURL || len(parts) != 3:
		return ""
	}
	a := strings.Join(parts, "/")
	if _, err := parseSource(a); err != nil {
		return ""
	}
	return a
}

// parseSource parses an address of three parts like the address library, but also accepts a
// namespace with underscores.
func parseSource(s string) (regaddr.Provider, error) {
	host, rest, _ := strings.Cut(s, "/")
	namespace, typ, _ := strings.Cut(rest, "/")
	source, placeholder := s, namespace
	if strings.Contains(namespace, "_") {
		var err error
		if namespace, err = parseNamespace(namespace); err != nil {
			return regaddr.Provider{}, hint.New(fmt.Sprintf("invalid provider address %q: invalid provider namespace", s), "the namespace %v", err)
		}
		placeholder = "namespace" // so that the library checks the other parts
		source = host + "/" + placeholder + "/" + typ
	}
	p, err := regaddr.ParseProviderSource(source)
	if perr, ok := errors.AsType[*regaddr.ParserError](err); ok {
		// The library's message has several sentences for a terminal. Its summary names
		// the invalid part, and its detail says how to correct it.
		detail := strings.ReplaceAll(perr.Detail, "/"+placeholder+"/", "/"+namespace+"/")
		return p, hint.New(fmt.Sprintf("invalid provider address %q: %s", s, strings.ToLower(perr.Summary)),
			"%s", strings.Join(strings.Fields(detail), " "))
	}
	if err != nil {
		return p, fmt.Errorf("invalid provider address %q: %w", s, err)
	}
	if placeholder != namespace {
		p.Namespace = namespace
	}
	return p, nil
}

// underscored matches a namespace with underscores, and also consecutive dashes, which are not
// allowed.
var underscored = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?$`)

// parseNamespace parses a namespace like Terraform 1.16, which accepts underscores because
// organizations of HCP Terraform may have them. With underscores, its letters must be ASCII, as
// in the names of those organizations and of OCI repositories. The address library, which has
// the rules of OpenTofu, parses all other namespaces.
func parseNamespace(s string) (string, error) {
	switch {
	case !strings.Contains(s, "_"):
		return regaddr.ParseProviderPart(s)
	case !underscored.MatchString(s) || strings.Contains(s, "--"):
		return "", errors.New("must contain only letters, digits, dashes and underscores, begin and end with a letter or a digit, and have no consecutive dashes; with underscores, its letters are ASCII letters")
	}
	return strings.ToLower(s), nil
}

// MustParseAddress is like [ParseAddress], but panics on error. It is for constants.
func MustParseAddress(s string) Address { return must(ParseAddress(s)) }

// AddressFromPath parses the three parts of an address in the request path of a client, where
// the hostname is in Punycode. It accepts only the canonical form, so each provider has exactly
// one path.
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

// AddressFromURL is like [AddressFromPath], but also accepts a hostname in Unicode, as in the result of
// [Address.String]. People send this form, and so do tools that build URLs from addresses.
func AddressFromURL(hostname, namespace, typ string) (Address, error) {
	written := hostname + "/" + namespace + "/" + typ
	if a, err := ParseAddress(written); err == nil && a.String() == written {
		return a, nil
	}
	return AddressFromPath(hostname, namespace, typ)
}

// Hostname returns the origin's hostname in the form for comparison, requests and storage:
// in lower case and Punycode. The result contains the port if the port is not 443.
func (a Address) Hostname() string { return string(a.host) }

// ServiceHost returns the hostname in the type of the service discovery library.
func (a Address) ServiceHost() svchost.Hostname { return a.host }

// Namespace returns the second part of the address.
func (a Address) Namespace() string { return a.namespace }

// ClientWarning names the clients that refuse the address. It is "" if there are none.
func (a Address) ClientWarning() string { return Pattern(a).ClientWarning() }

// Type returns the last part of the address.
func (a Address) Type() string { return a.typ }

// Kind implements [subject.Address].
func (a Address) Kind() subject.Kind { return subject.Provider }

// Parts implements [subject.Address].
func (a Address) Parts() [subject.MaxParts]string {
	return [subject.MaxParts]string{string(a.host), a.namespace, a.typ}
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
	return subject.DisplayHost(a.host) + "/" + a.namespace + "/" + a.typ
}

// Path returns the address in the form for URLs and storage.
func (a Address) Path() string { return a.Hostname() + "/" + a.namespace + "/" + a.typ }

// MarshalText implements [encoding.TextMarshaler] with [Address.String].
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }
