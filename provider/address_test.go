package provider

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

func TestParseAddress(t *testing.T) {
	for in, want := range map[string]struct{ str, path string }{
		"registry.opentofu.org/hashicorp/null":   {"registry.opentofu.org/hashicorp/null", "registry.opentofu.org/hashicorp/null"},
		"Registry.OpenTofu.org/HashiCorp/Null":   {"registry.opentofu.org/hashicorp/null", "registry.opentofu.org/hashicorp/null"},
		"example.com:443/a/b":                    {"example.com/a/b", "example.com/a/b"},
		"example.com:8443/a/b":                   {"example.com:8443/a/b", "example.com:8443/a/b"},
		"испытание.com/acme/widget":              {"испытание.com/acme/widget", "xn--80akhbyknj4f.com/acme/widget"},
		"registry.terraform.io/my-org/my-widget": {"registry.terraform.io/my-org/my-widget", "registry.terraform.io/my-org/my-widget"},
		"example.com/My_Org/widget":              {"example.com/my_org/widget", "example.com/my_org/widget"},
		"example.com/a__b-c_2/widget":            {"example.com/a__b-c_2/widget", "example.com/a__b-c_2/widget"},
	} {
		a, err := ParseAddress(in)
		if err != nil {
			t.Errorf("ParseAddress(%q): %v", in, err)
			continue
		}
		if a.String() != want.str || a.Path() != want.path {
			t.Errorf("ParseAddress(%q) = %s, path %s", in, a, a.Path())
		}
		back, err := AddressFromPath(a.Hostname(), a.Namespace(), a.Type())
		if err != nil || back != a {
			t.Errorf("AddressFromPath of %s = %v, %v", a.Path(), back, err)
		}
	}
}

func TestParseAddressRefused(t *testing.T) {
	for in, wantHint := range map[string]string{
		"hashicorp/null":                        "registry.terraform.io/hashicorp/null, OpenTofu as registry.opentofu.org/hashicorp/null",
		"null":                                  "registry.opentofu.org/hashicorp/null",
		"":                                      "registry.opentofu.org",
		"a/b/c/d":                               "HOSTNAME/NAMESPACE/TYPE",
		"example.com/a/terraform-provider-null": "",
		"example.com/a/b_c":                     "",
		"example.com/-a/b":                      "",
		"example.com/_a/b":                      "underscores",
		"example.com/a_/b":                      "underscores",
		"example.com/_/b":                       "underscores",
		"example.com/-a_b/c":                    "underscores",
		"example.com/a_b--c/d":                  "underscores",
		"example.com/a_b.c/d":                   "underscores",
		"example.com/a_b\u2100/d":               "ASCII letters", // IDNA maps the character to a/c
		"example.com/a_b\u2024/d":               "ASCII letters", // IDNA maps the character to a dot
		"example.com/a_b/c_d":                   `"c_d" in source "example.com/a_b/c_d"`,
		"example.com/a_b/terraform-provider-c":  `Did you mean "example.com/a_b/c"`,
		"example.com_x/a_b/c":                   `"example.com_x/a_b/c"`,
		"example.com//b":                        "",
		"exa mple.com/a/b":                      "",
		"xn--80akhbyknj4f.com/a/b":              "",
		"terraform.io/builtin/terraform":        "",
		"registry.opentofu.org/-/null":          "",
		"example.com/../b":                      "",

		// Pasted from a browser or a document of a registry, or not complete.
		"https://registry.terraform.io/providers/hashicorp/null/latest":       "write it as registry.terraform.io/hashicorp/null",
		"https://registry.terraform.io/providers/hashicorp/null/3.2.4/docs":   "write it as registry.terraform.io/hashicorp/null",
		"registry.terraform.io/providers/hashicorp/null":                      "write it as registry.terraform.io/hashicorp/null",
		"https://search.opentofu.org/provider/hashicorp/null/latest?q=1#x":    "write it as registry.opentofu.org/hashicorp/null",
		"https://registry.opentofu.org/hashicorp/null/":                       "write it as registry.opentofu.org/hashicorp/null",
		"https://registry.opentofu.org/v1/providers/hashicorp/null/versions":  "write it as registry.opentofu.org/hashicorp/null",
		"https://registry.terraform.io/modules/terraform-aws-modules/vpc/aws": "HOSTNAME/NAMESPACE/TYPE",
		"https://registry.terraform.io/providers/hashicorp/../etc":            "HOSTNAME/NAMESPACE/TYPE",
		"https://example.com":        "",
		"registry.acme.example":      "write registry.acme.example/NAMESPACE/TYPE. Arguments that may be patterns take registry.acme.example/*/*",
		"registry.acme.example/acme": "and registry.acme.example/NAMESPACE/*",
		"localhost:8443/acme":        "write localhost:8443/NAMESPACE/TYPE",
	} {
		a, err := ParseAddress(in)
		if err == nil {
			t.Errorf("ParseAddress(%q) = %s", in, a)
			continue
		}
		if !strings.Contains(hint.Of(err), wantHint) {
			t.Errorf("ParseAddress(%q): hint %q", in, hint.Of(err))
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("ParseAddress(%q): error of several lines: %q", in, err)
		}
	}
}

// TestErrorsOfLongTexts shows that errors quote only the beginning of a long text.
// Registries and origins may send texts of several megabytes.
func TestErrorsOfLongTexts(t *testing.T) {
	long := strings.Repeat("\x7f", 1<<20)
	for name, parse := range map[string]func() error{
		"address":           func() error { _, err := ParseAddress(long); return err },
		"address with host": func() error { _, err := ParseAddress("example.com/a/" + long); return err },
		"path":              func() error { _, err := AddressFromPath("example.com", "a", long); return err },
		"path with host":    func() error { _, err := AddressFromPath(long, "a", "b"); return err },
		"version":           func() error { _, err := ParseVersion(long); return err },
		"platform":          func() error { _, err := ParsePlatform(long); return err },
		"OS and arch":       func() error { _, err := NewPlatform(long, long); return err },
		"hash":              func() error { _, err := ParseHash(long); return err },
	} {
		if err := parse(); err == nil || len(err.Error()) > 2<<10 || len(hint.Of(err)) > 2<<10 {
			t.Errorf("%s: an error of %d bytes: %.100v", name, len(fmt.Sprint(err)), err)
		}
	}
}

func TestAddressFromPathWantsCanonicalForm(t *testing.T) {
	for _, parts := range [][3]string{
		{"Example.com", "a", "b"}, {"example.com:443", "a", "b"}, {"example.com", "A", "b"}, {"испытание.com", "a", "b"},
		{"example.com", "..", "b"}, {"example.com", "a", "b\x00"}, {"example.com", "a", `b\c`}, {"", "a", "b"}, {"example.com/x", "a", "b"},
	} {
		if a, err := AddressFromPath(parts[0], parts[1], parts[2]); err == nil {
			t.Errorf("AddressFromPath(%q) = %s", parts, a)
		}
	}
}

// TestAddressFromURL shows that both forms of a hostname lead to the same provider, and that
// other forms are refused.
func TestAddressFromURL(t *testing.T) {
	a := MustParseAddress("испытание.com/acme/widget")
	for _, host := range []string{a.Hostname(), "испытание.com"} {
		if got, err := AddressFromURL(host, "acme", "widget"); err != nil || got != a {
			t.Errorf("%s: %v, %v", host, got, err)
		}
	}
	for _, host := range []string{"Испытание.com", "испытание.com:443", "испытание.com/x", "испытание。com", "Example.com", "xn--a", "", "испытание\xff.com", strings.Repeat("я", maxAddressLen)} {
		if got, err := AddressFromURL(host, "acme", "widget"); err == nil {
			t.Errorf("AddressFromURL(%.100q) = %s", host, got)
		}
	}
}

func TestClientWarning(t *testing.T) {
	for pattern, want := range map[string]bool{"example.com/a_b/c": true, "example.com/a_b/*": true, "example.com/a-b/c": false, "*/*/*": false} {
		if got := MustParsePattern(pattern).ClientWarning(); strings.Contains(got, "OpenTofu refuses") != want {
			t.Errorf("%s: %q", pattern, got)
		}
	}
	if w := MustParseAddress("example.com/a_b/c").ClientWarning(); w == "" {
		t.Error("an address with an underscore has no warning")
	}
}

func TestSelector(t *testing.T) {
	patterns := func(ss ...string) (out []Pattern) {
		for _, s := range ss {
			p, err := ParsePattern(s)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, p)
		}
		return out
	}
	null := MustParseAddress("registry.opentofu.org/hashicorp/null")
	widget := MustParseAddress("registry.acme.example/acme/widget")
	for name, tc := range map[string]struct {
		sel          Selector
		null, widget bool
	}{
		"nothing said":        {Selector{}, true, true},
		"everything":          {Selector{Include: patterns("*/*/*")}, true, true},
		"one host":            {Selector{Include: patterns("registry.opentofu.org/*/*")}, true, false},
		"one namespace":       {Selector{Include: patterns("registry.acme.example/acme/*")}, false, true},
		"one provider":        {Selector{Include: patterns("registry.acme.example/acme/widget")}, false, true},
		"exclusion wins":      {Selector{Include: patterns("*/*/*"), Exclude: patterns("registry.opentofu.org/*/*")}, false, true},
		"exclusion by itself": {Selector{Exclude: patterns("registry.acme.example/acme/widget")}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.sel.Selects(null); got != tc.null {
				t.Errorf("%s: %v", null, got)
			}
			if got := tc.sel.Selects(widget); got != tc.widget {
				t.Errorf("%s: %v", widget, got)
			}
		})
	}
}

func TestParsePattern(t *testing.T) {
	for _, in := range []string{"", "*", "hashicorp/null", "*/hashicorp/*", "example.com/*/null", "a/b/c/d", "example.com/a/b_c", "example.com/_a/c"} {
		if p, err := ParsePattern(in); err == nil {
			t.Errorf("ParsePattern(%q) = %s", in, p)
		}
	}
	p, err := ParsePatternAsOpenTofu("hashicorp/*")
	if err != nil || p.String() != "registry.opentofu.org/hashicorp/*" {
		t.Errorf("OpenTofu reads hashicorp/* as %s, %v", p, err)
	}
}

func TestParsePlatform(t *testing.T) {
	if p, err := ParsePlatform("linux_amd64"); err != nil || p != (Platform{"linux", "amd64"}) || p.String() != "linux_amd64" {
		t.Errorf("linux_amd64 = %v, %v", p, err)
	}
	for _, in := range []string{"", "linux", "linux_", "_amd64", "linux_amd64_v2", "Linux_amd64", "linux/amd64", "linux_am d64", "linux_../x"} {
		if p, err := ParsePlatform(in); err == nil {
			t.Errorf("ParsePlatform(%q) = %v", in, p)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"registry.opentofu.org/hashicorp/null", "hashicorp/null", "испытание.com/a/b", "example.com:8443/a/b", "xn--80akhbyknj4f.com/a/b", "example.com/A_b/c", "example.com/a_b\u2100/c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAddress(s)
		if err != nil {
			return
		}
		again, err := ParseAddress(a.String())
		if err != nil || again != a {
			t.Fatalf("%q is %q, which parses to %v, %v", s, a, again, err)
		}
		fromPath, err := AddressFromPath(a.Hostname(), a.Namespace(), a.Type())
		if err != nil || fromPath != a {
			t.Fatalf("%q has the path %q, which parses to %v, %v", s, a.Path(), fromPath, err)
		}
		// The namespace and the type become parts of paths, file names and repositories.
		if strings.ContainsAny(a.Namespace()+a.Type(), "/\\.:% \x00") || strings.Count(a.Path(), "/") != 2 {
			t.Fatalf("%q has the path %q", s, a.Path())
		}
		host, _, _ := strings.Cut(a.String(), "/")
		fromURL, err := AddressFromURL(host, a.Namespace(), a.Type())
		if err != nil || fromURL != a {
			t.Fatalf("%q is %q, which as a URL's path parses to %v, %v", s, a, fromURL, err)
		}
	})
}
