package serve

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/opentofu/svchost"
	"oras.land/oras-go/v2/content"

	"github.com/ocibridge/ocibridge/internal/registries/embedded"
	"github.com/ocibridge/ocibridge/module"
)

// TestLocalModules shows that requests for modules need a capability, and lose their credentials.
func TestLocalModules(t *testing.T) {
	l := startLocal(t, http.StatusOK)
	right := l.ModulesURL("registry.acme.example") + "acme/vpc/aws/1.0.0/download"
	if resp := l.ask(right + "?a=b"); resp.StatusCode != http.StatusOK || len(l.served) != 1 {
		t.Fatalf("status %d, %d requests", resp.StatusCode, len(l.served))
	}
	r := l.served[0]
	if want := "/hosts/registry.acme.example/v1/modules/acme/vpc/aws/1.0.0/download"; r.URL.Path != want || r.RequestURI != want+"?a=b" || r.Header.Get("Authorization")+r.Header.Get("Cookie") != "" {
		t.Errorf("URI %s, headers %v", r.RequestURI, r.Header)
	}
	for name, at := range map[string]string{
		"no capability":      strings.Replace(right, l.capability+"/", "", 1),
		"another capability": strings.Replace(right, l.capability, "A", 1),
		"the exit":           strings.Replace(right, l.capability, l.exit, 1),
		"no module":          l.ModulesURL("registry.acme.example") + "acme/vpc/versions",
		"no address":         l.ModulesURL("registry.acme.example") + "acme/-/aws/versions",
		"dots":               l.ModulesURL("registry.acme.example") + "acme/vpc/aws/../../../../../../metrics",
	} {
		if resp := l.ask(at); resp.StatusCode != http.StatusNotFound || len(l.served) != 1 {
			t.Errorf("%s: status %d, %d requests", name, resp.StatusCode, len(l.served))
		}
	}
}

// TestLocalModuleExit shows which modules a client gets from their origin, and that the origin, which learns the URL
// that redirected the client, learns nothing that opens the gateway.
func TestLocalModuleExit(t *testing.T) {
	l := startLocal(t, http.StatusOK)
	for text, want := range map[string]string{
		"registry.acme.example/acme/vpc/aws":    "<nil> <nil>",
		"registry.acme.example/public/vpc/aws":  "URL",
		"registry.acme.example/other/vpc/aws":   "URL",
		"none.example/other/vpc/aws":            "<nil> <nil>",
		"registry.unknown.example/public/v/aws": "<nil> unknown",
	} {
		at, err := l.moduleExit(t.Context(), module.MustParseAddress(text))
		if want == "URL" {
			want = fmt.Sprintf("http://%s/%s/hosts/registry.acme.example/v1/modules/ <nil>", l.site.settings.local.Host, l.exit)
		}
		if got := fmt.Sprint(at, " ", err); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	var referer, token string
	origin := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		referer, token = r.Referer(), r.Header.Get("Authorization")
	}))
	defer origin.Close()
	// Another host name than the gateway's, as every origin has.
	at, err := url.Parse(strings.Replace(origin.URL, "127.0.0.1", "localhost", 1))
	if err != nil {
		t.Fatal(err)
	}
	l.o.ModuleOrigin = func(svchost.Hostname) (*url.URL, error) { return at, nil }
	l.site.handler = l.real
	req, err := http.NewRequest(http.MethodGet, l.ModulesURL("registry.acme.example")+"other/vpc/aws/versions", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer origin-token")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if !strings.Contains(referer, "/other/vpc/aws/versions") || strings.Contains(referer, l.capability) || token != "" {
		t.Errorf("the origin sees the referer %q and the token %q", referer, token)
	}
}

// TestStoredHosts shows that the hosts of modules and providers come from the embedded registry's folder.
func TestStoredHosts(t *testing.T) {
	dir := t.TempDir()
	if got, err := StoredModuleHosts(dir); got != nil || err != nil {
		t.Errorf("an empty folder: %v, %v", got, err)
	}
	r, err := embedded.Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, name := range []string{"modules/registry.acme.example/acme/vpc/aws", "registry.other.example/acme/widget", "modules/acme/widget"} {
		repo, err := r.Repository(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := repo.Push(t.Context(), content.NewDescriptorFromBytes("", []byte("x")), strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := StoredModuleHosts(dir); fmt.Sprint(got) != "[registry.acme.example]" || err != nil {
		t.Errorf("modules: %v, %v", got, err)
	}
	if got, err := StoredProviderHosts(dir); fmt.Sprint(got) != "[registry.other.example]" || err != nil {
		t.Errorf("providers: %v, %v", got, err)
	}
}
