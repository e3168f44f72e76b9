package module

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
)

// Pattern matches module addresses part by part. Examples are
// registry.opentofu.org/terraform-aws-modules/*/* and */*/*/*. A part may be the wildcard *
// only if every following part is a wildcard too.
type Pattern struct {
	host      svchost.Hostname
	namespace string
	name      string
	system    string
}

const wildcard = subject.Wildcard

// ParsePattern parses a pattern of four parts.
func ParsePattern(s string) (Pattern, error) {
	if len(s) > maxAddressLen || !utf8.ValidString(s) {
		return Pattern{}, invalidPattern(s, errors.New("it is too long, or not UTF-8"))
	}
	parts := strings.Split(s, "/")
	if len(parts) != 4 {
		return Pattern{}, invalidPattern(s, errors.New("it must have four parts"))
	}
	any := slices.Index(parts, wildcard)
	if any < 0 {
		any = len(parts)
	}
	if slices.ContainsFunc(parts[any:], func(part string) bool { return part != wildcard }) {
		return Pattern{}, invalidPattern(s, errors.New("a part can be * only if every part after it is"))
	}
	// The address library checks whole addresses only. These parts are valid in every address.
	whole := slices.Concat(parts[:any], []string{"example.com", "example", "example", "example"}[any:])
	a, err := ParseAddress(strings.Join(whole, "/"))
	if err != nil {
		return Pattern{}, invalidPattern(s, err)
	}
	p := Pattern(a)
	for i, part := range []*string{(*string)(&p.host), &p.namespace, &p.name, &p.system} {
		if i >= any {
			*part = wildcard
		}
	}
	return p, nil
}

// MustParsePattern is like [ParsePattern], but panics on error. It is for constants.
func MustParsePattern(s string) Pattern { return must(ParsePattern(s)) }

func invalidPattern(s string, err error) error {
	return hint.Wrap(fmt.Errorf("invalid module pattern %.200q: %w", s, err),
		"a pattern is HOSTNAME/NAMESPACE/NAME/SYSTEM, such as registry.opentofu.org/terraform-aws-modules/*/*")
}

// Matches reports whether the pattern matches the address, without regard to case: registries serve Azure/naming also
// as azure/naming, so a rule for one spelling must hold for every other. [subject.Exactly] is case-sensitive.
func (p Pattern) Matches(a Address) bool {
	return (p.host == wildcard || p.host == a.host) &&
		(p.namespace == wildcard || strings.EqualFold(p.namespace, a.namespace)) &&
		(p.name == wildcard || strings.EqualFold(p.name, a.name)) &&
		(p.system == wildcard || p.system == a.system)
}

// Kind implements [subject.Pattern].
func (p Pattern) Kind() subject.Kind { return subject.Module }

// Covers implements [subject.Pattern].
func (p Pattern) Covers(a subject.Address) bool {
	of, ok := a.(Address)
	return ok && p.Matches(of)
}

var _ subject.Pattern = Pattern{}

// ClientWarning implements [subject.Pattern]. No client refuses an address.
func (p Pattern) ClientWarning() string { return "" }

// ServiceHost returns the host in the pattern. named reports whether the host is not a
// wildcard.
func (p Pattern) ServiceHost() (host svchost.Hostname, named bool) {
	return p.host, p.host != wildcard && p.host != ""
}

// Parts returns the number of parts of the pattern that are not wildcards. Of two patterns
// that match the same address, the one with more parts is more specific.
func (p Pattern) Parts() int { return subject.Named(p.Values()) }

// Values returns the parts of the pattern, with the hostname in Punycode.
func (p Pattern) Values() []string {
	return []string{string(p.host), p.namespace, p.name, p.system}
}

// String returns the pattern, with the hostname in Unicode.
func (p Pattern) String() string {
	return svchost.ForDisplay(string(p.host)) + "/" + p.namespace + "/" + p.name + "/" + p.system
}

// Selector selects modules. The zero value selects all.
type Selector = subject.SelectorOf[Pattern]
