package access_test

import (
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

func moduleToken(name, text string, patterns ...string) access.Token {
	var s subject.Selector
	for _, p := range patterns {
		s.Include = append(s.Include, module.MustParsePattern(p))
	}
	return access.Token{Name: name, SHA256: sha256.Sum256([]byte(text)), Selector: s}
}

// TestModules shows which tokens read which modules, and that a capability opens only a file of
// a module that its token covers.
func TestModules(t *testing.T) {
	both := token("both", "both", "registry.acme.example/acme/*")
	both.Selector.Include = append(both.Selector.Include, moduleToken("", "", "registry.acme.example/acme/*/*").Selector.Include...)
	except := access.Token{Name: "except", SHA256: sha256.Sum256([]byte("except"))}
	except.Selector.Exclude = []subject.Pattern{module.MustParsePattern("registry.acme.example/Acme/VPC/*")}
	control := access.New(access.Options{Tokens: []access.Token{
		token("all", "all"), token("providers", "providers", "*/*/*"), moduleToken("modules", "modules", "*/*/*/*"),
		moduleToken("net", "net", "registry.acme.example/acme/net/*"), both, except,
	}})
	const dir = "/v1/modules/registry.acme.example/acme/"
	address := func(r *http.Request) (module.Address, error) {
		parts := strings.Split(r.URL.Path, "/")
		return module.AddressFromPath(parts[3], parts[4], parts[5], parts[6])
	}
	h := control.Handler(access.Guard(control, address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".zip") {
			if !access.Covers(r.Context(), archive) {
				control.ForbidCapability(w)
			}
			return
		}
		a, _ := address(r)
		w.Write([]byte(control.Link(r, a, "archive.zip", archive)))
	})))
	get := func(path, token string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for token, want := range map[string][2]int{ // the statuses for net and vpc
		"": {401, 401}, "unknown": {401, 401}, "all": {200, 200}, "providers": {403, 403}, "modules": {200, 200},
		"net": {200, 403}, "both": {200, 200}, "except": {200, 403},
	} {
		if net, vpc := get(dir+"net/aws/1.0.0/download", token).Code, get(dir+"vpc/aws/1.0.0/download", token).Code; net != want[0] || vpc != want[1] {
			t.Errorf("token %q: %d and %d, want %v", token, net, vpc, want)
		}
	}
	for _, token := range []string{"net", "both"} {
		link := dir + "net/aws/1.0.0/" + get(dir+"net/aws/1.0.0/download", token).Body.String()
		if code := get(link, "").Code; code != http.StatusOK {
			t.Errorf("%s: %d", link, code)
		}
		for _, other := range []string{strings.Replace(link, "/net/", "/vpc/", 1), strings.Replace(link, "1.0.0", "1.0.1", 1)} {
			if code := get(other, "").Code; code != http.StatusForbidden {
				t.Errorf("%s: %d", other, code)
			}
		}
	}
}

// TestPersonReadsModules shows which modules and providers the page lists for a client.
func TestPersonReadsModules(t *testing.T) {
	control := access.New(access.Options{Tokens: []access.Token{
		token("all", "all"), token("providers", "providers", "*/*/*"), moduleToken("modules", "modules", "*/*/*/*"),
	}})
	widget, net := provider.MustParseAddress("registry.acme.example/acme/widget"), module.MustParseAddress("registry.acme.example/acme/net/aws")
	for token, want := range map[string][2]bool{"all": {true, true}, "providers": {true, false}, "modules": {false, true}} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", basic(token))
		s, err := control.Person(r)
		if err != nil || s.MayRead(widget) != want[0] || s.MayRead(net) != want[1] {
			t.Errorf("%s: %v, %t, %t", token, err, s.MayRead(widget), s.MayRead(net))
		}
	}
	var open *access.Control
	if s, err := open.Person(httptest.NewRequest(http.MethodGet, "/", nil)); err != nil || !s.MayRead(net) {
		t.Errorf("without access control: %v", err)
	}
}
