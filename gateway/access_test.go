package gateway_test

import (
	"crypto/sha256"
	"encoding/json"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/provider"
)

// controlled makes the gateway require a token. "acme-token" covers acme's providers, and "other-token" covers
// the providers of registry.opentofu.org. "ops-token" is the token of an operator.
func (b *bench) controlled() {
	token := func(name, text, pattern string) access.Token {
		return access.Token{Name: name, SHA256: sha256.Sum256([]byte(text)), Selector: subject.Selector{Include: []subject.Pattern{provider.MustParsePattern(pattern)}}}
	}
	ops := token("ops", "ops-token", "*/*/*")
	ops.Operator = true
	b.options.Log = slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	b.options.Access = access.New(access.Options{Log: b.options.Log, Tokens: []access.Token{
		token("acme", "acme-token", host+"/acme/*"), token("other", "other-token", "registry.opentofu.org/*/*"), ops,
	}})
}

// as returns a copy of c that sends the given token.
func (c *client) as(token string) *client {
	shows := *c.http
	shows.Transport = withHeader{"Authorization", "Bearer " + token, c.http.Transport}
	return &client{c.t, c.s, &shows}
}

// archiveURL returns the URL of a platform's archive in VERSION.json.
func (c *client) archiveURL(version string, p provider.Platform) string {
	c.t.Helper()
	a := c.get(prefix + version + ".json")
	var doc struct {
		Archives map[string]struct{ URL string }
	}
	if err := json.Unmarshal([]byte(a.body), &doc); err != nil || doc.Archives[p.String()].URL == "" {
		c.t.Fatalf("%+v", a)
	}
	return prefix + doc.Archives[p.String()].URL
}

func TestAccessToDocumentsAndArchives(t *testing.T) {
	b := newBench(t)
	content := zip(t, linux)
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: content})
	b.controlled()
	anybody := b.serve()
	acme, other := anybody.as("acme-token"), anybody.as("other-token")
	plain := prefix + "1.0.0/linux_amd64/terraform-provider-widget_1.0.0_linux_amd64.zip"
	for _, path := range []string{prefix + "index.json", prefix + "1.0.0.json", prefix + "9.9.9.json", plain, "/providers/" + host + "/acme/absent/index.json"} {
		for c, status := range map[*client]int{anybody: 401, anybody.as("nonsense"): 401, other: 403} {
			a := c.get(path)
			if a.status != status || a.header.Get("Cache-Control") != "private, no-store" || (a.header.Get("WWW-Authenticate") != "") != (status == 401) {
				t.Errorf("%s: %+v, want %d", path, a, status)
			}
		}
	}
	if n := len(b.registry.Requests()); n != 0 {
		t.Errorf("clients without access caused %d requests to the registry", n)
	}
	for path, status := range map[string]int{
		prefix + "index.json": 200, prefix + "1.0.0.json": 200, plain: 200,
		"/providers/" + host + "/acme/absent/index.json": 404,
	} {
		if a := acme.get(path); a.status != status || status == 200 && strings.HasSuffix(path, ".json") && a.header.Get("Cache-Control") != "private, no-store" {
			t.Errorf("%s: %+v, want %d", path, a, status)
		}
	}

	// Anyone can download the archive by its URL. The capability in that URL opens no other file.
	url := acme.archiveURL("1.0.0", linux)
	if url == plain || !strings.HasSuffix(url, "/terraform-provider-widget_1.0.0_linux_amd64.zip") || strings.Contains(url, "?") {
		t.Errorf("the archive is at %s", url)
	}
	for _, c := range []*client{anybody, other, acme} {
		if a := c.get(url); a.status != http.StatusOK || a.body != string(content) {
			t.Errorf("%d, %d bytes", a.status, len(a.body))
		}
		if a := c.do(http.MethodHead, url); a.status != http.StatusOK || a.header.Get("Content-Length") == "" {
			t.Errorf("HEAD: %+v", a)
		}
	}
	if a := anybody.get(strings.Replace(url, "/cap1.", "/cap1.A", 1)); a.status != http.StatusForbidden {
		t.Errorf("altered: %+v", a)
	}
	if a := anybody.get(url + "/../index.json"); a.status == http.StatusOK {
		t.Errorf("dots: %+v", a)
	}
	if a := anybody.get("/healthz"); a.status != http.StatusOK {
		t.Errorf("healthz: %+v", a)
	}

	log := b.log.String()
	_, capability, _ := strings.Cut(url, "/cap1.")
	for _, s := range []string{capability[:40], "acme-token", "other-token", "Bearer"} {
		if strings.Contains(log, s) {
			t.Errorf("%q is in the log:\n%s", s, log)
		}
	}
	if !strings.Contains(log, `path=`+plain+` status=200`) || !strings.Contains(log, `capability=REDACTED subject="token acme"`) {
		t.Errorf("the log does not say who read the archive:\n%s", log)
	}
}

// TestCapabilityIsForOneDigest shows that the URL of an archive does not open another archive after the
// version's tag has moved.
func TestCapabilityIsForOneDigest(t *testing.T) {
	b := newBench(t)
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
	b.controlled()
	anybody := b.serve()
	url := anybody.as("acme-token").archiveURL("1.0.0", linux)
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, darwin)})
	b.options.Log = nil
	anybody = b.serve() // a new gateway with empty caches
	if a := anybody.get(url); a.status != http.StatusForbidden {
		t.Errorf("%+v", a)
	}
	if a := anybody.get(anybody.as("acme-token").archiveURL("1.0.0", linux)); a.status != http.StatusOK {
		t.Errorf("%+v", a)
	}
}

// TestCapabilityIsForOneSignature compares two replicas with the same capability keys. They have the same
// checksum document, but different signatures of it. The test shows that one replica accepts the other's
// capability for the document, and rejects its capability for the signature.
func TestCapabilityIsForOneSignature(t *testing.T) {
	one, two := newPublisher(newBench(t)), newPublisher(newBench(t))
	for _, p := range []*publisher{one, two} {
		p.push(widget, "1.0.0")
		p.controlled()
	}
	two.options.Access = one.options.Access
	first, second := one.serve(), two.serve()
	const at = hostsPrefix + "1.0.0/download/linux/amd64"
	a := first.as("acme-token").get(at)
	var doc struct {
		Sums      string `json:"shasums_url"`
		Signature string `json:"shasums_signature_url"`
	}
	if err := json.Unmarshal([]byte(a.body), &doc); err != nil || !strings.Contains(doc.Signature, "/cap1.") {
		t.Fatalf("%+v", a)
	}
	for url, statuses := range map[string][2]int{doc.Sums: {200, 200}, doc.Signature: {200, 403}} {
		url = path.Join(path.Dir(at), url)
		if a, b := first.get(url), second.get(url); a.status != statuses[0] || b.status != statuses[1] {
			t.Errorf("%s: %d, and from the other replica %d", url, a.status, b.status)
		}
	}
}

// TestEveryAnswerIsPrivate shows that responses are private if access is controlled. Even the response to an
// invalid range is private.
func TestEveryAnswerIsPrivate(t *testing.T) {
	p := newPublisher(newBench(t))
	r := p.push(widget, "1.0.0")
	p.cache()
	p.controlled()
	acme := p.serve().as("acme-token")
	archive := "1.0.0/linux_amd64/" + r.Package("linux", "amd64").Filename
	for path, want := range map[string]int{
		prefix + archive: 416, hostsPrefix + archive: 416, hostsPrefix + "1.0.0/checksums/" + r.SHA256SUMSName(): 416,
	} {
		ranged := *acme.http
		ranged.Transport = withHeader{"Range", "bytes=1000000-", acme.http.Transport}
		if a := (&client{t, acme.s, &ranged}).get(path); a.status != want || a.header.Get("Cache-Control") != "private, no-store" {
			t.Errorf("%s: %+v", path, a)
		}
	}
}

type withHeader struct {
	name, value string
	http.RoundTripper
}

func (h withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(h.name, h.value)
	return h.RoundTripper.RoundTrip(r)
}

// TestEveryRouteAsksForAToken checks that every route requires a token. The only exceptions are the open routes
// that the test lists. A new route must be guarded, or be added to the test's list.
func TestEveryRouteAsksForAToken(t *testing.T) {
	b := newBench(t)
	b.controlled()
	b.options.Registry = b.registry.Truth
	b.options.Log = nil
	anybody := b.serve()
	open := map[string]bool{"/healthz": true, "/.well-known/terraform.json": true, "/hosts/{hostname}/.well-known/terraform.json": true}
	values := strings.NewReplacer("{hostname}", host, "{namespace}", "acme", "{type}", "widget", "{name}", "net", "{system}", "aws", "{version}", "1.0.0",
		"{platform}", "linux_amd64", "{os}", "linux", "{arch}", "amd64", "{filename}", "file")
	routes := gateway.Paths(b.options.Options)
	for _, route := range routes {
		if open[route] {
			continue
		}
		asked := false
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			a := anybody.do(method, values.Replace(route))
			if asked = asked || a.status == http.StatusUnauthorized; a.status != http.StatusUnauthorized && a.status != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, route, a.status)
			}
		}
		if !asked {
			t.Errorf("%s does not require a token", route)
		}
	}
	if len(routes) < 5 || !slices.Contains(routes, "/-/refresh") {
		t.Errorf("routes: %q", routes)
	}
}

// TestAccessToWhatIsRemembered shows that a document requires a token even if the gateway has cached it.
func TestAccessToWhatIsRemembered(t *testing.T) {
	b := newBench(t)
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
	b.controlled()
	b.catalog(catalog.Options{})
	anybody := b.serve()
	acme, other := anybody.as("acme-token"), anybody.as("other-token")
	for _, path := range []string{prefix + "index.json", prefix + "1.0.0.json"} {
		for range 2 {
			if a := acme.get(path); a.status != http.StatusOK || a.header.Get("Cache-Control") != "private, no-store" {
				t.Errorf("%s: %+v", path, a)
			}
			for c, status := range map[*client]int{anybody: 401, other: 403} {
				if a := c.get(path); a.status != status {
					t.Errorf("%s: %+v, want %d", path, a, status)
				}
			}
		}
	}
	if got := b.requests(); got != "GET tags/list, GET manifests/1.0.0" {
		t.Errorf("requests to the registry: %s", got)
	}
}
