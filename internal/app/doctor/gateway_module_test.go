package doctor

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// moduleGateway answers the requests for a module by path: a status, a header X-Terraform-Get and a body.
type moduleGateway map[string]struct {
	status int
	get    string
	body   string
}

// ServeHTTP implements [http.Handler].
func (g moduleGateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, ok := g[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	if w.Header().Set("Content-Type", "application/json"); a.get != "" {
		w.Header().Set("X-Terraform-Get", a.get)
	}
	w.WriteHeader(a.status)
	fmt.Fprint(w, a.body)
}

// TestGatewayOfModules shows the diagnosis of a module of the gateway's own host, and of a module of another host. Each case
// changes one answer of a gateway that works.
func TestGatewayOfModules(t *testing.T) {
	const zip = "./cap1.MARK-capability/vpc-1.10.0.zip?archive=zip"
	const own, other = "/v1/modules/platform/vpc/aws/", "/hosts/registry.acme.example/v1/modules/platform/vpc/aws/"
	type answer = struct {
		status int
		get    string
		body   string
	}
	for name, tc := range map[string]struct {
		own    bool
		path   string
		answer answer
		check  string
		status Status
		detail string
	}{
		"it works":                  {check: "archive", status: OK, detail: "12 bytes, HEAD answers 200"},
		"no discovery":              {check: "discovery", status: Skipped, detail: `clients need a host block for registry.acme.example with "modules.v1" = "https://127.0.0.1:`},
		"the newest version":        {check: "versions", status: OK, detail: "2 versions of registry.acme.example/platform/vpc/aws, the newest 1.10.0"},
		"own modules":               {own: true, check: "archive", status: OK, detail: "12 bytes"},
		"own discovery":             {own: true, check: "discovery", status: OK, detail: "/v1/modules/"},
		"no discovery document":     {own: true, path: "/.well-known/terraform.json", answer: answer{404, "", ""}, check: "discovery", status: Fail, detail: "answers 404"},
		"no modules in it":          {own: true, path: "/.well-known/terraform.json", answer: answer{200, "", `{"providers.v1":"/v1/providers/"}`}, check: "discovery", status: Fail, detail: "has no modules.v1"},
		"a plain HTTP URL in it":    {own: true, path: "/.well-known/terraform.json", answer: answer{200, "", `{"modules.v1":"http://a.example/"}`}, check: "discovery", status: Fail, detail: "no https URL"},
		"no such module":            {path: other + "versions", answer: answer{404, "", ""}, check: "versions", status: Warn, detail: "is not there: clients fail"},
		"a token is required":       {path: other + "versions", answer: answer{401, "", ""}, check: "versions", status: Fail, detail: "answers 401"},
		"no versions":               {path: other + "versions", answer: answer{200, "", `{"modules":[{"versions":[]}]}`}, check: "versions", status: Warn, detail: "lists no version"},
		"a version that is none":    {path: other + "versions", answer: answer{200, "", `{"modules":[{"versions":[{"version":"latest"}]}]}`}, check: "versions", status: Fail, detail: "latest"},
		"a denied version":          {path: other + "1.10.0/download", answer: answer{451, "", ""}, check: "download", status: Fail, detail: "answers 451"},
		"no X-Terraform-Get":        {path: other + "1.10.0/download", answer: answer{200, "", `{"location":"` + zip + `"}`}, check: "download", status: Fail, detail: "X-Terraform-Get and the location in the document differ"},
		"an oci:// address":         {path: other + "1.10.0/download", answer: answer{200, "oci://ghcr.io/a?digest=sha256:MARK-d", `{"location":"oci://ghcr.io/a?digest=sha256:MARK-d"}`}, check: "download", status: Warn, detail: "oci://ghcr.io/a: OpenTofu downloads it"},
		"an origin's other address": {path: other + "1.10.0/download", answer: answer{204, "git::https://a.example/MARK-b", ""}, check: "archive", status: Skipped, detail: "the form git:"},
		"a zip that is none":        {path: other + "1.10.0/cap1.MARK-capability/vpc-1.10.0.zip", answer: answer{200, "", "<html>"}, check: "archive", status: Fail, detail: "/1.10.0/.../vpc-1.10.0.zip is no zip"},
	} {
		t.Run(name, func(t *testing.T) {
			root := other
			if tc.own {
				root = own
			}
			g := moduleGateway{
				"/.well-known/terraform.json":                       {200, "", `{"modules.v1":"/v1/modules/"}`},
				root + "versions":                                   {200, "", `{"modules":[{"versions":[{"version":"1.10.0"},{"version":"1.9.0"}]}]}`},
				root + "1.10.0/download":                            {200, zip, `{"location":"` + zip + `"}`},
				root + "1.10.0/cap1.MARK-capability/vpc-1.10.0.zip": {200, "", zipMagic + "the rest"},
			}
			if tc.path != "" {
				g[tc.path] = tc.answer
			}
			got := moduleChecks(t, g, "", tc.own)
			want(t, got, tc.check, tc.status, tc.detail)
			want(t, got, "clock", OK, "")
		})
	}
	got := moduleChecks(t, moduleGateway{}, "providers/", false)
	want(t, got, "versions", Fail, "because the URL is that of the network mirror")
	if help := got["versions"].Hint; !strings.HasPrefix(help, "write the URL of the gateway as https://127.0.0.1:") || !strings.HasSuffix(help, "/") || strings.Contains(help, "providers") {
		t.Errorf("hint %q", help)
	}
}

// moduleChecks serves a gateway over TLS, and diagnoses a module as a client that has a token. path is the path of the
// URL that the user gives.
func moduleChecks(t *testing.T, h http.Handler, path string, own bool) map[string]Check {
	t.Helper()
	srv := httptest.NewTLSServer(h)
	t.Cleanup(srv.Close)
	x := Gateway{
		URL: srv.URL + "/" + path, Subject: vpc, TokenHost: "registry.acme.example", TokenSource: "a test",
		Prepare:   func(r *http.Request) { r.Header.Set("Authorization", "Bearer MARK-token") },
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	if own {
		x.Discovery = srv.URL + "/.well-known/terraform.json"
	} else {
		x.Modules = srv.URL + "/" + path + "hosts/registry.acme.example/v1/modules/"
	}
	r := x.Examine(t.Context())
	if s := fmt.Sprint(r); strings.Contains(s, "MARK-") {
		t.Errorf("a secret is in %s", s)
	}
	return checks(t, r)
}
