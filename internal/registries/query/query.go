// Package query parses command-line arguments that select versions of providers and of
// modules. The forms are ADDRESS, ADDRESS@VERSION, ADDRESS@CONSTRAINT, and PATTERN for
// several addresses. The package does no I/O, so a query can select a version that does not
// exist.
package query

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// Query selects versions of a provider or a module, or everything that matches a pattern.
type Query[A subject.Address] struct {
	Address  A
	Version  provider.Version    // selects this version; zero if no single version is named
	Versions provider.VersionSet // selects the versions that match the constraint; zero if there is no constraint
	Pattern  subject.Pattern     // selects all addresses that match, in place of Address; nil if the query names one address
}

// Form parses the arguments that select providers, or those that select modules.
type Form[A subject.Address] struct {
	address func(string) (A, error)
	pattern func(string) (subject.Pattern, error)
	noun    string
	inspect string // the command that shows one version
}

// Providers parses arguments about providers, and Modules arguments about modules.
var (
	Providers = Form[provider.Address]{parseProvider, patternOf(provider.ParsePattern), "provider", "ocibridge inspect"}
	Modules   = Form[module.Address]{module.ParseAddress, patternOf(module.ParsePattern), "module", "ocibridge module inspect"}
)

func patternOf[P subject.Pattern](parse func(string) (P, error)) func(string) (subject.Pattern, error) {
	return func(s string) (subject.Pattern, error) { return parse(s) }
}

// ErrNoVersion means that an argument has no version.
var ErrNoVersion = errors.New("no version given")

// ParseRelease parses ADDRESS@VERSION or ADDRESS@CONSTRAINT.
func (f Form[A]) ParseRelease(s string) (q Query[A], err error) {
	name, versions, given := strings.Cut(s, "@")
	if q.Address, err = f.address(name); err == nil {
		q.Version, q.Versions, err = parseVersions(q.Address.String(), versions, given)
	}
	return q, err
}

// parseVersions parses the version or the constraint after the @ of an argument. given is false
// if the argument has no @.
func parseVersions(address, versions string, given bool) (v provider.Version, set provider.VersionSet, err error) {
	if !given || strings.TrimSpace(versions) == "" {
		return v, set, hint.Wrap(fmt.Errorf("%s: %w", address, ErrNoVersion), "write %s@VERSION, or %[1]s@'>= 0' for the newest", address)
	}
	if versions == "latest" {
		return v, set, hint.New(fmt.Sprintf("%s: there is no version called latest", address), "write %s@'>= 0' for the newest", address)
	}
	if v, err = provider.ParseVersion(versions); err == nil {
		return v, set, nil
	}
	// If the text looks like a single version, the error of ParseVersion is more useful
	// than the error of ParseConstraint.
	var cerr error
	if set, cerr = provider.ParseConstraint(versions); cerr == nil {
		return v, set, nil
	}
	if !strings.ContainsAny(versions, "=<>~!, ") {
		cerr = err
	}
	return v, set, fmt.Errorf("%s: %w", address, cerr)
}

// parseProvider parses the address of a provider. The hint for the address of a module names the commands about modules.
func parseProvider(s string) (provider.Address, error) {
	a, err := provider.ParseAddress(s)
	if err != nil && strings.Count(s, "/") == 3 && provider.FromPasted(s) == "" {
		err = hint.Replace(err, "a provider is HOSTNAME/NAMESPACE/TYPE; if this is a module, see ocibridge module --help")
	}
	return a, err
}

// ParseOne parses ADDRESS, ADDRESS@VERSION or ADDRESS@CONSTRAINT.
func (f Form[A]) ParseOne(s string) (Query[A], error) {
	if strings.Contains(s, "@") {
		return f.ParseRelease(s)
	}
	a, err := f.address(s)
	return Query[A]{Address: a}, err
}

// Parse parses PATTERN or ADDRESS and, if versions is set, also ADDRESS@VERSION or
// ADDRESS@CONSTRAINT.
func (f Form[A]) Parse(s string, versions bool) (q Query[A], err error) {
	name, _, versioned := strings.Cut(s, "@")
	switch {
	case versioned && !versions:
		return q, hint.New(fmt.Sprintf("%s: a version makes no sense here", s), "write %s; %s %s shows one version", name, f.inspect, s)
	case versioned && strings.Contains(name, "*"):
		return q, hint.New(fmt.Sprintf("%s: a pattern has no version", s), "name the %s, or leave the version out", f.noun)
	case strings.Contains(name, "*"):
		q.Pattern, err = f.pattern(name)
		return q, err
	}
	return f.ParseOne(s)
}

// kinds has the parsers for each kind. The key is the number of parts of an address or pattern. This number alone
// decides the kind, so a pattern for providers never selects modules.
var kinds = map[int]struct {
	query   func(string) (Query[subject.Address], error)
	block   func(string) (Query[subject.Address], error)
	pattern func(string) (subject.Pattern, error)
	path    func(parts []string) (subject.Address, error)
}{
	3: {ofAny(Providers.ParseOne), ofAny(Providers.parseBlock), Providers.pattern, func(p []string) (subject.Address, error) { return provider.AddressFromPath(p[0], p[1], p[2]) }},
	4: {ofAny(Modules.ParseOne), ofAny(Modules.parseBlock), Modules.pattern, func(p []string) (subject.Address, error) { return module.AddressFromPath(p[0], p[1], p[2], p[3]) }},
}

// ofAny returns a method of a form for queries of all kinds.
func ofAny[A subject.Address](parse func(string) (Query[A], error)) func(string) (Query[subject.Address], error) {
	return func(s string) (Query[subject.Address], error) {
		q, err := parse(s)
		return Query[subject.Address]{q.Address, q.Version, q.Versions, q.Pattern}, err
	}
}

func partsOf(s string) int { return strings.Count(s, "/") + 1 }

// ParseEither parses an address of any kind, with or without a version or a constraint.
func ParseEither(s string) (Query[subject.Address], error) { return parseKind(s, false) }

// ParseBlock parses PATTERN or ADDRESS of any kind, without a version.
func ParseBlock(s string) (Query[subject.Address], error) { return parseKind(s, true) }

func (f Form[A]) parseBlock(s string) (Query[A], error) { return f.Parse(s, false) }

func parseKind(s string, block bool) (Query[subject.Address], error) {
	name, _, _ := strings.Cut(s, "@")
	k, ok := kinds[partsOf(name)]
	if !ok {
		k = kinds[3] // its error says what is missing
	}
	parse := k.query
	if block {
		parse = k.block
	}
	q, err := parse(s)
	if err != nil && !ok && partsOf(name) > 3 {
		err = hint.Replace(err, "a provider is HOSTNAME/NAMESPACE/TYPE, and a module HOSTNAME/NAMESPACE/NAME/SYSTEM")
	}
	return q, err
}

// ParsePattern parses a pattern of any kind.
func ParsePattern(s string) (subject.Pattern, error) {
	n := partsOf(s)
	if n == 2 {
		n = 3 // the error names the missing hostname
	}
	if k, ok := kinds[n]; ok {
		return k.pattern(s)
	}
	return nil, hint.New(fmt.Sprintf("invalid pattern %.200q: it must have three parts for providers, or four parts for modules", s),
		"write HOSTNAME/NAMESPACE/TYPE or HOSTNAME/NAMESPACE/NAME/SYSTEM, such as registry.opentofu.org/hashicorp/* or registry.acme.example/platform/*/*")
}

// ParsePath parses an address of any kind in the form that its method Path returns.
func ParsePath(s string) (subject.Address, error) {
	k, ok := kinds[partsOf(s)]
	if !ok {
		return nil, errors.New("neither a provider nor a module")
	}
	return k.path(strings.Split(s, "/"))
}

// All reports whether the query selects every version of its address.
func (q Query[A]) All() bool { return q.Version.IsZero() && q.Versions.IsZero() }

// Has reports whether the query selects the given version of its address.
func (q Query[A]) Has(v provider.Version) bool {
	return q.All() || q.Version == v || q.Versions.Has(v)
}

// Addresses returns the addresses that the queries name. It ignores queries with a pattern.
func Addresses[A subject.Address](queries []Query[A]) (out []A) {
	for _, q := range queries {
		if q.Pattern == nil {
			out = append(out, q.Address)
		}
	}
	return out
}
