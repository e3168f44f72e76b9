package page_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/gateway/page"
	"github.com/ocibridge/ocibridge/gateway/verify"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/stored"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

const widgetPage = "/p/" + host + "/acme/widget"

func TestSignatureStates(t *testing.T) {
	b := newBench(t)
	b.origin.About("https://code.acme.example/widget", "2025-03-04T05:06:07Z")
	r := b.push(widget, "1.0.0", true)
	b.push(widget, "1.1.0", false)
	b.index(widget, "1.2.0", artifact.Version{})
	b.index(widget, "1.1.1", artifact.Version{Evidence: b.evidence(widget, nil, "a mirror")})
	fingerprint := b.signer.Fingerprint()
	b.options.Reference = func(gateway string, a provider.Address, v provider.Version) string {
		return strings.TrimPrefix(gateway, "https://") + a.Path() + ":" + v.String()
	}
	c := b.serve(nil)
	c.want(widgetPage+"/1.0.0", 200, "1.0.0 signed", fingerprint, "a key that came with the packages", "Source "+host+", signed by the key below", "5.0, 6.1", "Published 4 March 2025", "Source code https://code.acme.example/widget", "version = &#34;~&gt; 1.0&#34;",
		"zh:"+r.Packages[0].SHA256, "h1:", r.Packages[0].Filename, "linux_amd64", "darwin_arm64", "gateway.example/"+widget.Path()+":1.0.0",
		`source = &#34;`+widget.String()+`&#34;`, "1.2.0 no evidence", "1.1.0 checksum only", "1.0.0 signed")
	c.want(widgetPage+"/1.1.0", 200, "1.1.0 checksum only", "Source "+host)
	c.want(widgetPage+"/1.1.1", 200, "1.1.1 checksum only", "there is nothing to check now", "1.1.1 checksum only")
	c.want(widgetPage, 200, "1.2.0 newest no evidence")

	b.push(widget, "0.9.0", true)
	stored.ReplaceEvidence(t, b.repository(widget), widget.String(), "0.9.0", stored.Commented(t, b.signer))
	if a := b.serve(nil).want(widgetPage+"/0.9.0", 200, "0.9.0 evidence not valid"); strings.Contains(a.text(), "SHA256SUMS") {
		t.Errorf("the page offers a malformed checksum document: %s", a.text())
	}

	b.options.Policy = func(provider.Address) trust.Policy { return trust.Policy{Keys: []string{fingerprint}} }
	c = b.serve(nil)
	c.want(widgetPage+"/1.0.0", 200, "signed pinned key", fingerprint)
	c.want(widgetPage+"/1.1.0", 200, "not signed by a pinned key")
	b.options.Policy = func(provider.Address) trust.Policy { return trust.Policy{Keys: []string{strings.Repeat("A", 40)}} }
	if a := b.serve(nil).want(widgetPage+"/1.0.0", 200, "not signed by a pinned key"); strings.Contains(a.text(), fingerprint) {
		t.Errorf("the page names a signer that is not pinned: %s", a.text())
	}

	b.lie("/blobs/", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "down", http.StatusServiceUnavailable) })
	b.serve(nil).want(widgetPage+"/1.0.0", 200, "not known now", "did not return the evidence", "zh:"+r.Packages[0].SHA256)
}

// TestSignedUnderAnotherName shows that the page marks a version if its signed file names are not the
// standard file names.
func TestSignedUnderAnotherName(t *testing.T) {
	b := newBench(t)
	b.zips = "Widget"
	b.push(widget, "1.0.0", true)
	b.zips = ""
	b.push(widget, "1.1.0", true)
	c := b.serve(nil)
	a := c.want(widgetPage+"/1.0.0", 200, "signed under another name Use it", b.signer.Fingerprint(), "Widget_linux_amd64.zip signed under another name", "1.0.0 signed under another name", "1.1.0 signed")
	for _, wrong := range []string{"does not vouch", "Not all platforms"} {
		if strings.Contains(a.text(), wrong) {
			t.Errorf("the page says %q: %s", wrong, a.text())
		}
	}
	if a := c.want(widgetPage+"/1.1.0", 200, "1.1.0 newest signed Use it"); strings.Contains(a.text(), "1.1.0 newest signed under another name") {
		t.Errorf("the other version: %s", a.text())
	}
}

func TestVersionsAreListedNewestFirst(t *testing.T) {
	b := newBench(t)
	for i := range 22 {
		b.index(widget, fmt.Sprintf("1.%d.0", i), artifact.Version{})
	}
	b.index(widget, "2.0.0-beta.1", artifact.Version{})
	denied, err := provider.ParseConstraint("1.20.0")
	b.must(err)
	b.catalog.Deny = []catalog.Deny{{Pattern: widget.Pattern(), Versions: denied, Reason: "it <b>leaks</b>"}}
	c := b.serve(nil)
	a := c.want(widgetPage, 200, "1.21.0 newest", "Versions 23", "Page 1 of 2", "1.20.0 denied it &lt;b&gt;leaks&lt;/b&gt;")
	order := []string{"2.0.0-beta.1", "1.21.0", "1.19.0", "1.10.0", "1.9.0"}
	for i, v := range order {
		at := strings.Index(a.body, `acme/widget/`+v+`"`)
		if at < 0 || i > 0 && at < strings.Index(a.body, `acme/widget/`+order[i-1]+`"`) {
			t.Errorf("%s is missing or in the wrong order:\n%s", v, a.body)
		}
	}
	if strings.Contains(a.body, "acme/widget/1.20.0") || strings.Contains(a.body, "acme/widget/1.0.0") {
		t.Error("a link to a denied version, or to one of the next page")
	}
	for _, query := range []string{"?page=2", "?page=99999999999999999999", "?page=7"} {
		c.want(widgetPage+query, 200, "Page 2 of 2", "1.0.0 no evidence")
	}
	c.want(widgetPage+"?page=-1", 200, "Page 1 of 2")
	for path, want := range map[string]string{"/1.0.0": "Page 2 of 2", "/1.0.0?page=1": "Page 1 of 2", "/1.21.0": "Page 1 of 2"} {
		c.want(widgetPage+path, 200, want)
	}
	for path, to := range map[string]string{widgetPage + "/": "../widget", widgetPage + "/1.0.0%2B1/": "../1.0.0%2B1"} {
		if a := c.want(path, http.StatusSeeOther); a.header.Get("Location") != to {
			t.Errorf("%s leads to %q", path, a.header.Get("Location"))
		}
	}
	c.want(widgetPage+"/2.0.0-beta.1", 200, "2.0.0-beta.1 prerelease")
	c.want(widgetPage+"/1.20.0", http.StatusUnavailableForLegalReasons, "This version is denied", "The operator’s reason: it &lt;b&gt;leaks&lt;/b&gt;")
	b.catalog.Deny[0].Versions = provider.VersionSet{}
	b.serve(nil).want(widgetPage, 200, "This gateway serves no version: each one is denied or not approved")
}

// TestNeverAWrongNotFound shows that no failure of the registry makes the page report a provider or a version
// as absent.
func TestNeverAWrongNotFound(t *testing.T) {
	b := newBench(t)
	b.index(widget, "1.0.0", artifact.Version{})
	c := b.serve(nil)
	for path, heading := range map[string]string{
		"/p/" + host + "/acme/absent":         "There is no such provider",
		"/p/elsewhere.example/acme/widget":    "Not served here",
		widgetPage + "/9.9.9":                 "There is no such version",
		widgetPage + "/v1":                    "There is no such version",
		"/p/" + host + "/acme/wid get":        "This is not a provider address",
		"/p/" + host + "/acme/wid%2fget":      "",
		"/p/" + host + "%2facme/widget/1.0.0": "",
	} {
		a := c.want(strings.ReplaceAll(path, " ", "%20"), 404, heading)
		if a.header.Get("Retry-After") != "" {
			t.Errorf("%s: an absence has Retry-After", path)
		}
	}
	for name, tc := range map[string]struct {
		lie    http.HandlerFunc
		status int
	}{
		"unavailable": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "secret.internal", http.StatusServiceUnavailable)
		}, 503},
		"too many": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusTooManyRequests) }, 503},
		"broken":   {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusInternalServerError) }, 502},
		"bare 404": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusNotFound) }, 502},
		"denied":   {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusForbidden) }, 502},
		"HTML":     {func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>")) }, 502},
		"timeout":  {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 504},
	} {
		t.Run(name, func(t *testing.T) {
			b.lie("/tags/list", tc.lie)
			c := *c
			if tc.status == http.StatusGatewayTimeout {
				b.catalog.Timeout = 100 * time.Millisecond
				defer func() { b.catalog.Timeout = 0 }()
				c = *b.serve(nil)
			}
			c.t = t
			a := c.want(widgetPage, tc.status, "does not mean that the provider does not exist")
			if a.header.Get("Retry-After") != "5" || a.header.Get("Cache-Control") != "no-store" || strings.Contains(a.body, "secret.internal") {
				t.Errorf("%v\n%s", a.header, a.body)
			}
		})
	}
	b.lie("/manifests/", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusInternalServerError) })
	c.want(widgetPage, 200, "The newest version, 1.0.0, cannot be shown", "1.0.0 not known now")
	c.want(widgetPage+"/1.0.0", 502, "The registry cannot answer now")
	b.registry.Intercept(nil)

	b.catalog.Check = func(context.Context, artifact.Fetcher, provider.Address, provider.Version, *artifact.Version) (*artifact.Version, error) {
		return nil, verify.ErrRefused
	}
	c = b.serve(nil)
	c.want(widgetPage, 200, "cannot be shown", "1.0.0 refused")
	c.want(widgetPage+"/1.0.0", 502, "This version cannot be served")
}

func TestRequestIDIsShown(t *testing.T) {
	b := newBench(t)
	b.lie("/tags/list", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusInternalServerError) })
	c := b.serve(nil)
	next := c.gateway
	c.gateway = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("X-Request-Id", "abc123")
		next.ServeHTTP(w, r)
	})
	c.want(widgetPage, 502, "Request abc123")
}

// TestNothingIsReflected shows that neither clients nor the registry can inject markup into a page.
func TestNothingIsReflected(t *testing.T) {
	b := newBench(t)
	const evil = `"><script>alert(1)</script><img src=x onerror=alert(1)>'`
	b.index(widget, "1.0.0", artifact.Version{Protocols: []string{evil}})
	c := b.serve(nil)
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	req.Host = evil
	for path, a := range map[string]answer{
		"query":    c.get(escaped(evil)),
		"path":     c.get("/p/" + url.PathEscape(evil) + "/a/b"),
		"version":  c.get(widgetPage + "/" + url.PathEscape(evil)),
		"registry": c.get(widgetPage),
		"page":     c.get("/search?q=a&page=" + url.QueryEscape(evil)),
		"host":     c.do(req),
	} {
		if strings.Contains(a.body, "<script>") || strings.Contains(a.body, "<img src=x") || !strings.Contains(a.body, "</html>") {
			t.Errorf("%s:\n%s", path, a.body)
		}
	}
}

// evidence stores evidence without a signature.
func (b *bench) evidence(a provider.Address, sums []byte, origin string) *ocispec.Descriptor {
	b.t.Helper()
	manifest, blobs, err := artifact.EncodeEvidence(artifact.Evidence{SHA256SUMS: sums, Record: artifact.Record{Origin: origin, Verdict: trust.ChecksumOnly}})
	b.must(err)
	for _, blob := range append(blobs, artifact.Config(), manifest) {
		b.must(b.repository(a).Push(b.t.Context(), blob.Descriptor, bytes.NewReader(blob.Data)))
	}
	return &manifest.Descriptor
}

// TestPagesArePrintable shows that pages have neither control characters nor marks that change the direction
// of text, wherever the registry, a push or a client wrote them.
func TestPagesArePrintable(t *testing.T) {
	b := newBench(t)
	const hidden = "\u0080\u0085\u009b\u061c\u200e\u202a\u202e\u2066\u2069\u2028"
	sums := fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(release.AsZip([]byte("a package of 1.0.0"))), provider.PackageFilename(widget, provider.MustParseVersion("1.0.0"), linux))
	b.index(widget, "1.0.0", artifact.Version{Protocols: []string{"5" + hidden + "6"}, Evidence: b.evidence(widget, sums, "m"+hidden+"n")})
	c := b.serve(nil)
	c.want(widgetPage+"/1.0.0", 200, "Source m n", "Plugin protocols 5 6")
	for _, path := range []string{"/", widgetPage, widgetPage + "/1.0.0", "/search?q=widget" + url.QueryEscape(hidden), "/p/a.example/" + url.PathEscape(hidden) + "/b"} {
		if a := c.get(path); strings.ContainsAny(a.body+fmt.Sprint(a.header), hidden) || a.header.Get("Content-Length") != strconv.Itoa(len(a.body)) {
			t.Errorf("%s: %v\n%q", path, a.header, a.body)
		}
	}
}

var (
	attribute = regexp.MustCompile(`\s(href|src|action)="([^"]*)"`)
	inline    = regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+=|<script(>|[^>]*>[^<])`)
)

// TestPagesAreSelfContained shows that pages load nothing from other hosts and have safe headers. Their links
// work behind a proxy that serves the gateway below any path.
func TestPagesAreSelfContained(t *testing.T) {
	b := newBench(t)
	for i := range 21 {
		b.index(widget, fmt.Sprintf("1.%d.0", i), artifact.Version{})
	}
	b.options.Configured = []subject.Address{widget}
	c := b.serve(nil)
	const below = "/some/prefix"
	plain := c.gateway
	c.gateway = http.StripPrefix(below, plain)
	for _, p := range []string{"/", "/search", "/search?q=wid", "/search?q=hashicorp/null", widgetPage, widgetPage + "/1.3.0", "/p/" + host + "/acme/absent", "/p/not/an/address/at/all"} {
		req := httptest.NewRequest(http.MethodGet, "https://gateway.example"+below+p, nil)
		req.Header.Set("Accept", "text/html")
		a := c.do(req)
		for name, want := range map[string]string{
			"Content-Type": "text/html; charset=utf-8", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache",
			"Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
		} {
			if got := a.header.Get(name); got != want {
				t.Errorf("%s: %s: %q", p, name, got)
			}
		}
		if m := inline.FindString(a.body); m != "" {
			t.Errorf("%s: the policy forbids %q", p, m)
		}
		for _, m := range attribute.FindAllStringSubmatch(a.body, -1) {
			link, err := url.Parse(strings.ReplaceAll(m[2], "&amp;", "&"))
			if err != nil || link.IsAbs() || link.Host != "" || strings.HasPrefix(link.Path, "/") {
				t.Errorf("%s: link %q", p, m[2])
				continue
			}
			to := req.URL.ResolveReference(link)
			to.Fragment = ""
			got := c.do(httptest.NewRequest(http.MethodGet, to.String(), nil))
			if got.status != 200 && got.status != 303 && link.Path != "" && !strings.Contains(to.Path, "hashicorp") {
				t.Errorf("%s: %q leads to %s: %d", p, m[2], to, got.status)
			}
			if m[1] == "src" && got.header.Get("ETag") == "" {
				t.Errorf("browsers cannot revalidate %s: %v", m[2], got.header)
			}
		}
	}
}

// TestMissingManifest shows that the page names the platform that cannot be installed if the registry lacks a
// manifest.
func TestMissingManifest(t *testing.T) {
	b := newBench(t)
	b.push(widget, "1.0.0", true)
	repo := b.repository(widget)
	v, err := artifact.Read(t.Context(), repo, widget, provider.MustParseVersion("1.0.0"))
	b.must(err)
	var index ocispec.Index
	data, err := artifact.FetchManifest(t.Context(), repo, v.Index)
	b.must(err)
	b.must(json.Unmarshal(data, &index))
	for i := range index.Manifests {
		index.Manifests[i].Annotations = nil
	}
	data, err = json.Marshal(index)
	b.must(err)
	desc := ocispec.Descriptor{MediaType: index.MediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	b.must(repo.PushReference(t.Context(), desc, bytes.NewReader(data), "1.0.0"))
	b.must(repo.Delete(t.Context(), v.Packages[0].Manifest))
	a := b.serve(nil).get(widgetPage + "/1.0.0")
	// The parts about each platform: its row in the table, and its hashes.
	about := map[provider.Platform]string{}
	for _, pkg := range v.Packages {
		for _, begin := range []string{"<th scope=\"row\">", "<dt>"} {
			_, part, _ := strings.Cut(a.body, begin+pkg.Platform.String())
			part, _, _ = strings.Cut(part, begin)
			about[pkg.Platform] += part
		}
	}
	broken, whole := about[v.Packages[0].Platform], about[v.Packages[1].Platform]
	if a.status != http.StatusOK || !strings.Contains(broken, "The registry lacks its manifest") || !strings.Contains(broken, v.Packages[0].Manifest.Digest.String()) || strings.Contains(broken, "zh") {
		t.Errorf("status %d: %s", a.status, broken)
	}
	if strings.Contains(whole, "lacks") || !strings.Contains(whole, v.Packages[1].ZipHash().String()) {
		t.Errorf("%s: %s", v.Packages[1].Platform, whole)
	}
	if want := `<span class="platforms">darwin_arm64, linux_amd64</span>`; !strings.Contains(a.body, want) {
		t.Errorf("no %s in the list of versions", want)
	}
}

// TestHeadIsLikeGet shows that the response to HEAD differs from the response to GET only in the body.
func TestHeadIsLikeGet(t *testing.T) {
	b := newBench(t)
	b.index(widget, "1.0.0", artifact.Version{})
	server := httptest.NewServer(b.serve(nil).gateway)
	t.Cleanup(server.Close)
	for _, p := range []string{"/", widgetPage + "/1.0.0", "/p/" + host + "/acme/absent"} {
		get, err := server.Client().Get(server.URL + p)
		if err != nil {
			t.Fatal(err)
		}
		get.Body.Close()
		head, err := server.Client().Head(server.URL + p)
		if err != nil {
			t.Fatal(err)
		}
		head.Body.Close()
		if head.StatusCode != get.StatusCode || head.Header.Get("Content-Length") == "" || head.Header.Get("Content-Type") != get.Header.Get("Content-Type") {
			t.Errorf("%s: %d %v, as opposed to %d %v", p, head.StatusCode, head.Header, get.StatusCode, get.Header)
		}
	}
	resp, err := server.Client().Post(server.URL+"/", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", resp.StatusCode)
	}
}

// TestUnknownPaths shows that a request for an unknown path gets a page if it comes from a browser, and plain
// text otherwise.
func TestUnknownPaths(t *testing.T) {
	c := newBench(t).serve(nil)
	for _, p := range []string{"/nothing", "/providers/x", "/assets/nothing.css"} {
		req := httptest.NewRequest(http.MethodGet, "https://gateway.example"+p, nil)
		if p != "/assets/nothing.css" {
			if a := c.do(req); a.status != 404 || a.body != "not found\n" {
				t.Errorf("%s: %+v", p, a)
			}
		}
		req.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
		if a := c.do(req); a.status != 404 || !strings.Contains(a.text(), "There is no such page") {
			t.Errorf("%s: %+v", p, a)
		}
	}
}

// TestMirrorPathOpenedByPeople shows that a request for the root of the network mirror is redirected to the
// page if it comes from a browser. Other clients get 404.
func TestMirrorPathOpenedByPeople(t *testing.T) {
	c := newBench(t).serve(nil)
	for accept, want := range map[string]int{"": 404, "application/json": 404, "*/*": 404, "text/html,application/xhtml+xml,*/*;q=0.8": http.StatusSeeOther} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			req := httptest.NewRequest(method, "https://gateway.example/providers/", nil)
			req.Header.Set("Accept", accept)
			a := c.do(req)
			if a.status != want || want == 404 && a.header.Get("Location") != "" || want == http.StatusSeeOther && (a.header.Get("Location") != "../" || a.header.Get("Vary") != "Accept") {
				t.Errorf("%s, Accept %q: %+v", method, accept, a)
			}
		}
	}
}

// TestHostnameInUnicode shows that a provider's page can be opened with both forms of its hostname: Punycode
// and Unicode.
func TestHostnameInUnicode(t *testing.T) {
	b := newBench(t)
	shelf := provider.MustParseAddress("bücher.example/acme/shelf")
	b.index(shelf, "1.0.0", artifact.Version{})
	c := b.serve(nil)
	for _, hostname := range []string{"xn--bcher-kva.example", "b%C3%BCcher.example"} {
		c.want("/p/"+hostname+"/acme/shelf", 200, shelf.String(), "1.0.0")
		c.want("/p/"+hostname+"/acme/shelf/1.0.0", 200, shelf.String())
	}
}

// TestAssets shows that browsers can cache assets, and download an asset again only if it has changed.
func TestAssets(t *testing.T) {
	c := newBench(t).serve(access.New(access.Options{}))
	for name, contentType := range map[string]string{"page.css": "text/css", "copy.js": "text/javascript", "find.js": "text/javascript", "mark.svg": "image/svg+xml"} {
		a := c.get("/assets/" + name)
		if a.status != http.StatusOK || a.header.Get("Cache-Control") != "public, no-cache" || !strings.HasPrefix(a.header.Get("Content-Type"), contentType) {
			t.Errorf("%s: %d %v", name, a.status, a.header)
		}
		again := httptest.NewRequest(http.MethodGet, "https://gateway.example/assets/"+name, nil)
		again.Header.Set("If-None-Match", a.header.Get("ETag"))
		if a := c.do(again); a.status != http.StatusNotModified || a.body != "" {
			t.Errorf("%s, which has not changed: %d", name, a.status)
		}
	}
}

func TestSearch(t *testing.T) {
	b := newBench(t)
	b.options.Configured = []subject.Address{provider.MustParseAddress("registry.opentofu.org/hashicorp/random"), provider.MustParseAddress("bücher.example/acme/shelf")}
	b.options.List = func(context.Context) page.Names {
		out := []subject.Address{widget, provider.MustParseAddress("registry.opentofu.org/hashicorp/random")}
		for i := range 60 {
			out = append(out, provider.MustParseAddress(fmt.Sprintf("many.example/acme/p%02d", i)))
		}
		out = append(out, net, module.MustParseAddress("many.example/acme/widget-of-ours/aws"))
		return page.Names{All: out, Complete: true}
	}
	c := b.serve(nil)
	for query, to := range map[string]string{
		host + "/acme/widget":                                               "./p/" + host + "/acme/widget",
		" https://" + host + "/acme/widget/ ":                               "./p/" + host + "/acme/widget",
		host + "/acme/widget@1.2.0+build.5":                                 "./p/" + host + "/acme/widget/1.2.0+build.5",
		`source = "registry.opentofu.org/hashicorp/random"`:                 "./p/registry.opentofu.org/hashicorp/random",
		"https://registry.terraform.io/providers/hashicorp/aws/latest/docs": "./p/registry.terraform.io/hashicorp/aws",
		"https://registry.terraform.io/providers/hashicorp/aws/6.1.0?x#y":   "./p/registry.terraform.io/hashicorp/aws/6.1.0",
		"search.opentofu.org/provider/hashicorp/null/v3.2.4/docs":           "./p/registry.opentofu.org/hashicorp/null/3.2.4",
		net.String() + "//modules/child":                                    "./m/" + net.Path(),
		`"` + net.String() + `@v1.2.0"`:                                     "./m/" + net.Path() + "/1.2.0",
		"https://registry.terraform.io/modules/acme/net/aws/1.2.0":          "./m/registry.terraform.io/acme/net/aws/1.2.0",
		"search.opentofu.org/module/acme/net/aws/latest":                    "./m/registry.opentofu.org/acme/net/aws",
		"Bücher.example/acme/unheard-of":                                    "./p/xn--bcher-kva.example/acme/unheard-of",
	} {
		if a := c.get(escaped(query)); a.status != http.StatusSeeOther || a.header.Get("Location") != to {
			t.Errorf("%q: %d %q, want %q", query, a.status, a.header.Get("Location"), to)
		}
	}
	for query, want := range map[string][]string{
		"WIDGET":                 {"1 provider and 1 module whose address matches", widget.String() + " many.example/acme/widget-of-ours/aws"},
		"acme shelf":             {"1 provider whose address matches", "bücher.example/acme/shelf"},
		"xn--bcher":              {"1 provider whose address matches", "bücher.example/acme/shelf"},
		"hashicorp/rand":         {"1 provider whose address matches", "registry.opentofu.org/hashicorp/random", "registry.terraform.io/hashicorp/rand"},
		"many.example":           {"60 providers and 1 module", "Page 1 of 2", "p49"},
		"nothing-of-it":          {"No known provider or module has a matching address."},
		"a/b/c/d/e":              {"cannot be part of an address"},
		"a/b/c/d":                {"No known provider or module"},
		"vpc/vpc/aws":            {"registry.opentofu.org/vpc/vpc/aws registry.terraform.io/vpc/vpc/aws vpc/vpc/aws", "registry.opentofu.org/vpc/vpc/aws", "registry.terraform.io/vpc/vpc/aws"},
		"aws":                    {"2 modules whose address matches", net.String()},
		"x@y":                    {"No known provider"},
		"":                       {"63 providers and 2 modules that you may read"},
		strings.Repeat("é", 400): {"No known provider"},
	} {
		a := c.want(escaped(query), 200)
		text := a.text()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%q: no %q in:\n%s", query, w, text)
			}
		}
		if strings.Contains(text, "does not list all") {
			t.Errorf("%q: the list is complete", query)
		}
	}
	c.want(escaped("many.example")+"&page=2", 200, "Page 2 of 2", "p59")

	b.options.List = nil
	c = b.serve(nil)
	c.want(escaped("widget"), 200, "No known provider", "The registry does not list all its repositories")
	b.index(widget, "1.0.0", artifact.Version{})
	c.want(widgetPage, 200)
	if a := c.want(escaped("widget"), 200); !strings.Contains(a.body, path.Base(widgetPage)+`"`) {
		t.Errorf("a provider that was requested is not found:\n%s", a.body)
	}
}

// TestManyProviders shows that a page causes at most two allocations for each known provider.
func TestManyProviders(t *testing.T) {
	b := newBench(t)
	var all []subject.Address // the gateway does not serve them, so that the page reads no versions
	for i := range 8000 {
		all = append(all, provider.MustParseAddress(fmt.Sprintf("elsewhere.example/n%d/p%04d", i%7, i)))
	}
	all = append(all, provider.MustParseAddress("bücher.example/acme/shelf"))
	b.options.List = func(context.Context) page.Names { return page.Names{All: all, Complete: true} }
	c := b.serve(nil)
	c.want("/", 200, "8001 providers", "elsewhere.example/n0 p0000", "p0049", "Page 1 of 321")
	c.want(escaped("p49 n3"), 200, "14 providers whose address matches", "elsewhere.example/n3/p4903")
	for _, path := range []string{"/", "/search", escaped("p4999")} {
		if n := testing.AllocsPerRun(3, func() { c.get(path) }); n > 2*float64(len(all)) {
			t.Errorf("%s: %v allocations for %d providers", path, n, len(all))
		}
	}
}
