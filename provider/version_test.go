package provider

import (
	"slices"
	"strings"
	"testing"

	"github.com/apparentlymart/go-versions/versions"
	"github.com/apparentlymart/go-versions/versions/constraints"
	goversion "github.com/hashicorp/go-version"
	"golang.org/x/mod/semver"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

func TestParseVersion(t *testing.T) {
	for name, tc := range map[string]struct {
		in   string
		ok   bool
		hint string // a part of the hint; "" means any
	}{
		"plain":                         {in: "3.2.4", ok: true},
		"zero":                          {in: "0.0.1", ok: true},
		"prerelease":                    {in: "1.0.0-beta.1", ok: true},
		"build":                         {in: "1.0.0+build.5", ok: true},
		"prerelease and build":          {in: "1.0.0-rc1+build.5", ok: true},
		"prerelease with leading zero":  {in: "1.2.3-beta.01", ok: true}, // clients accept it
		"largest number":                {in: "9223372036854775807.0.0", ok: true},
		"number too large":              {in: "9223372036854775808.0.0"},
		"prerelease number too large":   {in: "1.0.0-9223372036854775808"},
		"four numbers":                  {in: "1.2.3.4"},
		"two numbers":                   {in: "1.2", hint: "write it as 1.2.0"},
		"one number":                    {in: "1", hint: "write it as 1.0.0"},
		"leading v":                     {in: "v1.2.3", hint: "write it as 1.2.3"},
		"leading zero":                  {in: "01.2.3", hint: "write it as 1.2.3"},
		"empty prerelease":              {in: "1.2.3-", hint: "write it as 1.2.3, or complete it: a - begins a prerelease, such as -beta.1"},
		"empty prerelease, two numbers": {in: "1.2-", hint: "write it as 1.2.0, or complete it"},
		"empty build":                   {in: "1.2.3+", hint: "write it as 1.2.3, or complete it"},
		"dash as prerelease":            {in: "1.2.3--", ok: true},
		"underscore":                    {in: "1.2.3+a_b"},
		"not ASCII":                     {in: "1.2.3-é"},
		"blanks":                        {in: " 1.2.3"},
		"empty":                         {in: ""},
		"text":                          {in: "latest"},
		"path":                          {in: "../1.2.3"},
		"too long":                      {in: "1.2.3-" + strings.Repeat("a", 123), hint: "a tag, which has at most 128 characters: shorten its prerelease"},
		"as long as a tag":              {in: "1.2.3-" + strings.Repeat("a", 122), ok: true},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := ParseVersion(tc.in)
			if (err == nil) != tc.ok {
				t.Fatalf("ParseVersion(%q) = %v, %v", tc.in, v, err)
			}
			if err == nil && v.String() != tc.in {
				t.Errorf("prints as %q", v)
			}
			if err != nil && (hint.Of(err) == "" && !strings.Contains(err.Error(), "larger") || !strings.Contains(hint.Of(err), tc.hint)) {
				t.Errorf("hint %q for %v", hint.Of(err), err)
			}
		})
	}
}

// TestCompareVersionsInTheOrderOfSemanticVersioning also asks the two other implementations.
// hashicorp/go-version orders like Semantic Versioning except after equal parts. There it puts
// the longer prerelease first if the next part is no number.
func TestCompareVersionsInTheOrderOfSemanticVersioning(t *testing.T) {
	for name, tt := range map[string]struct {
		older, newer string
		others       string // the implementations that disagree
	}{
		"numbers":                            {"1.9.0", "1.10.0", ""},
		"largest numbers":                    {"9223372036854775806.0.0", "9223372036854775807.0.0", ""},
		"prerelease and release":             {"1.0.0-rc.1", "1.0.0", ""},
		"release and next prerelease":        {"1.0.0", "1.0.1-alpha", ""},
		"numbers in a prerelease":            {"1.0.0-beta.2", "1.0.0-beta.10", ""},
		"text with numbers":                  {"1.0.0-rc10", "1.0.0-rc9", ""},
		"number and text":                    {"1.0.0-1", "1.0.0-alpha", ""},
		"number and text, after equal parts": {"1.0.0-alpha.1", "1.0.0-alpha.beta", ""},
		"capital letters first":              {"1.0.0-Beta", "1.0.0-alpha", ""},
		"more parts, but older":              {"1.0.0-alpha.1", "1.0.0-beta", "go-versions"},
		"date of a build":                    {"1.0.0-dev.20260101", "1.0.0-rc1", "go-versions"},
		"more parts, number first":           {"1.0.0-0.1", "1.0.0-alpha", "go-versions"},
		"more parts on both sides":           {"1.0.0-alpha.1.1", "1.0.0-alpha.beta", "go-versions"},
		"a number more":                      {"1.0.0-alpha", "1.0.0-alpha.1", ""},
		"a word more":                        {"1.0.0-alpha", "1.0.0-alpha.beta", "go-version"},
		"leading zero":                       {"1.0.0-beta.01", "1.0.0-beta.2", "go-versions semver"}, // x/mod/semver does not accept it
		"leading zero, longer":               {"1.0.0-beta.02", "1.0.0-beta.10", "semver"},
		"leading zero, same number":          {"1.0.0-beta.01", "1.0.0-beta.1", "go-versions semver"},
		"build metadata":                     {"1.0.0+a", "1.0.0+b", "go-version go-versions semver"},
	} {
		t.Run(name, func(t *testing.T) {
			older, newer := MustParseVersion(tt.older), MustParseVersion(tt.newer)
			if older.Compare(newer) != -1 || newer.Compare(older) != 1 || older.Compare(older) != 0 {
				t.Errorf("%s does not come before %s", older, newer)
			}
			var disagree []string
			if !goversion.Must(goversion.NewVersion(tt.older)).LessThan(goversion.Must(goversion.NewVersion(tt.newer))) {
				disagree = append(disagree, "go-version")
			}
			if !older.v.LessThan(newer.v) {
				disagree = append(disagree, "go-versions")
			}
			if !semver.IsValid("v"+tt.older) || semver.Compare("v"+tt.older, "v"+tt.newer) >= 0 {
				disagree = append(disagree, "semver")
			}
			if got := strings.Join(disagree, " "); got != tt.others {
				t.Errorf("%q disagree, want %q", got, tt.others)
			}
		})
	}
}

func TestSortVersions(t *testing.T) {
	want := strings.Fields("0.9.0 1.0.0-alpha 1.0.0-alpha.1 1.0.0-beta 1.0.0-beta.2 1.0.0-beta.10 1.0.0-rc1 1.0.0 1.0.0+a 1.0.0+b 1.2.0 1.10.0 2.0.0")
	var vs []Version
	for _, s := range want {
		vs = append(vs, MustParseVersion(s))
	}
	slices.Reverse(vs)
	SortVersions(vs)
	for i, v := range vs {
		if v.String() != want[i] {
			t.Fatalf("sorted %v, want %v", vs, want)
		}
	}
}

// offered lists the versions from which the constraint tests select.
var offered = strings.Fields("0.9.0 1.0.0-alpha.1 1.0.0-beta 1.0.0-beta.2 1.0.0 1.2.0 1.2.3 1.2.3+b1 1.2.4 1.3.0 2.0.0-rc1 2.0.0 3.0.0")

func offeredVersions() []Version {
	var vs []Version
	for _, s := range offered {
		vs = append(vs, MustParseVersion(s))
	}
	return vs
}

func TestConstraintSelectsAsClientsDo(t *testing.T) {
	for in, want := range map[string]string{
		">= 0":                  "0.9.0 1.0.0 1.2.0 1.2.3 1.2.3+b1 1.2.4 1.3.0 2.0.0 3.0.0",
		"1.2":                   "1.2.0",
		"= 1.2.3":               "1.2.3",
		"1.2.3+b1":              "1.2.3+b1",
		"~> 1":                  "1.0.0 1.2.0 1.2.3 1.2.3+b1 1.2.4 1.3.0",
		"~>1.2":                 "1.2.0 1.2.3 1.2.3+b1 1.2.4 1.3.0",
		"~> 1.2.0":              "1.2.0 1.2.3 1.2.3+b1 1.2.4",
		"> 1.0, < 2.0,":         "1.2.0 1.2.3 1.2.3+b1 1.2.4 1.3.0", // a trailing comma is allowed
		">= 1.0.0-beta":         "1.0.0 1.2.0 1.2.3 1.2.3+b1 1.2.4 1.3.0 2.0.0 3.0.0",
		"1.0.0-beta":            "1.0.0-beta",
		"~> 2.0.0-rc1":          "2.0.0",
		"!= 1.2.3, < 1.3":       "0.9.0 1.0.0 1.2.0 1.2.3+b1 1.2.4",
		">= 01.2, < 1.3":        "1.2.0 1.2.3 1.2.3+b1 1.2.4",
		"> 4":                   "",
		"9223372036854775807.0": "",
	} {
		t.Run(in, func(t *testing.T) {
			s, err := ParseConstraint(in)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, v := range s.Matches(offeredVersions()) {
				got = append(got, v.String())
			}
			if g := strings.Join(got, " "); g != want {
				t.Errorf("selects %q, want %q", g, want)
			}
		})
	}
}

func TestConstraintRefused(t *testing.T) {
	for _, in := range []string{
		"", ",", "> 1.0,,< 2", "1.2.3.4", "~> 1.2.3.4", ">=v1.0", "*", "1.*", "1.x", ">1.2 <2", "== 1.2.3", "=> 1.2.3", "^1.2", "latest",
		">= 9223372036854775808", ">= 9223372036854775808.0.0", "1.2.3-", "1.2.3+", strings.Repeat("> 1,", 1000),
	} {
		if s, err := ParseConstraint(in); err == nil {
			t.Errorf("ParseConstraint(%q) = %v", in, s)
		}
	}
	if _, err := ParseConstraint("1.2.3-"); !strings.HasPrefix(hint.Of(err), "write it as 1.2.3, or complete it") {
		t.Errorf("hint %q", hint.Of(err))
	}
	if _, err := ParseConstraint("v1.2.3"); hint.Of(err) != "write it as 1.2.3" {
		t.Errorf("hint %q", hint.Of(err))
	}
}

func TestConstraintOfNoVersion(t *testing.T) {
	for in, want := range map[string]bool{
		"< 0.0.0": true, "<0": true, " < 0.0 , ": true,
		"< 0.0.1": false, "<= 0": false, "< 0.0.0-beta": false, "> 2, < 1": false, "> 9": false, "< 0, < 1": false,
	} {
		s, err := ParseConstraint(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.IsNone(); got != want {
			t.Errorf("%q: %t, want %t", in, got, want)
		}
		if s.IsNone() && len(s.Matches(offeredVersions())) > 0 {
			t.Errorf("%q has versions", in)
		}
	}
	if (VersionSet{}).IsNone() {
		t.Error("a provider block without a constraint wants no version")
	}
}

func FuzzParseVersion(f *testing.F) {
	for _, s := range append(offered, "", "1", "01.2.3", "1.2.3.4", "v1.2.3", "1.2.3-", "9223372036854775808.0.0", "1.0.0-9223372036854775808", "1.2.3-beta.01", "1.2.3+é") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := ParseVersion(s)
		if err != nil {
			return
		}
		if v.String() != s {
			t.Fatalf("%q prints as %q", s, v)
		}
		if again := MustParseVersion(v.String()); again != v {
			t.Fatalf("%q parses to %#v and %#v", s, v, again)
		}
		for _, other := range offeredVersions() {
			if v.Compare(other) != -other.Compare(v) {
				t.Fatalf("%s and %s do not compare", v, other)
			}
			if want := semver.Compare("v"+s, "v"+other.String()); semver.IsValid("v"+s) && want != 0 && v.Compare(other) != want {
				t.Fatalf("%s and %s do not compare as in Semantic Versioning", v, other)
			}
		}
	})
}

// FuzzParseConstraint compares our parser with the clients' parser on every input that the
// clients' parser can read.
func FuzzParseConstraint(f *testing.F) {
	for _, s := range []string{"~> 1.2", ">= 1, < 2,", "1.2.3.4", "= 1.0.0-beta", ">= 9223372036854775808", "!= 1.2.3+b1", "1.*", ",", "> 01.2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		set, err := ParseConstraint(s)
		spec, clientErr := clientConstraint(s)
		if err != nil {
			return
		}
		if clientErr != nil {
			t.Fatalf("%q is accepted, clients refuse it: %v", s, clientErr)
		}
		client := versions.MeetingConstraints(spec)
		for _, v := range offeredVersions() {
			if set.Has(v) != client.Has(v.v) {
				t.Fatalf("%q: %s in ours %v, in clients' %v", s, v, set.Has(v), client.Has(v.v))
			}
		}
	})
}

func clientConstraint(s string) (spec constraints.IntersectionSpec, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = hint.New("panic", "%v", r)
		}
	}()
	return constraints.ParseRubyStyleMulti(s)
}

func TestHasPrerelease(t *testing.T) {
	for _, tt := range []struct {
		constraint, version string
		want                bool
	}{
		{">= 1.0", "1.1.0-beta1", true},
		{">= 1.0", "1.0.0-beta1", false}, // the prerelease comes before 1.0.0
		{">= 1.0.0-alpha", "1.0.0-beta1", true},
		{"< 2.0", "2.0.0-beta1", false}, // the release 2.0.0 is excluded
		{"< 2.0", "1.9.0-beta1", true},
		{"~> 1.2", "1.3.0-rc1+build", true},
		{"~> 1.2", "2.0.0-rc1", false},
		{">= 1.0, != 1.1.0", "1.1.0-rc1", false},
		{">= 1.0", "1.1.0", false}, // the version is not a prerelease
		// Bounds that are prereleases of the same release have the order of Semantic Versioning.
		{">= 1.0.0-beta", "1.0.0-alpha.1", false},
		{">= 1.0.0-alpha.1", "1.0.0-beta", true},
		{"> 1.0.0-alpha.1", "1.0.0-alpha.1", false},
		{"~> 1.0.0-rc1", "1.0.0-dev.20260101", false},
		{"~> 1.0.0-rc1", "1.0.5-dev.20260101", true},
		{">= 1.0.0-rc1, != 1.0.0-rc1", "1.0.0-rc1", false},
		{">= 1.0.0-rc1, != 1.0.0-rc1", "1.0.0-rc.2", false},
		{"<= 1.0.0-beta", "1.0.0-alpha.1", false}, // the release 1.0.0 is excluded
		{"= 1.0.0-beta", "1.0.0-alpha.1", false},
	} {
		s, err := ParseConstraint(tt.constraint)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.HasPrerelease(MustParseVersion(tt.version)); got != tt.want {
			t.Errorf("%s has %s: %t", tt.constraint, tt.version, got)
		}
	}
	if (VersionSet{}).HasPrerelease(MustParseVersion("1.0.0-beta")) || !(VersionSet{}).IsZero() {
		t.Error("the zero VersionSet matches a version")
	}
}
