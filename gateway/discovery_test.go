package gateway_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/opentofu/svchost/disco"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	realorigin "github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// TestOwnHostByDiscovery shows that a client can install one of the gateway's own providers. At first, the
// client knows only the host name in the provider's address. It starts with service discovery on port 443.
func TestOwnHostByDiscovery(t *testing.T) {
	for name, public := range map[string]string{"plain": "https://example.com/", "other port": "https://Example.com:8443/", "below a path": "https://example.com/tf/"} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			own := provider.MustParseAddress("example.com/acme/widget")
			p := newPublisher(b)
			p.push(own, "1.0.0")
			b.options.PublicURL = parseURL(t, public)
			path := strings.TrimSuffix(b.options.PublicURL.Path, "/")
			h := gateway.NewBacked(b.options)
			// A proxy in front of the gateway passes on requests for service discovery. It removes the
			// public URL's path from all other requests.
			proxy := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/.well-known/terraform.json" {
					h.ServeHTTP(w, r)
					return
				}
				http.StripPrefix(path, h).ServeHTTP(w, r)
			}))
			t.Cleanup(proxy.Close)
			transport := proxy.Client().Transport.(*http.Transport).Clone()
			var mu sync.Mutex
			var asked []string
			transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				mu.Lock()
				asked = append(asked, addr)
				mu.Unlock()
				return (&net.Dialer{}).DialContext(ctx, network, proxy.Listener.Addr().String())
			}
			got := origin.Fetch(t, realorigin.NewRegistry(realorigin.RegistryOptions{Transport: transport}), own, "1.0.0")
			if sums, err := (trust.Policy{}).Accept(t.Context(), got.Claims); err != nil || sums.Verdict() != trust.Signed {
				t.Errorf("%v, %+v", err, sums)
			}
			for _, pkg := range got.Packages {
				if len(content(t, pkg)) == 0 {
					t.Errorf("%s is empty", pkg.Filename)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			// Clients send requests for documents to port 443. They send requests for files to the port of
			// the public URL.
			files := net.JoinHostPort(b.options.PublicURL.Host, "443")
			if b.options.PublicURL.Port() != "" {
				files = b.options.PublicURL.Host
			}
			if len(asked) == 0 || asked[0] != "example.com:443" || slices.ContainsFunc(asked, func(a string) bool { return a != "example.com:443" && a != files }) {
				t.Errorf("connections to %v", asked)
			}
		})
	}
}

func parseURL(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestDiscoveryDocument(t *testing.T) {
	for public, want := range map[string]string{
		"https://providers.example.com/":         `{"modules.v1":"/v1/modules/","providers.v1":"/v1/providers/"}`,
		"https://providers.example.com:8443/":    `{"modules.v1":"/v1/modules/","providers.v1":"/v1/providers/"}`,
		"https://providers.example.com/a/b%20c/": `{"modules.v1":"/a/b%20c/v1/modules/","providers.v1":"/a/b%20c/v1/providers/"}`,
		"https://bücher.example/":                `{"modules.v1":"/v1/modules/","providers.v1":"/v1/providers/"}`,
		"https://[::1]:8443/":                    "",
		"":                                       "",
	} {
		b := newBench(t)
		if public != "" {
			b.options.PublicURL = parseURL(t, public)
		}
		a := b.serve().get("/.well-known/terraform.json")
		if want == "" && a.status == http.StatusNotFound {
			continue
		}
		if a.status != http.StatusOK || a.body != want || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %+v", public, a)
		}
	}
}

// TestLoginIsAnnounced checks the description of the login service in the discovery document.
func TestLoginIsAnnounced(t *testing.T) {
	for name, login := range map[string]gateway.Login{
		"all":  {Client: "cli", Authz: "https://id.example/authorize?audience=x", Token: "https://id.example/token", Ports: [2]int{10000, 10010}, Scopes: []string{"openid", "groups"}},
		"less": {Client: "cli", Authz: "https://id.example/authorize", Token: "https://id.example/token"},
	} {
		for _, public := range []string{"https://example.com/tf/", "https://[::1]:8443/"} { // no provider address can contain [::1]
			b := newBench(t)
			b.options.PublicURL, b.options.Login = parseURL(t, public), &login
			h := gateway.NewBacked(b.options)
			server := httptest.NewTLSServer(h)
			defer server.Close()
			transport := server.Client().Transport.(*http.Transport).Clone()
			transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
			}
			found, err := disco.New(disco.WithHTTPClient(&http.Client{Transport: transport})).Discover(t.Context(), "example.com")
			if err != nil {
				t.Fatal(err)
			}
			got, err := found.ServiceOAuthClient("login.v1")
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			want := [2]int{int(got.MinPort), int(got.MaxPort)}
			if login.Ports == [2]int{} {
				want = [2]int{} // any port
			}
			if got.ID != login.Client || got.AuthorizationURL.String() != login.Authz || got.TokenURL.String() != login.Token ||
				want != login.Ports || !slices.Equal(got.Scopes, login.Scopes) || !got.SupportedGrantTypes.Has(disco.OAuthAuthzCodeGrant) {
				t.Errorf("%s: %+v", name, got)
			}
			if _, err := found.ServiceURL("providers.v1"); (err == nil) != (public == "https://example.com/tf/") {
				t.Errorf("%s: own providers: %v", public, err)
			}
		}
	}
}

// TestHostHeaderNamesNoProvider shows that the Host header of a request does not change which provider the
// gateway serves. An attacker or a proxy may have set that header.
func TestHostHeaderNamesNoProvider(t *testing.T) {
	b := newBench(t)
	p := newPublisher(b)
	p.push(provider.MustParseAddress("gateway.example/acme/widget"), "1.0.0")
	b.options.PublicURL = parseURL(t, "https://gateway.example:8443/")
	h := gateway.NewWithin(b.options, b.limits)
	for _, name := range []string{"gateway.example", "gateway.example:8443", "localhost:8443", host, "", "x/../y", "elsewhere.example"} {
		b.registry.Reset()
		r := httptest.NewRequest(http.MethodGet, "/v1/providers/acme/widget/versions", nil)
		r.Host = name
		r.Header.Set("X-Forwarded-Host", host)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK || b.registry.Count() == 0 || b.registry.Count() != b.registry.Count(recorder.PathContains("/gateway.example/acme/widget/")) {
			t.Errorf("Host %q: %d, requests %v", name, w.Code, b.registry.Requests())
		}
	}
}

// TestMirroredHostsAsClientsWriteThem checks the paths that clients request for mirrored hosts. One of
// these hosts has a port, and another is in Punycode.
func TestMirroredHostsAsClientsWriteThem(t *testing.T) {
	for _, want := range []string{"localhost:9443/acme/widget", "испытание.com/acme/widget", "gateway.example/acme/widget"} {
		b := newBench(t)
		b.options.PublicURL = parseURL(t, "https://gateway.example/")
		var asked []string
		b.options.Repository = func(_ context.Context, a subject.Address) (catalog.Store, error) {
			asked = append(asked, a.String())
			return nil, gateway.ErrNotServed
		}
		u := parseURL(t, gateway.RegistryURL("https://gateway.example/", provider.MustParseAddress(want).Hostname()))
		if resp := b.serve().getRaw(u.EscapedPath() + "acme/widget/versions"); resp.StatusCode != http.StatusNotFound || !slices.Equal(asked, []string{want}) {
			t.Errorf("%s: %d, opened the repositories of %v", u, resp.StatusCode, asked)
		}
	}
}

func TestNoOwnHost(t *testing.T) {
	b := newBench(t)
	newPublisher(b).push(widget, "1.0.0")
	c := b.serve()
	for _, path := range []string{"/.well-known/terraform.json", "/v1/providers/acme/widget/versions", "/v1/providers/acme/widget/1.0.0/download/linux/amd64"} {
		if a := c.get(path); a.status != http.StatusNotFound {
			t.Errorf("%s: %+v", path, a)
		}
	}
	if n := b.registry.Count(); n != 0 {
		t.Errorf("%d requests to the registry", n)
	}
}
