package templates_test

import (
	"fmt"
	"testing"

	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
)

func TestProvidersOfRepository(t *testing.T) {
	for name, tc := range map[string]struct {
		template, include, repository string
		want                          string
	}{
		"every part":                 {"ghcr.io/acme/${hostname}/${namespace}/${type}", "", "ghcr.io/acme/registry.opentofu.org/hashicorp/null", "[registry.opentofu.org/hashicorp/null]"},
		"another registry":           {"ghcr.io/acme/${hostname}/${namespace}/${type}", "", "quay.io/acme/registry.opentofu.org/hashicorp/null", "[]"},
		"something else":             {"ghcr.io/acme/${hostname}/${namespace}/${type}", "", "ghcr.io/acme/app", "[]"},
		"deeper":                     {"ghcr.io/acme/${hostname}/${namespace}/${type}", "", "ghcr.io/acme/x/registry.opentofu.org/hashicorp/null", "[]"},
		"no host name":               {"ghcr.io/acme/${hostname}/${namespace}/${type}", "", "ghcr.io/acme/a__b/hashicorp/null", "[]"},
		"host left out":              {"ghcr.io/${namespace}/terraform-provider-${type}", "registry.acme.example/*/*", "ghcr.io/acme/terraform-provider-widget", "[registry.acme.example/acme/widget]"},
		"type alone":                 {"ghcr.io/the/${type}", "registry.acme.example/acme/*", "ghcr.io/the/widget", "[registry.acme.example/acme/widget]"},
		"literally one":              {"ghcr.io/the/widget", "registry.acme.example/acme/widget", "ghcr.io/the/widget", "[registry.acme.example/acme/widget]"},
		"not included":               {"ghcr.io/${hostname}/${namespace}/${type}", "registry.acme.example/acme/*", "ghcr.io/registry.acme.example/other/widget", "[]"},
		"parts joined":               {"docker.io/acme/${namespace}-${type}", "registry.acme.example/*/*", "docker.io/acme/a-b-c", "[registry.acme.example/a-b/c registry.acme.example/a/b-c]"},
		"a part that is there twice": {"ghcr.io/${type}/${hostname}/${namespace}/${type}", "", "ghcr.io/null/registry.opentofu.org/hashicorp/null", "[registry.opentofu.org/hashicorp/null]"},
		"and is not the same":        {"ghcr.io/${type}/${hostname}/${namespace}/${type}", "", "ghcr.io/null/registry.opentofu.org/hashicorp/random", "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			var sel provider.Selector
			if tc.include != "" {
				sel.Include = []provider.Pattern{provider.MustParsePattern(tc.include)}
			}
			tmpl, err := templates.Parse(tc.template, sel)
			if err != nil {
				t.Fatal(err)
			}
			repo, err := ociaddr.ParseRepository(tc.repository)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(tmpl.Addresses(repo)); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

func TestRegistryOfTemplate(t *testing.T) {
	for template, want := range map[string]string{
		"ghcr.io/acme/${hostname}/${namespace}/${type}":   "ghcr.io",
		"${namespace}.example.com/x/${hostname}/${type}":  "",
		"localhost:5000/${hostname}/${namespace}/${type}": "localhost:5000",
	} {
		tmpl, err := templates.Parse(template, provider.Selector{})
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := tmpl.Registry(); ok != (want != "") || ok && string(r) != want {
			t.Errorf("%s: %q %t, want %q", template, r, ok, want)
		}
	}
}
