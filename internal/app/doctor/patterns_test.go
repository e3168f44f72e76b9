package doctor_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/app/doctor"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/origins/pull"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// TestPatterns shows that doctor warns about patterns that match nothing stored or configured, unless nothing is stored or the registry
// cannot list everything.
func TestPatterns(t *testing.T) {
	widget, vpc := provider.MustParseAddress("registry.acme.example/acme/widget"), module.MustParseAddress("registry.acme.example/platform/vpc/aws")
	providers := func(name string, patterns ...string) (out []doctor.PatternRule) {
		for _, p := range patterns {
			out = append(out, doctor.PatternRule{Name: name, Pattern: provider.MustParsePattern(p)})
		}
		return out
	}
	for what, tc := range map[string]struct {
		rules    []doctor.PatternRule
		known    []subject.Address
		unlisted error
		want     string
	}{
		"they match":            {providers("require", "*/*/*", "registry.acme.example/acme/*"), []subject.Address{widget}, nil, "ok require each pattern for providers matches a stored or configured one"},
		"mistyped":              {providers("require", "*/*/*", "registry.acme.example/amce/*"), []subject.Address{widget}, nil, "warning require no stored or configured provider matches registry.acme.example/amce/*"},
		"twice":                 {append(providers("deny", "a.example/b/c", "a.example/b/c"), providers("deprecate", "registry.acme.example/acme/*")...), []subject.Address{widget}, nil, "warning deny no stored or configured provider matches a.example/b/c\nok deprecate each pattern for providers matches a stored or configured one"},
		"a module":              {[]doctor.PatternRule{{Name: "require", Pattern: module.MustParsePattern("registry.acme.example/network/*/*")}}, []subject.Address{vpc}, nil, "warning require no stored or configured module matches registry.acme.example/network/*/*"},
		"other kind":            {[]doctor.PatternRule{{Name: "require", Pattern: module.MustParsePattern("*/*/*/*")}}, []subject.Address{widget}, nil, "skipped require no module is stored or configured yet, so nothing matches */*/*/*"},
		"unlisted":              {providers("deny", "a.example/b/c"), []subject.Address{widget}, errors.New("no catalog"), "skipped deny whether a provider matches a.example/b/c is unknown: no catalog"},
		"unlisted, and matches": {providers("deny", "registry.acme.example/acme/widget"), []subject.Address{widget}, errors.New("no catalog"), "ok deny each pattern for providers matches a stored or configured one"},
		"pulled":                {providers("deny", "pulled.example/evil/*", "*/*/*", "other.example/b/c"), []subject.Address{widget}, nil, "skipped deny no stored or configured provider matches pulled.example/evil/*, but pull-through may fetch one\nwarning deny no stored or configured provider matches other.example/b/c"},
		"only pulled":           {providers("deny", "pulled.example/evil/*"), []subject.Address{widget}, nil, "skipped deny no stored or configured provider matches pulled.example/evil/*, but pull-through may fetch one"},
	} {
		t.Run(what, func(t *testing.T) {
			scope := pull.Scope{Selector: subject.Selector{Include: []subject.Pattern{provider.MustParsePattern("pulled.example/*/*")}}}
			x := doctor.Patterns{Rules: tc.rules, Pulls: scope.Overlaps, Known: func(_ context.Context, kind subject.Kind) (out []subject.Address, err error) {
				for _, a := range tc.known {
					if a.Kind() == kind {
						out = append(out, a)
					}
				}
				return out, tc.unlisted
			}}
			var got []string
			for _, c := range x.Examine(t.Context()).Checks {
				got = append(got, string(c.Status)+" "+c.Name+" "+c.Detail)
				if c.Status == doctor.Warn && c.Hint == "" {
					t.Errorf("no hint: %+v", c)
				}
			}
			if text := strings.Join(got, "\n"); text != tc.want {
				t.Errorf("%s\nwant %s", text, tc.want)
			}
		})
	}
	if r := (doctor.Patterns{}).Examine(t.Context()); r != nil {
		t.Errorf("nothing to examine: %+v", r)
	}
}
