package provider

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

// Pattern matches provider addresses part by part. Examples are registry.opentofu.org/*/*,
// registry.opentofu.org/hashicorp/* and */*/*. A part may be the wildcard * only if every
// following part is a wildcard too.
type Pattern struct {
	host      svchost.Hostname
	namespace string
	typ       string
}

const wildcard = subject.Wildcard

// ParsePattern parses a pattern of three parts.
func ParsePattern(s string) (Pattern, error) {
	if strings.Count(s, "/") == 1 {
		return Pattern{}, hint.New(fmt.Sprintf("provider pattern %q has no hostname", s),
			"write registry.opentofu.org/%[1]s or registry.terraform.io/%[1]s, or */*/* for every provider", s)
	}
	return parsePattern(s)
}

// MustParsePattern is like [ParsePattern], but panics on error. It is for constants.
func MustParsePattern(s string) Pattern { return must(ParsePattern(s)) }

// ParsePatternAsOpenTofu parses a pattern as OpenTofu does in its own configuration. The
// hostname of a pattern with two parts is registry.opentofu.org.
func ParsePatternAsOpenTofu(s string) (Pattern, error) {
	if strings.Count(s, "/") == 1 {
		s = string(regaddr.DefaultProviderRegistryHost) + "/" + s
	}
	return parsePattern(s)
}

func parsePattern(s string) (Pattern, error) {
	if !utf8.ValidString(s) {
		return Pattern{}, invalidPattern(s, errors.New("it is not UTF-8"))
	}
	parts := strings.Split(s, "/")
	if len(parts) != 3 {
		return Pattern{}, invalidPattern(s, errors.New("it must have three parts"))
	}
	host := svchost.Hostname(wildcard)
	if parts[0] != wildcard {
		var err error
		if host, err = svchost.ForComparison(parts[0]); err != nil {
			return Pattern{}, invalidPattern(s, fmt.Errorf("hostname %q: %w", parts[0], err))
		}
	}
	namespace, err := partOrWildcard(parts[1], parseNamespace)
	if err != nil {
		return Pattern{}, invalidPattern(s, fmt.Errorf("namespace %q: %w", parts[1], err))
	}
	typ, err := partOrWildcard(parts[2], regaddr.ParseProviderPart)
	if err != nil {
		return Pattern{}, invalidPattern(s, fmt.Errorf("type %q: %w", parts[2], err))
	}
	if host == wildcard && namespace != wildcard || namespace == wildcard && typ != wildcard {
		return Pattern{}, invalidPattern(s, errors.New("a part can be * only if every part after it is"))
	}
	return Pattern{host, namespace, typ}, nil
}

func partOrWildcard(s string, parse func(string) (string, error)) (string, error) {
	if s == wildcard {
		return s, nil
	}
	return parse(s)
}

func invalidPattern(s string, err error) error {
	return hint.Wrap(fmt.Errorf("invalid provider pattern %q: %w", s, err),
		"a pattern is HOSTNAME/NAMESPACE/TYPE, such as registry.opentofu.org/hashicorp/*")
}

// ClientWarning implements [subject.Pattern].
func (p Pattern) ClientWarning() string {
	if !strings.Contains(p.namespace, "_") {
		return ""
	}
	return "OpenTofu refuses a provider address with an underscore in its namespace; Terraform accepts it from 1.16 on"
}

// Matches reports whether the pattern matches the address.
func (p Pattern) Matches(a Address) bool {
	return (p.host == wildcard || p.host == a.host) &&
		(p.namespace == wildcard || p.namespace == a.namespace) &&
		(p.typ == wildcard || p.typ == a.typ)
}

// Kind implements [subject.Pattern].
func (p Pattern) Kind() subject.Kind { return subject.Provider }

// Covers implements [subject.Pattern].
func (p Pattern) Covers(a subject.Address) bool {
	of, ok := a.(Address)
	return ok && p.Matches(of)
}

var _ subject.Pattern = Pattern{}

// Parts returns the number of parts of the pattern that are not wildcards. Of two patterns
// that match the same address, the one with more parts is more specific.
func (p Pattern) Parts() int { return subject.Named(p.Values()) }

// Values returns the parts of the pattern, with the hostname in Punycode.
func (p Pattern) Values() []string { return []string{string(p.host), p.namespace, p.typ} }

// ServiceHost returns the host in the pattern. named reports whether the host is not a wildcard.
func (p Pattern) ServiceHost() (host svchost.Hostname, named bool) {
	return p.host, p.host != wildcard && p.host != ""
}

// String returns the pattern, with the hostname in Unicode.
func (p Pattern) String() string {
	return svchost.ForDisplay(string(p.host)) + "/" + p.namespace + "/" + p.typ
}

// Selector selects providers. The zero value selects all.
type Selector = subject.SelectorOf[Pattern]
