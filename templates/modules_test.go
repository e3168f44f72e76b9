package templates_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/templates"
)

func selector(include ...string) (sel module.Selector) {
	for _, s := range include {
		sel.Include = append(sel.Include, module.MustParsePattern(s))
	}
	return sel
}

func moduleTemplate(t *testing.T, source string, include ...string) *templates.Template {
	t.Helper()
	tmpl, err := templates.Parse(source, selector(include...))
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

func TestRepositoryOfModule(t *testing.T) {
	for name, tc := range map[string]struct {
		template, include, module string
		want, hint                string
	}{
		"every part":             {"ghcr.io/acme/${hostname}/${namespace}/${name}/${system}", "*/*/*/*", "registry.acme.example/acme/net/aws", "ghcr.io/acme/registry.acme.example/acme/net/aws", ""},
		"parts that are named":   {"ghcr.io/${name}-${system}", "registry.acme.example/acme/*/*", "registry.acme.example/acme/net/aws", "ghcr.io/net-aws", ""},
		"capitals":               {"ghcr.io/${hostname}/${namespace}/${name}/${system}", "*/*/*/*", "registry.acme.example/GoogleCloudPlatform/Net/aws", "ghcr.io/registry.acme.example/googlecloudplatform.841/net.1/aws", ""},
		"a form of no name":      {"ghcr.io/${hostname}/${namespace}/${name}/${system}", "*/*/*/*", "registry.acme.example/acme/a-_b/aws", "ghcr.io/registry.acme.example/acme/a--b.4/aws", ""},
		"capitals, joined":       {"ghcr.io/${namespace}/${name}-${system}", "registry.acme.example/*/*/*", "registry.acme.example/acme/Net/aws", "ghcr.io/acme/net.1-aws", ""},
		"a condition on names":   {"ghcr.io/${namespace == \"Azure\" ? \"azure\" : namespace}/${name}/${system}", "registry.acme.example/*/*/*", "registry.acme.example/Azure/net/aws", "ghcr.io/azure/net/aws", ""},
		"a name that cannot be":  {"ghcr.io/${name}/${hostname}/${namespace}/${system == \"aws\" ? \"A\" : system}", "registry.acme.example/*/*/*", "registry.acme.example/acme/Net/aws", "", "registry.acme.example/acme/Net/aws a template of its own"},
		"another spelling":       {"ghcr.io/azure/${name}/${system}", "registry.acme.example/Azure/*/*", "registry.acme.example/azure/net/aws", "", "module_mirror"},
		"a port":                 {"ghcr.io/${hostname}/${namespace}/${name}/${system}", "*/*/*/*", "registry.acme.example:8443/acme/net/aws", "", "port of registry.acme.example:8443"},
		"a template of its own":  {"ghcr.io/acme/net", "registry.acme.example/acme/Net/aws", "registry.acme.example/acme/Net/aws", "ghcr.io/acme/net", ""},
		"outside of the include": {"ghcr.io/${name}/${system}", "registry.acme.example/acme/*/*", "registry.acme.example/other/net/aws", "", "module_mirror"},
	} {
		t.Run(name, func(t *testing.T) {
			set := templates.Set{moduleTemplate(t, tc.template, tc.include)}
			repo, err := set.Repository(module.MustParseAddress(tc.module))
			if tc.want != "" {
				if err != nil || repo.String() != tc.want {
					t.Errorf("%s, %v; want %s", repo, err, tc.want)
				}
				return
			}
			want := templates.ErrNoRepository
			if tc.hint == "module_mirror" {
				want = templates.ErrNotSelected
			}
			if !errors.Is(err, want) || !strings.Contains(hint.Of(err), tc.hint) {
				t.Errorf("%s, %v, hint %q", repo, err, hint.Of(err))
			}
		})
	}
}

func TestParseModuleRefused(t *testing.T) {
	for template, want := range map[string]string{
		"ghcr.io/${hostname}/${namespace}/${type}":                           `"type", but only hostname, namespace, name and system`,
		"ghcr.io/${hostname}/${namespace}/${name}":                           "${system}",
		"ghcr.io/${hostname}/${name}/${system}":                              "${namespace}",
		"u:MARK@ghcr.io/${hostname}/${namespace}/${name}/${system}":          "a login",
		"https://ghcr.io/${hostname}/${namespace}/${name}/${system}":         "scheme",
		"ghcr.io/${upper(hostname)}/${namespace}/${name}/${system}":          "function",
		"ghcr.io/Modules/${hostname}/${namespace}/${name}/${system}":         "lower case",
		"ghcr.io/${hostname}/${namespace}/${name}/${system}/${system[\"a\"]": "",
	} {
		_, err := templates.Parse(template, module.Selector{})
		if err == nil || !strings.Contains(err.Error(), want) || hint.Of(err) == "" || strings.Contains(err.Error(), "MARK") {
			t.Errorf("%s: %v (hint: %s)", template, err, hint.Of(err))
		}
	}
}

func TestModulesOfRepository(t *testing.T) {
	for name, tc := range map[string]struct {
		template, include, repository string
		want                          string
	}{
		"every part":    {"ghcr.io/m/${hostname}/${namespace}/${name}/${system}", "*/*/*/*", "ghcr.io/m/registry.acme.example/acme/net/aws", "[registry.acme.example/acme/net/aws]"},
		"a provider":    {"ghcr.io/m/${hostname}/${namespace}/${name}/${system}", "*/*/*/*", "ghcr.io/m/registry.acme.example/acme/net", "[]"},
		"parts joined":  {"ghcr.io/${namespace}/${name}-${system}", "registry.acme.example/*/*/*", "ghcr.io/acme/a-b-aws", "[registry.acme.example/acme/a-b/aws]"},
		"one module":    {"ghcr.io/acme/net", "registry.acme.example/acme/Net/aws", "ghcr.io/acme/net", "[registry.acme.example/acme/Net/aws]"},
		"not included":  {"ghcr.io/${namespace}/${name}/${system}", "registry.acme.example/acme/*/*", "ghcr.io/other/net/aws", "[]"},
		"capitals":      {"ghcr.io/m/${hostname}/${namespace}/${name}/${system}", "*/*/*/*", "ghcr.io/m/registry.acme.example/azure.1/a---b.e/aws", "[registry.acme.example/Azure/a___b/aws]"},
		"joined":        {"ghcr.io/${namespace}/${name}-${system}", "registry.acme.example/*/*/*", "ghcr.io/azure.1/net.1-aws", "[registry.acme.example/Azure/Net/aws]"},
		"no capitals":   {"ghcr.io/${namespace}/${name}/${system}", "registry.acme.example/*/*/*", "ghcr.io/azure.01/net/aws", "[]"},
		"two namespace": {"ghcr.io/${namespace}-${name}/${system}", "registry.acme.example/*/*/*", "ghcr.io/a-b-c/aws", "[registry.acme.example/a-b/c/aws registry.acme.example/a/b-c/aws]"},
	} {
		t.Run(name, func(t *testing.T) {
			repo, err := ociaddr.ParseRepository(tc.repository)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(moduleTemplate(t, tc.template, tc.include).Addresses(repo)); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

func TestExampleOfModule(t *testing.T) {
	set := templates.Set{
		moduleTemplate(t, "ghcr.io/one", "registry.opentofu.org/terraform-aws-modules/vpc/aws"),
		moduleTemplate(t, "ghcr.io/two/${namespace}/${name}/${system}", "registry.opentofu.org/*/*/*"),
		moduleTemplate(t, "ghcr.io/three/${hostname}/${namespace}/${name}/${system}", "*/*/*/*"),
		moduleTemplate(t, "ghcr.io/four", "registry.acme.example/platform/vpc/aws"),
	}
	var got []string
	for _, tmpl := range set[:3] {
		got = append(got, set.Example(tmpl).String())
	}
	want := []string{"registry.opentofu.org/terraform-aws-modules/vpc/aws", "registry.opentofu.org/terraform-aws-modules/vpc/google", "registry.terraform.io/terraform-aws-modules/vpc/aws"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if a := set.Example(set[3]); a != nil {
		t.Errorf("a template that no module uses: %s", a)
	}
}

// FuzzParseModule checks that each module that an accepted template finds in a repository has
// this repository.
func FuzzParseModule(f *testing.F) {
	for _, s := range []string{"ghcr.io/acme/${hostname}/${namespace}/${name}/${system}", "%{if true}a%{endif}/${hostname}/${namespace}/${name}-${system}", "a/${system[0]}"} {
		f.Add(s)
	}
	net := module.MustParseAddress("registry.acme.example/acme/net/aws")
	f.Fuzz(func(t *testing.T, s string) {
		tmpl, err := templates.Parse(s, module.Selector{})
		if err != nil {
			return
		}
		repo, err := tmpl.Repository(net)
		if err != nil {
			return
		}
		for _, a := range tmpl.Addresses(repo) {
			if r, err := tmpl.Repository(a); err != nil || r != repo {
				t.Fatalf("%q: %s is said to be in %s, and is in %s, %v", s, a, repo, r, err)
			}
		}
	})
}
