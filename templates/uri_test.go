package templates_test

import (
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
)

// TestURITemplate shows that the URI template and the repository template lead to the same
// repository. The URI template is expanded as by tofu providers lock -oci-mirror.
func TestURITemplate(t *testing.T) {
	a := provider.MustParseAddress("registry.acme.example/acme/widget")
	for source, want := range map[string]string{
		"ghcr.io/acme/${hostname}/${namespace}/${type}":                                                           "ghcr.io/acme/{hostname}/{namespace}/{type}",
		"localhost:5000/${ hostname }/${namespace}-${type}":                                                       "localhost:5000/{hostname}/{namespace}-{type}",
		"${hostname}/${namespace}/terraform-provider-${type}":                                                     "{hostname}/{namespace}/terraform-provider-{type}",
		"ghcr.io/${type}/${hostname}/${namespace}/${type}":                                                        "ghcr.io/{type}/{hostname}/{namespace}/{type}",
		"[::1]:5000/${hostname}/${namespace}/${type}":                                                             "[::1]:5000/{hostname}/{namespace}/{type}",
		"ghcr.io/the/${\"w\"}/${hostname}/${namespace}/${type}":                                                   "",
		"ghcr.io/${hostname == \"registry.acme.example\" ? \"own\" : \"other\"}/${hostname}/${namespace}/${type}": "",
		"ghcr.io/%{ if type == \"widget\" }own%{ else }other%{ endif }/${hostname}/${namespace}/${type}":          "",
	} {
		got, ok := templates.URITemplate(source)
		if got != want || ok != (want != "") {
			t.Errorf("%s: %q, %t; want %q", source, got, ok, want)
			continue
		}
		parsed, err := templates.Parse(source, provider.Selector{})
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		repository, err := parsed.Repository(a)
		expanded := strings.NewReplacer("{hostname}", a.Hostname(), "{namespace}", a.Namespace(), "{type}", a.Type()).Replace(got)
		if err != nil || ok && expanded != repository.String() {
			t.Errorf("%s: %s, %v; want %s", source, repository, err, expanded)
		}
	}
	for _, source := range []string{"", "${hostname}", "${hostname.x}", "ghcr.io/${unknown}", "ghcr.io/${hostname", "ghcr.io/$${hostname}", "ghcr.io/it's"} {
		if got, ok := templates.URITemplate(source); ok && got != "" {
			t.Errorf("%q: %q", source, got)
		}
	}
}
