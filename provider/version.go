package provider

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/apparentlymart/go-versions/versions"
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

// maxNumber is the largest number in a version, 2^63-1. Clients store larger numbers in
// different ways, or cannot read them.
const maxNumber = "9223372036854775807"

// maxVersionLen is the maximum length of a version in bytes. The tag of a version has at
// most 128 characters, so a longer version cannot be stored.
const maxVersionLen = 128

// ParseVersion parses a version in canonical form, such as 3.2.4, 1.0.0-beta.1 or
// 1.0.0+build.5. An accepted version prints back unchanged.
func ParseVersion(s string) (Version, error) {
	v, err := parseVersion(s)
	if err != nil {
		if loose, ok := LooseVersion(s); ok {
			return Version{}, hint.Wrap(err, "write it as %s", loose)
		}
		if whole, ok := LooseVersion(strings.TrimRight(s, "-+")); ok {
			return Version{}, hint.Wrap(err, "write it as %s, or complete it: a - begins a prerelease, such as -beta.1, and a + build metadata, such as +build.5", whole)
		}
		return Version{}, hint.Wrap(err, "a version is three numbers, such as 3.2.4, optionally with a prerelease (-beta.1) and build metadata (+build.5)")
	}
	return v, nil
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
	// Without the clone, the version would keep the whole request or document with s in
	// memory.
	v, err := versions.ParseVersion(strings.Clone(s))
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

// ErrNumberTooLarge means that a number in a text is larger than that of any [Version].
var ErrNumberTooLarge = errors.New("a number is larger than " + maxNumber)

// ReadByOpenTofu returns the canonical form of the version that OpenTofu's oci_mirror reads
// from a text. OpenTofu accepts more texts than [ParseVersion]. For example, it reads 2 as
// 2.0.0, and 01.2.3 and 1.2.3- as 1.2.3. The error is ErrNumberTooLarge, or the library's error
// for a text that OpenTofu does not accept as a version.
func ReadByOpenTofu(s string) (Version, error) {
	if largeNumber(s) != "" {
		return Version{}, ErrNumberTooLarge // whether the library could read it or not
	}
	v, err := versions.ParseVersion(s)
	if err != nil {
		return Version{}, err
	}
	return Version{v, true}, nil
}

var digits = regexp.MustCompile(`[0-9]+`)

// largeNumber returns the first run of digits in s that is a number beyond maxNumber, or "".
// Digits in a prerelease or in build metadata count too, because the library compares numeric
// parts of prereleases as numbers.
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

// comparePrereleases compares the prereleases of two versions of one release. The result is 0
// only for the same text. go-versions has another order: it puts a prerelease with more
// dot-separated parts after one with fewer, such as alpha.1 after beta.
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

// must panics if err is not nil.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
