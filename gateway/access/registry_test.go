package access_test

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

func basic(password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("anybody:"+password))
}

func TestRegistry(t *testing.T) {
	c := access.New(access.Options{Tokens: []access.Token{
		token("all", "all-token"), token("acme", "acme-token", "registry.acme.example/acme/*"),
		token("every-provider", "providers-token", "*/*/*"), moduleToken("net", "net-token", "registry.acme.example/acme/net/*"),
		moduleToken("every-module", "modules-token", "*/*/*/*"),
	}})
	reached := false
	h := c.Handler(c.GuardRegistry(func(name string) (subject.Address, error) {
		parts := strings.Split(name, "/")
		switch len(parts) {
		case 3:
			return provider.AddressFromPath(parts[0], parts[1], parts[2])
		case 5:
			return module.AddressFromPath(parts[1], parts[2], parts[3], parts[4])
		}
		return nil, errors.New("no provider and no module")
	}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true })))
	const mine, other = "/v2/registry.acme.example/acme/widget", "/v2/registry.acme.example/secret/widget"
	const net, vpc = "/v2/modules/registry.acme.example/acme/net/aws", "/v2/modules/registry.acme.example/acme/vpc/aws"
	for _, tt := range []struct {
		path, authorization string
		status              int
	}{
		{"/v2/", "", 401},
		{"/v2/", basic("nonsense"), 401},
		{"/v2/", basic("acme-token"), 200},
		{"/v2/", "Bearer acme-token", 200},
		{mine + "/tags/list", "", 401},
		{mine + "/tags/list", basic("acme-token"), 200},
		{mine + "/tags/list?n=5", basic("acme-token"), 200},
		{mine + "/manifests/1.0.0", basic("acme-token"), 200},
		{mine + "/manifests/sha256:00", basic("acme-token"), 200},
		{mine + "/blobs/sha256:00", basic("acme-token"), 200},
		{mine + "/referrers/sha256:00", basic("acme-token"), 200},
		{other + "/tags/list", basic("acme-token"), 403},
		{other + "/manifests/1.0.0", basic("acme-token"), 403},
		{other + "/blobs/sha256:00", basic("acme-token"), 403},
		{other + "/blobs/sha256:00", basic("all-token"), 200},
		{"/v2/absent/absent/absent/tags/list", basic("acme-token"), 403},
		{"/v2/_catalog", basic("acme-token"), 403},
		{"/v2/_catalog", basic("all-token"), 200},
		// Modules, and catalogs with both kinds.
		{net + "/tags/list", basic("all-token"), 200},
		{net + "/tags/list", basic("acme-token"), 403},
		{net + "/tags/list", basic("providers-token"), 403},
		{net + "/tags/list", basic("net-token"), 200},
		{vpc + "/tags/list", basic("net-token"), 403},
		{vpc + "/tags/list", basic("modules-token"), 200},
		{mine + "/tags/list", basic("modules-token"), 403},
		{mine + "/tags/list", basic("net-token"), 403},
		{other + "/tags/list", basic("providers-token"), 200},
		{"/v2/_catalog", basic("providers-token"), 403},
		{"/v2/_catalog", basic("modules-token"), 403},
		// Paths that the registry might parse differently.
		{mine + "/../../secret/widget/tags/list", basic("acme-token"), 403},
		{mine + "/%2e%2e/%2e%2e/secret/widget/tags/list", basic("acme-token"), 403},
		{"/v2/registry.acme.example/acme/widget%2Fmanifests/1.0.0", basic("acme-token"), 403},
		{mine + "//tags/list", basic("acme-token"), 403},
		{mine + "/tags/list/", basic("acme-token"), 403},
		{mine + "/tags/other", basic("acme-token"), 403},
		{mine + "/more/tags/list", basic("acme-token"), 403},
		{mine + "/blobs/uploads/", basic("acme-token"), 403},
		{"/v2/registry.acme.example/cap1.x/widget/tags/list", basic("acme-token"), 403},
	} {
		reached = false
		r := httptest.NewRequest(http.MethodGet, tt.path, nil)
		r.Header.Set("Authorization", tt.authorization)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tt.status || reached != (tt.status == 200) {
			t.Errorf("%s %s: %d, reached: %t; want %d", tt.path, tt.authorization, w.Code, reached, tt.status)
		}
		if got := w.Header().Get("WWW-Authenticate"); (got == `Basic realm="ocibridge"`) != (tt.status == 401) {
			t.Errorf("%s: WWW-Authenticate: %q", tt.path, got)
		}
		if tt.status == 403 && !strings.Contains(w.Body.String(), `"code":"DENIED"`) {
			t.Errorf("%s: %s", tt.path, w.Body)
		}
	}
}

// TestEverything shows that a token reads everything only if its patterns select all addresses of every kind, and that this
// includes a kind that is added later.
func TestEverything(t *testing.T) {
	providers, modules := subject.Pattern(provider.MustParsePattern("*/*/*")), subject.Pattern(module.MustParsePattern("*/*/*/*"))
	acme := subject.Pattern(module.MustParsePattern("registry.acme.example/*/*/*"))
	later := append(slices.Clone(subject.Kinds), "later")
	for name, tt := range map[string]struct {
		selector subject.Selector
		kinds    []subject.Kind
		want     bool
	}{
		"no patterns":           {subject.Selector{}, later, true},
		"all kinds":             {subject.Selector{Include: []subject.Pattern{modules, providers}}, subject.Kinds, true},
		"providers":             {subject.Selector{Include: []subject.Pattern{providers}}, subject.Kinds, false},
		"some modules":          {subject.Selector{Include: []subject.Pattern{providers, acme}}, subject.Kinds, false},
		"all but some":          {subject.Selector{Exclude: []subject.Pattern{acme}}, subject.Kinds, false},
		"not the kind of later": {subject.Selector{Include: []subject.Pattern{modules, providers}}, later, false},
	} {
		if got := access.Everything(tt.selector, tt.kinds); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
