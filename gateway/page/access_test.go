package page_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/page"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/provider"
)

func TestGatewayAddress(t *testing.T) {
	for name, tc := range map[string]struct{ host, public, want string }{
		"asked":               {host: "Mirror.example:8443", want: "https://mirror.example:8443/"},
		"an address":          {host: "[::1]:8443", want: "https://[::1]:8443/"},
		"public":              {host: "mirror.example", public: "https://providers.example.com/below/", want: "https://providers.example.com/below/"},
		"not a host":          {host: "a b", want: "https://fallback.example:8443/"},
		"a login":             {host: "user@mirror.example", want: "https://fallback.example:8443/"},
		"a path":              {host: "mirror.example/evil", want: "https://fallback.example:8443/"},
		"breaks out of HCL":   {host: `x"${file("y")}`, want: "https://fallback.example:8443/"},
		"no port of any kind": {host: "mirror.example:", want: "https://fallback.example:8443/"},
		"none":                {want: "https://fallback.example:8443/"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.options.Address = &url.URL{Scheme: "https", Host: "fallback.example:8443", Path: "/"}
			if tc.public != "" {
				b.options.PublicURL, _ = url.Parse(tc.public)
			}
			b.options.Setup = func(gateway string, private bool, _, _ []svchost.Hostname) page.Setup {
				return page.Setup{Hosts: fmt.Sprintf("private=%v at=%s;", private, gateway)}
			}
			c := b.serve(nil)
			req := httptest.NewRequest(http.MethodGet, "/", nil)
			req.Host = tc.host
			if a := c.do(req); !strings.Contains(a.text(), "private=true at="+tc.want+";") {
				t.Errorf("no %s in:\n%s", tc.want, a.text())
			}
		})
	}
}

func token(name, text, pattern string) access.Token {
	return access.Token{Name: name, SHA256: sha256.Sum256([]byte(text)), Selector: subject.Selector{Include: []subject.Pattern{provider.MustParsePattern(pattern)}}}
}

func TestAccess(t *testing.T) {
	b := newBench(t)
	b.index(widget, "1.0.0", artifact.Version{})
	n := &telemetry.AccessCounters{}
	b.options.Configured = []subject.Address{widget, provider.MustParseAddress(host + "/others/secret")}
	b.options.Setup = func(_ string, private bool, _, _ []svchost.Hostname) page.Setup {
		tool := page.Tool{Name: "renovate", Title: "Renovate", Where: "renovate.json", About: "It reads this.", Text: "{}\n"}
		return page.Setup{Credentials: fmt.Sprintf("private=%v", private), Tools: []page.Tool{tool}}
	}
	anybody := b.serve(access.New(access.Options{Counters: n, Tokens: []access.Token{token("acme", "acme-token", host+"/acme/*"), token("other", "other-token", "other.example/*/*")}}))
	basic := func(password string) *client {
		c := *anybody
		c.authorization = "Basic " + base64.StdEncoding.EncodeToString([]byte("person:"+password))
		return &c
	}
	acme, other, wrong := basic("acme-token"), basic("other-token"), basic("nonsense")
	bearer := *anybody
	bearer.authorization = "Bearer acme-token"
	absent := "/p/" + host + "/acme/absent"
	for i, visit := range []struct {
		c                  *client
		path               string
		unknown, forbidden uint64 // the refusals that are counted so far
	}{
		{anybody, "/", 0, 0}, {wrong, "/", 1, 0}, {acme, "/", 1, 0}, {anybody, "/search", 2, 0}, {wrong, widgetPage, 3, 0}, {other, widgetPage, 3, 1}, {acme, widgetPage, 3, 1},
	} {
		visit.c.get(visit.path)
		if u, f := n.Unknown.Load(), n.Forbidden.Load(); u != visit.unknown || f != visit.forbidden {
			t.Errorf("visit %d of %s: %d unknown and %d forbidden are counted, want %d and %d", i, visit.path, u, f, visit.unknown, visit.forbidden)
		}
	}
	for path, want := range map[string]struct{ anybody, acme, other int }{
		"/": {200, 200, 200}, "/search?q=null": {401, 200, 200}, "/sign-in": {401, 303, 303},
		widgetPage: {401, 200, 403}, widgetPage + "/1.0.0": {401, 200, 403}, widgetPage + "/9.9.9": {401, 404, 403}, absent: {401, 404, 403},
		"/p/" + host + "/others/secret": {401, 403, 403}, "/p/x/y/z z": {401, 404, 404},
	} {
		for c, status := range map[*client]int{anybody: want.anybody, wrong: want.anybody, acme: want.acme, &bearer: want.acme, other: want.other} {
			a := c.want(strings.ReplaceAll(path, " ", "%20"), status)
			if a.header.Get("Cache-Control") != "private, no-store" {
				t.Errorf("%s: %v", path, a.header)
			}
			if got := a.header.Get("WWW-Authenticate"); (status == 401) != strings.HasPrefix(got, "Basic ") {
				t.Errorf("%s: %d with %q", path, status, got)
			}
		}
	}
	for _, c := range []*client{anybody, wrong} {
		if a := c.want("/", 200, "private=false", "Sign in", "sign in"); strings.Contains(a.body, host) {
			t.Errorf("strangers see providers:\n%s", a.text())
		}
	}
	for _, path := range []string{"/", "/search", "/search?q=acme.example"} {
		if a := acme.want(path, 200, "Signed in with token acme", "widget 1.0.0"); strings.Contains(a.body, "secret") {
			t.Errorf("%s: what others may read is listed:\n%s", path, a.text())
		}
	}
	acme.want("/", 200, "private=true", "Renovate It reads this. renovate.json {}")
	other.want(widgetPage, 403, "Not allowed", "whether or not it exists")
	if strings.Contains(b.log.String(), "-token") {
		t.Errorf("the log:\n%s", b.log)
	}
}
