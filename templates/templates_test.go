package templates

import (
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/provider"
)

func include(t *testing.T, patterns ...string) provider.Selector {
	t.Helper()
	var sel provider.Selector
	for _, s := range patterns {
		p, err := provider.ParsePattern(s)
		if err != nil {
			t.Fatal(err)
		}
		sel.Include = append(sel.Include, p)
	}
	return sel
}

var null = provider.MustParseAddress("registry.opentofu.org/hashicorp/null")

func TestRepository(t *testing.T) {
	for template, tc := range map[string]struct {
		include []string
		want    string
	}{
		"ghcr.io/acme/${hostname}/${namespace}/${type}": {nil, "ghcr.io/acme/registry.opentofu.org/hashicorp/null"},
		"docker.io/acme/${namespace}-${type}":           {[]string{"registry.opentofu.org/*/*"}, "docker.io/acme/hashicorp-null"},
		"ghcr.io/acme/null":                             {[]string{"registry.opentofu.org/hashicorp/null"}, "ghcr.io/acme/null"},
		"localhost:5000/${type}":                        {[]string{"registry.opentofu.org/hashicorp/*"}, "localhost:5000/null"},
		"ghcr.io/${hostname == \"registry.opentofu.org\" ? \"tofu\" : \"other\"}/${namespace}/${type}": {nil, "ghcr.io/tofu/hashicorp/null"},
		"${hostname}/${namespace}/${type}": {nil, "registry.opentofu.org/hashicorp/null"},
	} {
		tmpl, err := Parse(template, include(t, tc.include...))
		if err != nil {
			t.Errorf("%s: %v", template, err)
			continue
		}
		got, err := tmpl.Repository(null)
		if err != nil || got.String() != tc.want {
			t.Errorf("%s: %s, %v; want %s", template, got, err, tc.want)
		}
	}
}

func TestParseRefused(t *testing.T) {
	for template, want := range map[string]string{
		"":                                                   "hostname",
		"ghcr.io/acme/${namespace}/${type}":                  "${hostname}",
		"ghcr.io/acme/${hostname}/${type}":                   "${namespace}",
		"ghcr.io/acme/${hostname}/${namespace}":              "${type}",
		"ghcr.io/${hostname}/${namespace}/${typ}":            `"typ"`,
		"ghcr.io/${hostname}/${namespace}/${type":            "",
		"ghcr.io/${upper(hostname)}/${namespace}/${type}":    "function",
		"https://ghcr.io/${hostname}/${namespace}/${type}":   "scheme",
		"${hostname}-${namespace}-${type}":                   "no name",
		"ghcr.io/Acme/${hostname}/${namespace}/${type}":      "lower case",
		"ghcr.io/${hostname}/${namespace}/${type}:latest":    "",
		"ghcr.io/${hostname}/${namespace}/${type.x}":         "",
		"ghcr.io/${hostname}/${namespace}/${type}/${[1, 2]}": "",
	} {
		_, err := Parse(template, provider.Selector{})
		if err == nil {
			t.Errorf("%s is accepted", template)
			continue
		}
		if !strings.Contains(err.Error(), want) || hint.Of(err) == "" || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v (hint: %s)", template, err, hint.Of(err))
		}
	}
}

func TestHostWithPort(t *testing.T) {
	a := provider.MustParseAddress("localhost:8443/acme/widget")
	tmpl, err := Parse("ghcr.io/${hostname}/${namespace}/${type}", provider.Selector{})
	if err != nil {
		t.Fatal(err)
	}
	if repo, err := tmpl.Repository(a); !errors.Is(err, ErrNoRepository) || !strings.Contains(hint.Of(err), "port of localhost:8443") {
		t.Errorf("Repository = %s, %v", repo, err)
	}
	tmpl, err = Parse("ghcr.io/local/${namespace}/${type}", include(t, "localhost:8443/*/*"))
	if err != nil {
		t.Fatal(err)
	}
	if repo, err := tmpl.Repository(a); err != nil || repo.String() != "ghcr.io/local/acme/widget" {
		t.Errorf("Repository = %s, %v", repo, err)
	}
}

func TestSetTakesTheFirstThatSelects(t *testing.T) {
	var set Set
	for _, in := range [][2]string{{"a.example/${namespace}/${type}", "registry.acme.example/*/*"}, {"b.example/${namespace}/${type}", "registry.opentofu.org/*/*"}} {
		tmpl, err := Parse(in[0], include(t, in[1]))
		if err != nil {
			t.Fatal(err)
		}
		set = append(set, tmpl)
	}
	if repo, err := set.Repository(null); err != nil || repo.String() != "b.example/hashicorp/null" {
		t.Errorf("Repository = %s, %v", repo, err)
	}
	if _, err := set.Repository(provider.MustParseAddress("registry.terraform.io/a/b")); !errors.Is(err, ErrNotSelected) {
		t.Errorf("error %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"ghcr.io/acme/${hostname}/${namespace}/${type}", "${hostname}", "%{if true}a%{endif}/${hostname}/${namespace}/${type}", "a/${jsonencode(type)}", "$${type}", "a/${type[0]}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tmpl, err := Parse(s, provider.Selector{})
		if err != nil {
			return
		}
		// An accepted template maps a provider to the same repository in each call.
		// OpenTofu computes the same repository, too.
		a, err := tmpl.Repository(null)
		if err != nil {
			return
		}
		if again, err := tmpl.Repository(null); err != nil || again != a {
			t.Fatalf("%q: %s, then %s, %v", s, a, again, err)
		}
		expr, diags := hclsyntax.ParseTemplate([]byte(s), "", hcl.InitialPos)
		if diags.HasErrors() {
			t.Fatalf("%q: %v", s, diags)
		}
		val, diags := expr.Value(&hcl.EvalContext{Variables: map[string]cty.Value{
			"hostname": cty.StringVal(null.Hostname()), "namespace": cty.StringVal(null.Namespace()), "type": cty.StringVal(null.Type()),
		}})
		if val, err = convert.Convert(val, cty.String); diags.HasErrors() || err != nil || val.AsString() != a.String() {
			t.Fatalf("%q: %s, OpenTofu has %#v, %v, %v", s, a, val, diags, err)
		}
		for _, p := range tmpl.Addresses(a) {
			if r, err := tmpl.Repository(p); err != nil || r != a {
				t.Fatalf("%q: %s is said to be in %s, and is in %s, %v", s, p, a, r, err)
			}
		}
	})
}

func TestLoginsAreNotQuoted(t *testing.T) {
	for _, template := range []string{
		"https://u:MARK@ghcr.io/${hostname}/${namespace}/${type}", "u:MARK${x}@ghcr.io/${hostname}/${namespace}/${type", "https://MARK@ghcr.io/x/",
	} {
		_, err := Parse(template, provider.Selector{})
		if err == nil || strings.Contains(err.Error()+hint.Of(err), "MARK") || !strings.Contains(err.Error(), "it contains a login") {
			t.Errorf("%s: %v (hint %q)", template, err, hint.Of(err))
		}
	}
}

// TestExampleOfEachTemplate shows that the example of a template is a provider to which
// the template applies, even if earlier templates select some of the template's providers.
func TestExampleOfEachTemplate(t *testing.T) {
	exclude := func(sel provider.Selector, patterns ...string) provider.Selector {
		sel.Exclude = include(t, patterns...).Include
		return sel
	}
	for name, tc := range map[string]struct {
		selectors []provider.Selector
		want      []string
	}{
		"alone":                 {[]provider.Selector{{}}, []string{"registry.opentofu.org/hashicorp/null"}},
		"a namespace, then all": {[]provider.Selector{include(t, "registry.opentofu.org/hashicorp/*"), {}}, []string{"registry.opentofu.org/hashicorp/null", "registry.opentofu.org/opentofu/null"}},
		"hosts, then all": {[]provider.Selector{include(t, "registry.opentofu.org/*/*"), include(t, "registry.terraform.io/*/*"), {}},
			[]string{"registry.opentofu.org/hashicorp/null", "registry.terraform.io/hashicorp/null", "registry.example.com/hashicorp/null"}},
		"one provider, then its namespace": {[]provider.Selector{include(t, "acme.example/team/null"), include(t, "acme.example/team/*")}, []string{"acme.example/team/null", "acme.example/team/random"}},
		"with exclusions":                  {[]provider.Selector{exclude(provider.Selector{}, "registry.opentofu.org/hashicorp/*"), {}}, []string{"registry.opentofu.org/opentofu/null", "registry.opentofu.org/hashicorp/null"}},
		"a second pattern":                 {[]provider.Selector{include(t, "a.example/x/y"), include(t, "a.example/x/y", "b.example/x/y")}, []string{"a.example/x/y", "b.example/x/y"}},
		"nothing left":                     {[]provider.Selector{{}, include(t, "a.example/x/y")}, []string{"registry.opentofu.org/hashicorp/null", ""}},
	} {
		var set Set
		for _, sel := range tc.selectors {
			tmpl, err := Parse("ghcr.io/${hostname}/${namespace}/${type}", sel)
			if err != nil {
				t.Fatal(err)
			}
			set = append(set, tmpl)
		}
		for i, tmpl := range set {
			got := ""
			if a := set.Example(tmpl); a != nil {
				got = a.Path()
			}
			if got != tc.want[i] {
				t.Errorf("%s: template %d: %s, want %s", name, i, got, tc.want[i])
			}
		}
	}
}

// policy is the address of a made-up kind.
type policy struct {
	subject.Address
	parts [subject.MaxParts]string
}

func (policy) Kind() subject.Kind                { return "policy" }
func (p policy) Parts() [subject.MaxParts]string { return p.parts }
func (p policy) String() string                  { return strings.TrimRight(strings.Join(p.parts[:], "/"), "/") }

// TestAnotherKind shows that a row is all that templates need for another kind, and that every kind has one.
func TestAnotherKind(t *testing.T) {
	for _, of := range subject.Kinds {
		k := kinds[of]
		if n := len(k.names); n < 3 || len(k.ordinary) != n || len(k.common) != n || k.address == nil || k.help == "" || k.widen == "" {
			t.Errorf("the row of a %s is incomplete", of)
		}
	}
	kinds["policy"] = kind{
		names: []string{"hostname", "namespace", "set", "rule"}, ordinary: []string{"a.example", "b", "c", "d"}, common: [][]string{hosts, {"b"}, {"c"}, {"d", "e"}},
		address: func(p []string) (subject.Address, error) {
			var out policy
			copy(out.parts[:], p)
			return out, nil
		},
		widen: "write a policy block",
	}
	defer delete(kinds, "policy")
	ofPolicies, err := New("policy", "ghcr.io/${hostname}/${namespace}/${set}/${rule}", subject.Selector{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New("module", "ghcr.io/acme/${name}/${system}", subject.Selector{Include: []subject.Pattern{null.Pattern()}}); err == nil || hint.Of(err) == "" {
		t.Errorf("a template of modules with a pattern of providers: %v", err)
	}
	ofProviders, err := Parse("ghcr.io/${hostname}/${namespace}/${type}", include(t))
	if err != nil {
		t.Fatal(err)
	}
	set, rule := Set{ofProviders, ofPolicies}, policy{parts: [subject.MaxParts]string{"a.example", "acme", "net", "open"}}
	repo, err := set.Repository(rule)
	if found := ofPolicies.Addresses(repo); err != nil || repo.String() != "ghcr.io/a.example/acme/net/open" || len(found) != 1 || found[0] != subject.Address(rule) {
		t.Errorf("%s, %v: %v", repo, err, found)
	}
	if a := set.Example(ofPolicies); a == nil || a.Kind() != "policy" || len(set.Of("policy")) != 1 {
		t.Errorf("the example %v, and %d templates", a, len(set.Of("policy")))
	}
	if _, err := set[:1].For(rule); !errors.Is(err, ErrNotSelected) || hint.Of(err) != "write a policy block" {
		t.Errorf("%v, hint %q", err, hint.Of(err))
	}
	if ofProviders.Selects(rule) || ofPolicies.Selects(null) {
		t.Error("a template selects an address of another kind")
	}
}
