// Package query parses command-line arguments that select providers and versions. The
// forms are PROVIDER, PROVIDER@VERSION, PROVIDER@CONSTRAINT, and PATTERN for several
// providers. The package does no I/O, so a query can select a version that does not
// exist.
package query

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// Query selects versions of a provider, or all providers that match a pattern.
type Query struct {
	Provider provider.Address
	Version  provider.Version    // selects this version; zero if no single version is named
	Versions provider.VersionSet // selects the versions that match the constraint; zero if there is no constraint
	Pattern  *provider.Pattern   // selects all providers that match, in place of Provider; nil if the query names one provider
}

// ErrNoVersion means that an argument has no version.
var ErrNoVersion = errors.New("no version given")

// ParseRelease parses PROVIDER@VERSION or PROVIDER@CONSTRAINT.
func ParseRelease(s string) (Query, error) {
	name, versions, ok := strings.Cut(s, "@")
	a, err := parseAddress(name)
	if err != nil {
		return Query{}, err
	}
	q := Query{Provider: a}
	q.Version, q.Versions, err = parseVersions(a.String(), versions, ok)
	if err != nil {
		return Query{}, err
	}
	return q, nil
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

// parseAddress parses the address of a provider. The hint for the address of a module names the commands about modules.
func parseAddress(s string) (provider.Address, error) {
	a, err := provider.ParseAddress(s)
	if err != nil && strings.Count(s, "/") == 3 && provider.FromPasted(s) == "" {
		err = hint.Replace(err, "a provider is HOSTNAME/NAMESPACE/TYPE; if this is a module, see ocibridge module --help")
	}
	return a, err
}

// ParseProvider parses PROVIDER, PROVIDER@VERSION or PROVIDER@CONSTRAINT.
func ParseProvider(s string) (Query, error) {
	if strings.Contains(s, "@") {
		return ParseRelease(s)
	}
	a, err := parseAddress(s)
	return Query{Provider: a}, err
}

// Parse parses PATTERN or PROVIDER and, if versions is set, also PROVIDER@VERSION or
// PROVIDER@CONSTRAINT.
func Parse(s string, versions bool) (Query, error) {
	name, _, versioned := strings.Cut(s, "@")
	switch {
	case versioned && !versions:
		return Query{}, hint.New(fmt.Sprintf("%s: a version makes no sense here", s), "write %s; ocibridge inspect %s shows one version", name, s)
	case versioned && strings.Contains(name, "*"):
		return Query{}, hint.New(fmt.Sprintf("%s: a pattern has no version", s), "name the provider, or leave the version out")
	case strings.Contains(name, "*"):
		p, err := provider.ParsePattern(name)
		return Query{Pattern: &p}, err
	}
	return ParseProvider(s)
}

// All reports whether the query selects every version of its provider.
func (q Query) All() bool { return q.Version.IsZero() && q.Versions.IsZero() }

// Has reports whether the query selects the given version of its provider.
func (q Query) Has(v provider.Version) bool {
	return q.All() || q.Version == v || q.Versions.Has(v)
}

// Addresses returns the providers that the queries name. It ignores queries with a
// pattern.
func Addresses(queries []Query) []provider.Address {
	var out []provider.Address
	for _, q := range queries {
		if q.Pattern == nil {
			out = append(out, q.Provider)
		}
	}
	return out
}
