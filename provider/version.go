package provider

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apparentlymart/go-versions/versions"
	"github.com/apparentlymart/go-versions/versions/constraints"
	goversion "github.com/hashicorp/go-version"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// Version is one release of a provider in canonical form. It has three numbers of at most
// 2^63-1 each, an optional prerelease, and optional build metadata. The zero value is not a
// valid version.
type Version struct {
	v   versions.Version
	set bool
}

// maxNumber is the largest number in a version, 2^63-1. Clients read larger numbers differently.
const maxNumber = "9223372036854775807"

// maxVersionLen is the maximum length of a version in bytes: its tag cannot be longer.
const maxVersionLen = 128

// ParseVersion parses a version in canonical form, such as 3.2.4, 1.0.0-beta.1 or
// 1.0.0+build.5. An accepted version prints back unchanged.
func ParseVersion(s string) (Version, error) {
	v, err := parseVersion(s)
	if err == nil {
		return v, nil
	}
	if loose, ok := LooseVersion(s); ok {
		return Version{}, hint.Wrap(err, "write it as %s", loose)
	}
	if whole, ok := LooseVersion(strings.TrimRight(s, "-+")); ok {
		return Version{}, hint.Wrap(err, "write it as %s, or complete it: a - begins a prerelease, such as -beta.1, and a + build metadata, such as +build.5", whole)
	}
	return Version{}, hint.Wrap(err, "a version is three numbers, such as 3.2.4, optionally with a prerelease (-beta.1) and build metadata (+build.5)")
}

// MustParseVersion is like [ParseVersion], but panics on error. It is for constants.
func MustParseVersion(s string) Version { return must(ParseVersion(s)) }

func parseVersion(s string) (Version, error) {
	if len(s) > maxVersionLen {
		return Version{}, hint.New(fmt.Sprintf("invalid version %q: longer than %d characters", s[:32]+"...", maxVersionLen),
			"registries store a version as a tag, which has at most %d characters: shorten its prerelease or build metadata", maxVersionLen)
	}
	if n := largeNumber(s); n != "" {
		return Version{}, fmt.Errorf("invalid version %q: %s is larger than %s", s, n, maxNumber)
	}
	v, err := versions.ParseVersion(strings.Clone(s)) // otherwise the version would keep the document with s in memory
	if err != nil {
		return Version{}, fmt.Errorf("invalid version %q: %v", s, err)
	}
	if last := s[len(s)-1:]; v.String() != s && (last == "-" || last == "+") {
		return Version{}, fmt.Errorf("invalid version %q: nothing follows the %s", s, last)
	} else if v.String() != s {
		return Version{}, fmt.Errorf("invalid version %q: not in canonical form", s)
	}
	return Version{v, true}, nil
}

// LooseVersion parses a version in a form that people and release tags use, such as v3.2 or
// 3.2. It returns the canonical form, and reports whether s has such a form.
func LooseVersion(s string) (Version, bool) {
	if len(s) > maxVersionLen || largeNumber(s) != "" {
		return Version{}, false
	}
	loose, err := goversion.NewVersion(strings.TrimSpace(s))
	if err != nil || len(loose.Segments()) > 3 || loose.Prerelease() == "-" { // the result of go-version for 1.2.3-
		return Version{}, false
	}
	v, err := parseVersion(loose.String())
	return v, err == nil
}

// ErrNumberTooLarge means that a number in a text is too large for a [Version].
var ErrNumberTooLarge = errors.New("a number is larger than " + maxNumber)

// ReadByOpenTofu returns the canonical form of the version that OpenTofu's oci_mirror reads
// from a text. OpenTofu accepts more texts than [ParseVersion]. For example, it reads 2 as
// 2.0.0, and 01.2.3 and 1.2.3- as 1.2.3. The error is ErrNumberTooLarge, or the library's error
// for a text that OpenTofu does not accept as a version.
func ReadByOpenTofu(s string) (Version, error) {
	if largeNumber(s) != "" {
		return Version{}, ErrNumberTooLarge // even if the library can read it
	}
	v, err := versions.ParseVersion(s)
	if err != nil {
		return Version{}, err
	}
	return Version{v, true}, nil
}

var digits = regexp.MustCompile(`[0-9]+`)

// largeNumber returns the first run of digits in s that is a number beyond maxNumber, or "". The
// library also compares numeric parts of prereleases as numbers.
func largeNumber(s string) string {
	for _, run := range digits.FindAllString(s, -1) {
		n := strings.TrimLeft(run, "0")
		if len(n) > len(maxNumber) || len(n) == len(maxNumber) && n > maxNumber {
			return run
		}
	}
	return ""
}

// String returns the canonical form; "" for the zero value.
func (v Version) String() string {
	if !v.set {
		return ""
	}
	return v.v.String()
}

// IsZero reports whether v is the zero value.
func (v Version) IsZero() bool { return !v.set }

// IsPrerelease reports whether v has a prerelease part. Clients select a prerelease only if a
// constraint names it exactly.
func (v Version) IsPrerelease() bool { return v.v.Prerelease != "" }

// MarshalText implements [encoding.TextMarshaler].
func (v Version) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler] with [ParseVersion].
func (v *Version) UnmarshalText(text []byte) (err error) {
	*v, err = ParseVersion(string(text))
	return err
}

// Compare returns -1 if v comes before w, 0 if v equals w, and +1 if v comes after w. The
// order is that of Semantic Versioning 2.0.0. Versions that it does not order, because they
// differ only in build metadata or in leading zeros of a prerelease, are ordered by their text.
func (v Version) Compare(w Version) int {
	return cmp.Or(
		cmp.Compare(v.v.Major, w.v.Major), cmp.Compare(v.v.Minor, w.v.Minor), cmp.Compare(v.v.Patch, w.v.Patch),
		comparePrereleases(string(v.v.Prerelease), string(w.v.Prerelease)),
		strings.Compare(string(v.v.Metadata), string(w.v.Metadata)),
	)
}

// comparePrereleases compares the prereleases of two versions with the same three numbers. The
// result is 0 only for the same text. go-versions puts a prerelease with more dot-separated parts
// after one with fewer, such as alpha.1 after beta.
func comparePrereleases(a, b string) int {
	switch {
	case a == b:
		return 0
	case a == "": // the release
		return 1
	case b == "":
		return -1
	}
	return cmp.Or(slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), comparePrereleaseParts), strings.Compare(a, b))
}

// comparePrereleaseParts compares two dot-separated parts of prereleases. Numbers come first,
// in the order of their values. All other parts are compared as text.
func comparePrereleaseParts(a, b string) int {
	aNumber, bNumber := strings.Trim(a, "0123456789") == "", strings.Trim(b, "0123456789") == ""
	switch {
	case aNumber && bNumber:
		a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	case aNumber:
		return -1
	case bNumber:
		return 1
	}
	return strings.Compare(a, b)
}

// SortVersions sorts versions, oldest first.
func SortVersions(vs []Version) { slices.SortFunc(vs, Version.Compare) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

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
	// The conditions are parsed again here. If a VersionSet held them, it would not be
	// comparable.
	conditions, err := constraints.ParseRubyStyleMulti(s.text)
	return err == nil && s.set.Has(release) && !slices.ContainsFunc(conditions, func(c constraints.SelectionSpec) bool { return !meets(v.v, c) })
}

// meets reports whether a prerelease meets a condition in the order of [Version.Compare]. The
// order of go-versions differs, so meets replaces both prereleases by numbers that are in the
// right order.
func meets(v versions.Version, c constraints.SelectionSpec) bool {
	if c.Boundary.Prerelease != "" {
		order := comparePrereleases(string(v.Prerelease), c.Boundary.Prerelease)
		v.Prerelease, c.Boundary.Prerelease = versions.VersionExtra(strconv.Itoa(1+order)), "1"
	}
	return versions.MeetingConstraintsExact(c).Has(v)
}

// IsZero reports whether s is the zero value.
func (s VersionSet) IsZero() bool { return s.text == "" }

// IsNone reports whether s is "< 0.0.0". Users write this constraint if they want no version. Any
// other constraint without a match, such as "> 2, < 1", is probably a mistake.
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

// About holds the source and the publication time of a version, if its origin states them.
type About struct {
	// Source is the URL of the repository with the version's source code; "" if unknown.
	Source string `json:"source,omitempty"`
	// PublishedAt is a time in UTC in the format of RFC 3339; "" if unknown.
	PublishedAt string `json:"published_at,omitempty"`
}

const (
	maxSource = 512 // the maximum length of a repository's URL in bytes
	maxTime   = 64  // the maximum length in bytes of a time, including a fraction of a second and a zone
)

// Normal returns the valid fields, with the time in canonical form.
func (a About) Normal() About {
	var out About
	u, err := url.Parse(a.Source)
	if err == nil && len(a.Source) <= maxSource && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil {
		out.Source = a.Source
	}
	if len(a.PublishedAt) <= maxTime {
		t, err := time.Parse(time.RFC3339, a.PublishedAt)
		if t = t.UTC(); err == nil && 0 < t.Year() && t.Year() <= 9999 {
			out.PublishedAt = t.Format(time.RFC3339)
		}
	}
	return out
}
