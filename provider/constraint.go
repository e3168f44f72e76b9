package provider

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/apparentlymart/go-versions/versions"
	"github.com/apparentlymart/go-versions/versions/constraints"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// maxConstraintLen is the maximum length of a constraint in bytes.
const maxConstraintLen = 1024

// VersionSet is a parsed version constraint, such as "~> 3.2".
type VersionSet struct {
	set  versions.Set
	text string
}

// ParseConstraint parses a version constraint as clients do. A constraint is a list of
// conditions that are separated by commas. A trailing comma is allowed. A condition is an
// operator (=, !=, >, >=, <, <= or ~>) and a version. The operator = may be omitted. A
// prerelease is in the set only if a condition names it exactly. An empty constraint is an
// error. The constraint ">= 0" matches every release.
func ParseConstraint(s string) (VersionSet, error) {
	const help = `a constraint is written as in required_providers, such as "~> 3.2" or ">= 3.0, < 4.0"`
	switch {
	case s == "":
		return VersionSet{}, hint.New("empty version constraint", "%s", help)
	case len(s) > maxConstraintLen:
		return VersionSet{}, hint.New(fmt.Sprintf("version constraint is longer than %d characters", maxConstraintLen), "%s", help)
	}
	if n := largeNumber(s); n != "" {
		return VersionSet{}, fmt.Errorf("invalid version constraint %q: %s is larger than %s", s, n, maxNumber)
	}
	if suffixed.MatchString(s) {
		if _, err := ParseVersion(s); err != nil {
			return VersionSet{}, err // clients would parse the constraint 1.2.3- as 1.2.3
		}
	}
	spec, err := constraints.ParseRubyStyleMulti(s)
	if err != nil {
		err = fmt.Errorf("invalid version constraint %q: %v", s, err)
		if v, ok := LooseVersion(s); ok {
			return VersionSet{}, hint.Wrap(err, "write it as %s", v)
		}
		return VersionSet{}, hint.Wrap(err, "%s", help)
	}
	return VersionSet{versions.MeetingConstraints(spec), s}, nil
}

// suffixed matches a single version with the start of a prerelease or of build metadata.
var suffixed = regexp.MustCompile(`^\d+\.\d+\.\d+[-+][^,]*$`)

// String returns the constraint as written.
func (s VersionSet) String() string { return s.text }

// Has reports whether v meets the constraint.
func (s VersionSet) Has(v Version) bool { return s.text != "" && v.set && s.set.Has(v.v) }

// HasPrerelease reports whether v is a prerelease that meets the constraint, even if no
// condition names v. The release that v precedes must meet the constraint too. For example,
// 4.0.0-beta1 does not meet "< 4.0.0".
func (s VersionSet) HasPrerelease(v Version) bool {
	if s.text == "" || !v.IsPrerelease() {
		return false
	}
	release := v.v
	release.Prerelease, release.Metadata = "", ""
	// The conditions are parsed again, because with them a VersionSet would not be comparable.
	conditions, err := constraints.ParseRubyStyleMulti(s.text)
	return err == nil && s.set.Has(release) && !slices.ContainsFunc(conditions, func(c constraints.SelectionSpec) bool { return !meets(v.v, c) })
}

// meets reports whether a prerelease meets a condition, in the order of [Version.Compare]. It
// replaces both prereleases by numbers in the same order, because go-versions does not order
// prereleases correctly.
func meets(v versions.Version, c constraints.SelectionSpec) bool {
	if c.Boundary.Prerelease != "" {
		order := comparePrereleases(string(v.Prerelease), c.Boundary.Prerelease)
		v.Prerelease, c.Boundary.Prerelease = versions.VersionExtra(strconv.Itoa(1+order)), "1"
	}
	return versions.MeetingConstraintsExact(c).Has(v)
}

// IsZero reports whether s is the zero value.
func (s VersionSet) IsZero() bool { return s.text == "" }

// IsNone reports whether s is "< 0.0.0", by which a user says that no version is wanted. Any other
// constraint without a match, such as "> 2, < 1", is probably a mistake.
func (s VersionSet) IsNone() bool { return none.MatchString(s.text) }

var none = regexp.MustCompile(`^ *< *0(\.0){0,2} *,? *$`)

// Matches returns the versions that meet the constraint, oldest first.
func (s VersionSet) Matches(vs []Version) []Version {
	var out []Version
	for _, v := range vs {
		if s.Has(v) {
			out = append(out, v)
		}
	}
	SortVersions(out)
	return out
}
