package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/gateway"
)

// TestWrongMirrorURL shows that a client whose network_mirror block has a wrong URL gets an answer with the right URL, which stops
// the client. All other unknown paths get 404, and no other route changes.
func TestWrongMirrorURL(t *testing.T) {
	b := newBench(t)
	right := "https://gateway.example:8443/providers/"
	for name, tc := range map[string]struct {
		path, host, public, right string
		status                    int
	}{
		"without /providers/":       {path: "/" + host + "/acme/widget/index.json", right: right, status: 307},
		"another path":              {path: "/mirror/" + host + "/acme/widget/index.json", right: right, status: 307},
		"a path of the registry":    {path: "/v1/providers/" + host + "/acme/widget/index.json", right: right, status: 307},
		"below the mirror":          {path: "/providers/x/" + host + "/acme/widget/index.json", right: right, status: 307},
		"a public URL":              {path: "/" + host + "/acme/widget/index.json", public: "https://example.com/tf/", right: "https://example.com/tf/providers/", status: 307},
		"a Host that is none":       {path: "/" + host + "/acme/widget/index.json", host: "evil\" x", right: "https://gateway.example/providers/", status: 307},
		"a version":                 {path: "/" + host + "/acme/widget/1.0.0.json", status: 404},
		"not a host":                {path: "/api/acme/widget/index.json", status: 404},
		"not an address":            {path: "/" + host + "/acme/-/index.json", status: 404},
		"an address that is short":  {path: "/" + host + "/acme/index.json", status: 404},
		"an encoded slash":          {path: "/" + host + "%2Facme/widget/index.json", status: 404},
		"two slashes":               {path: "//" + host + "/acme/widget/index.json", status: 404},
		"climbing":                  {path: "/x/../" + host + "/acme/widget/index.json", status: 404},
		"service discovery of none": {path: "/.well-known/terraform.json", status: 404},
		"the right path":            {path: "/providers/" + host + "/acme/widget/index.json", status: 404},
	} {
		b.options.PublicURL = nil
		if tc.public != "" {
			b.options.PublicURL = parseURL(t, tc.public)
		}
		if tc.host == "" {
			tc.host = "gateway.example:8443"
		}
		w := asks(gateway.NewWithin(b.options, b.limits), tc.path, tc.host, true)
		location := ""
		if tc.right != "" {
			location = "write-the-url-as:" + tc.right
		}
		if w.Code != tc.status || w.Header().Get("Location") != location || !strings.Contains(w.Body.String(), tc.right) {
			t.Errorf("%s: %d %q %s, want %d %q", name, w.Code, w.Header().Get("Location"), w.Body, tc.status, location)
		}
	}
}

// TestWrongMirrorURLIsLoggedOnce shows that each client is logged once for each wrong path.
func TestWrongMirrorURLIsLoggedOnce(t *testing.T) {
	b := newBench(t)
	h := gateway.NewWithin(b.options, b.limits)
	for range 3 {
		for _, client := range []string{"192.0.2.1:1", "192.0.2.1:2", "192.0.2.2:1"} {
			for _, path := range []string{"/" + host + "/acme/widget/index.json", "/" + host + "/acme/gadget/index.json", "/mirror/" + host + "/acme/widget/index.json"} {
				r := httptest.NewRequest(http.MethodGet, "https://gateway.example"+path, nil)
				r.RemoteAddr = client
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
		}
	}
	if n := strings.Count(b.log.String(), "network_mirror block has a wrong URL"); n != 4 {
		t.Errorf("%d lines, want 4:\n%s", n, b.log)
	}
	if !strings.Contains(b.log.String(), `https://gateway.example/providers/`) {
		t.Errorf("the log does not name the right URL:\n%s", b.log)
	}
}
