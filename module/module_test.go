package module

import (
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
)

func TestParseAddress(t *testing.T) {
	for written, want := range map[string]string{
		"registry.opentofu.org/terraform-aws-modules/vpc/aws": "registry.opentofu.org/terraform-aws-modules/vpc/aws",
		"Registry.Example.com/Acme/my_Net/aws":                "registry.example.com/Acme/my_Net/aws",
		"registry.example.com:8443/acme/net/aws":              "registry.example.com:8443/acme/net/aws",
		"registry.example.com:443/acme/net/aws":               "registry.example.com/acme/net/aws",
		"bücher.example/acme/net/aws":                         "xn--bcher-kva.example/acme/net/aws",
	} {
		a, err := ParseAddress(written)
		if err != nil || a.Path() != want {
			t.Errorf("%s: %s, %v; want %s", written, a.Path(), err, want)
		}
		parts := strings.Split(a.Path(), "/")
		for _, parse := range []func(h, ns, n, s string) (Address, error){AddressFromPath, AddressFromURL} {
			if back, err := parse(parts[0], parts[1], parts[2], parts[3]); err != nil || back != a {
				t.Errorf("%s from its path: %v, %v", written, back, err)
			}
		}
		host, _, _ := strings.Cut(a.String(), "/")
		if back, err := AddressFromURL(host, parts[1], parts[2], parts[3]); err != nil || back != a {
			t.Errorf("%s from its URL: %v, %v", written, back, err)
		}
	}
	for written, want := range map[string]string{
		"acme/net/aws":                         "write the one that you mean",
		"net":                                  addressForm,
		"registry.example.com/a/b/c/d":         addressForm,
		"registry.example.com/acme/net/aws//x": "name the whole module: registry.example.com/acme/net/aws",
		"registry.example.com/acme/net/AWS":    addressForm,
		"registry.example.com/-a/net/aws":      addressForm,
		"localhost/acme/net/aws":               addressForm,
		"github.com/acme/net/aws":              addressForm,
		"registry.example.com/acme/\xff/aws":   "check how it is written",
		strings.Repeat("a", 3000):              addressForm,
	} {
		a, err := ParseAddress(written)
		if err == nil || !strings.Contains(hint.Of(err), want) || !a.IsZero() {
			t.Errorf("%.60q: %v, %v, hint %q; want a hint with %q", written, a, err, hint.Of(err), want)
		}
	}
}

func TestAddressFromPathIsCanonical(t *testing.T) {
	for _, path := range []string{"Registry.example.com/a/b/c", "bücher.example/a/b/c", "registry.example.com:443/a/b/c", "r.example.com/a/b/../c", "r.example.com//b/c"} {
		parts := strings.SplitN(path, "/", 4)
		if a, err := AddressFromPath(parts[0], parts[1], parts[2], parts[3]); err == nil {
			t.Errorf("%s: %s", path, a)
		}
	}
}

func TestPatterns(t *testing.T) {
	a := MustParseAddress("registry.example.com/acme/net/aws")
	for written, want := range map[string]bool{
		"*/*/*/*":                           true,
		"registry.example.com/*/*/*":        true,
		"registry.example.com/acme/*/*":     true,
		"registry.example.com/acme/net/*":   true,
		"registry.example.com/acme/net/aws": true,
		"registry.example.com/acme/net/gcp": false,
		"registry.example.com/other/*/*":    false,
		"other.example.com/*/*/*":           false,
		"registry.example.com/Acme/*/*":     true,
		"registry.example.com/acme/NET/aws": true,
	} {
		p, err := ParsePattern(written)
		exactly := want && strings.ToLower(written) == written
		if err != nil || p.Matches(a) != want || subject.Exactly(p, a) != exactly || p.String() != written || p.Parts() != 4-strings.Count(written, "*") {
			t.Errorf("%s: %v, %v matches %t", written, p, err, p.Matches(a))
		}
	}
	for _, written := range []string{"", "*/*/*", "*/acme/*/*", "registry.example.com/acme/*/aws", "registry.example.com/a b/*/*", "a/b/c/d/e", "*/*/*/*/*"} {
		if p, err := ParsePattern(written); err == nil || hint.Of(err) == "" {
			t.Errorf("%q: %v, %v", written, p, err)
		}
	}
	s := Selector{Include: []Pattern{MustParsePattern("registry.example.com/acme/*/*")}, Exclude: []Pattern{Pattern(a)}}
	if s.Selects(a) || !s.Selects(MustParseAddress("registry.example.com/acme/net/gcp")) || s.Selects(MustParseAddress("r.example.com/acme/net/gcp")) {
		t.Error("the selector ignores its patterns")
	}
	if got := []bool{s.IsSingle(0), s.IsSingle(1), s.IsSingle(2), s.IsSingle(3)}; !slices.Equal(got, []bool{true, true, false, false}) {
		t.Errorf("single parts %v", got)
	}
}

// FuzzAddress checks that an accepted address or pattern parses again to an equal value.
func FuzzAddress(f *testing.F) {
	for _, seed := range []string{"registry.opentofu.org/terraform-aws-modules/vpc/aws", "bücher.example/a/b/c", "*/*/*/*", "r.example.com/*/*/*", "r.example.com:8443/A_b/c-d/e1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if a, err := ParseAddress(s); err == nil {
			if back, err := ParseAddress(a.String()); err != nil || back != a {
				t.Errorf("%q: %q is %v, %v", s, a.String(), back, err)
			}
			if !Pattern(a).Matches(a) {
				t.Errorf("%q: its pattern does not match", s)
			}
		}
		if p, err := ParsePattern(s); err == nil {
			if back, err := ParsePattern(p.String()); err != nil || back != p {
				t.Errorf("%q: %q is %v, %v", s, p.String(), back, err)
			}
		}
	})
}
