package query

import (
	"fmt"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// ModuleQuery selects versions of a module, or all modules that match a pattern. Its fields are
// those of [Query].
type ModuleQuery struct {
	Module   module.Address
	Version  provider.Version
	Versions provider.VersionSet
	Pattern  *module.Pattern
}

// ParseEither parses a provider or a module, with or without a version or a constraint. An
// address of four parts is a module. One of the results is nil.
func ParseEither(s string) (*Query, *ModuleQuery, error) {
	name, _, versioned := strings.Cut(s, "@")
	switch {
	case strings.Count(name, "/") != 3:
		q, err := ParseProvider(s)
		if err != nil && strings.Count(name, "/") > 3 {
			err = hint.Replace(err, "a provider is HOSTNAME/NAMESPACE/TYPE, and a module HOSTNAME/NAMESPACE/NAME/SYSTEM")
		}
		return &q, nil, err
	case versioned:
		q, err := ParseModuleRelease(s)
		return nil, &q, err
	}
	a, err := module.ParseAddress(s)
	return nil, &ModuleQuery{Module: a}, err
}

// ParseModuleRelease parses MODULE@VERSION or MODULE@CONSTRAINT.
func ParseModuleRelease(s string) (q ModuleQuery, err error) {
	name, versions, given := strings.Cut(s, "@")
	if q.Module, err = module.ParseAddress(name); err == nil {
		q.Version, q.Versions, err = parseVersions(q.Module.String(), versions, given)
	}
	return q, err
}

// ParseModule parses PATTERN or MODULE and, if versions is set, also MODULE@VERSION or
// MODULE@CONSTRAINT.
func ParseModule(s string, versions bool) (q ModuleQuery, err error) {
	name, _, versioned := strings.Cut(s, "@")
	switch {
	case versioned && !versions:
		return q, hint.New(fmt.Sprintf("%s: a version makes no sense here", s), "write %s; ocibridge module inspect %s shows one version", name, s)
	case versioned && strings.Contains(name, "*"):
		return q, hint.New(fmt.Sprintf("%s: a pattern has no version", s), "name the module, or leave the version out")
	case strings.Contains(name, "*"):
		p, err := module.ParsePattern(name)
		return ModuleQuery{Pattern: &p}, err
	case versioned:
		return ParseModuleRelease(s)
	}
	q.Module, err = module.ParseAddress(name)
	return q, err
}

// Has reports whether the query selects the given version of its module.
func (q ModuleQuery) Has(v provider.Version) bool {
	return Query{Version: q.Version, Versions: q.Versions}.Has(v)
}

// Modules returns the modules that the queries name. It ignores queries with a pattern.
func Modules(queries []ModuleQuery) []module.Address {
	var out []module.Address
	for _, q := range queries {
		if q.Pattern == nil {
			out = append(out, q.Module)
		}
	}
	return out
}
