package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/provider"
)

// catalog gives the gateway a new catalog of the bench's registry, and returns the catalog.
func (b *bench) catalog(o catalog.Options) *catalog.Catalog {
	b.t.Helper()
	o.Repository, o.Log = b.options.Repository, b.options.Log
	c, err := catalog.New(o)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	b.options.Catalog = c
	return c
}

// requests returns the requests to the registry since the last call.
func (b *bench) requests() string {
	var out []string
	for _, r := range b.registry.Requests() {
		out = append(out, r.Method+" "+strings.TrimPrefix(r.Path, "/v2/"+widget.Path()+"/"))
	}
	b.registry.Reset()
	return strings.Join(out, ", ")
}

// TestRequestsOfColdAndWarm shows that a document needs one request to the registry if ocibridge has pushed the
// version. While the document is cached, it needs no request.
func TestRequestsOfColdAndWarm(t *testing.T) {
	b := newBench(t)
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux), darwin: zip(t, darwin)})
	b.catalog(catalog.Options{})
	c := b.serve()
	for _, tc := range []struct{ path, cold string }{
		{prefix + "1.0.0.json", "GET manifests/1.0.0"}, // the request by tag returns the manifest
		{prefix + "index.json", "GET tags/list"},
		{prefix + "9.9.9.json", "GET manifests/9.9.9"}, // the cached list of tags confirms that the version is absent
	} {
		first := c.get(tc.path)
		if got := b.requests(); got != tc.cold {
			t.Errorf("%s, cold: %s", tc.path, got)
		}
		for _, again := range []string{tc.path, tc.path + "?x", strings.Replace(tc.path, "widget", "%77idget", 1)} {
			if a := c.get(again); a.body != first.body || a.header.Get("ETag") != first.header.Get("ETag") {
				t.Errorf("%s, warm: %+v", again, a)
			}
		}
		c.do(http.MethodHead, tc.path)
		if got := b.requests(); got != "" {
			t.Errorf("%s, warm: %s", tc.path, got)
		}
	}
	c.do(http.MethodHead, archivePath("1.0.0", linux))
	if got := b.requests(); strings.Contains(got, "manifests/") || strings.Contains(got, "tags/") {
		t.Errorf("archive: %s", got)
	}
}

// TestRevalidatedByRealRegistry shows that the gateway revalidates an expired answer with one HEAD request. It
// fetches the answer again if the tag has moved or HEAD fails.
func TestRevalidatedByRealRegistry(t *testing.T) {
	b := newBench(t)
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
	b.catalog(catalog.Options{TagTTL: -1})
	c := b.serve()
	first := c.get(prefix + "1.0.0.json")
	b.requests()
	for range 3 {
		if a := c.get(prefix + "1.0.0.json"); a.body != first.body {
			t.Errorf("%+v", a)
		}
	}
	if got := b.requests(); got != "HEAD manifests/1.0.0, HEAD manifests/1.0.0, HEAD manifests/1.0.0" {
		t.Errorf("requests to the registry: %s", got)
	}
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux), darwin: zip(t, darwin)})
	if a := c.get(prefix + "1.0.0.json"); !strings.Contains(a.body, "darwin") || a.header.Get("ETag") == first.header.Get("ETag") {
		t.Errorf("%+v", a)
	}
	// Some registries do not answer HEAD correctly. Then only the response to GET counts.
	for name, head := range map[string]http.HandlerFunc{
		"405": respond(405, "", ""), "404": respond(404, "", ""), "500": respond(500, "", ""), "without a digest": respond(200, "application/json", ""),
	} {
		b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodHead {
				head(w, r)
			}
			return r.Method == http.MethodHead
		})
		if a := c.get(prefix + "1.0.0.json"); !strings.Contains(a.body, "darwin") {
			t.Errorf("HEAD %s: %+v", name, a)
		}
	}
}

// TestTagListIsRevalidated shows that the gateway revalidates a list of tags with its ETag. A list with several
// pages is always fetched again.
func TestTagListIsRevalidated(t *testing.T) {
	b := newBench(t)
	etag, tags, pages := `"one"`, `["1.0.0"]`, 1
	var sent []string
	b.lie("/tags/list", func(w http.ResponseWriter, r *http.Request) {
		known := r.Header.Get("If-None-Match")
		sent = append(sent, known)
		w.Header().Set("ETag", etag)
		if known == etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		if pages > 1 && !r.URL.Query().Has("last") {
			w.Header().Set("Link", `<`+r.URL.Path+`?last=x>; rel="next"`)
		}
		respond(200, "application/json", `{"tags":`+tags+`}`)(w, r)
	})
	repository := b.options.Repository
	b.options.Repository = conditionally(repository)
	b.catalog(catalog.Options{TagTTL: -1})
	c := b.serve()
	ask := func(want string, conditions ...string) {
		t.Helper()
		sent = nil
		if a := c.get(prefix + "index.json"); a.body != want {
			t.Errorf("%+v, want %s", a, want)
		}
		if fmt.Sprint(sent) != fmt.Sprint(conditions) {
			t.Errorf("sent %q, want %q", sent, conditions)
		}
	}
	ask(`{"versions":{"1.0.0":{}}}`, "")
	ask(`{"versions":{"1.0.0":{}}}`, `"one"`)
	etag, tags = `"two"`, `["1.0.0","1.1.0"]`
	ask(`{"versions":{"1.0.0":{},"1.1.0":{}}}`, `"one"`)
	ask(`{"versions":{"1.0.0":{},"1.1.0":{}}}`, `"two"`)
	// If the list has several pages, an unchanged page says nothing about the other pages.
	etag, pages = `"three"`, 2
	ask(`{"versions":{"1.0.0":{},"1.1.0":{}}}`, `"two"`, "")
	ask(`{"versions":{"1.0.0":{},"1.1.0":{}}}`, "", "")
}

// conditionally makes repositories send conditional requests for lists of tags, as the command serve does.
func conditionally(next func(context.Context, subject.Address) (catalog.Store, error)) func(context.Context, subject.Address) (catalog.Store, error) {
	return func(ctx context.Context, a subject.Address) (catalog.Store, error) {
		store, err := next(ctx, a)
		if repo, ok := store.(*remote.Repository); ok {
			repo.Client = catalog.Conditional(repo.Client)
		}
		return store, err
	}
}

func TestETags(t *testing.T) {
	b := newBench(t)
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
	b.catalog(catalog.Options{})
	c := b.serve()
	tags := map[string]bool{}
	for _, path := range []string{prefix + "index.json", prefix + "1.0.0.json", prefix + "9.9.9.json"} {
		first := c.get(path)
		etag := first.header.Get("ETag")
		if len(etag) < 10 || etag[0] != '"' || tags[etag] {
			t.Errorf("%s: ETag %s", path, etag)
		}
		tags[etag] = true
		for known, status := range map[string]int{
			etag: 304, "W/" + etag: 304, `"other", ` + etag: 304, "*": 304, `"other"`: 200, "": 200, strings.Trim(etag, `"`): 200,
		} {
			for _, method := range []string{http.MethodGet, http.MethodHead} {
				req := httptest.NewRequest(method, c.s.URL+path, nil)
				req.RequestURI = ""
				req.Header.Set("If-None-Match", known)
				resp, err := c.http.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != status || resp.Header.Get("ETag") != etag {
					t.Errorf("%s %s If-None-Match %s: %s, ETag %s", method, path, known, resp.Status, resp.Header.Get("ETag"))
				}
			}
		}
	}
	if n := b.registry.Count(recorder.Method(http.MethodGet)); n != 3 {
		t.Errorf("%d requests to the registry", n)
	}
}

// TestOneUpstreamRequest shows that concurrent requests for a document share one request to the registry.
func TestOneUpstreamRequest(t *testing.T) {
	b := newBench(t)
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
	const clients = 50
	b.catalog(catalog.Options{})
	c := b.serve()
	release, asked := make(chan struct{}), make(chan struct{}, clients)
	b.registry.Intercept(func(http.ResponseWriter, *http.Request) bool {
		asked <- struct{}{}
		<-release
		return false
	})
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			if a := c.get(prefix + "1.0.0.json"); a.status != http.StatusOK {
				t.Errorf("%+v", a)
			}
		})
	}
	<-asked
	close(release)
	wg.Wait()
	if got := b.requests(); got != "GET manifests/1.0.0" {
		t.Errorf("requests to the registry: %s", got)
	}
}

// TestRegistryStopped stops the registry. It shows that the gateway still serves all documents that it has
// served before, even after a restart.
func TestRegistryStopped(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
	b.pushByRecipe("1.1.0")
	first := b.catalog(catalog.Options{TagTTL: time.Nanosecond, Directory: dir})
	c := b.serve()
	paths := []string{prefix + "index.json", prefix + "1.0.0.json", prefix + "1.1.0.json"}
	want := map[string]answer{}
	for _, path := range paths {
		want[path] = c.get(path)
	}
	b.stopRegistry()
	check := func(c *client) {
		t.Helper()
		for _, path := range paths {
			for range 2 {
				if a := c.get(path); a.status != http.StatusOK || a.body != want[path].body || a.header.Get("ETag") != want[path].header.Get("ETag") {
					t.Errorf("%s: %+v", path, a)
				}
			}
		}
		// The catalog cannot know whether anything else exists, so other paths get 502, not 404.
		for _, path := range []string{prefix + "9.9.9.json", "/providers/" + host + "/acme/gadget/index.json"} {
			b.checkTrouble(c.get(path), path, http.StatusBadGateway)
		}
	}
	check(c)
	first.Close()
	b.catalog(catalog.Options{TagTTL: time.Nanosecond, Directory: dir})
	check(b.serve())
	if !strings.Contains(b.log.String(), "serving its last good answer") {
		t.Errorf("the log does not say so:\n%s", b.log)
	}
}

// TestErrorPolicy checks the response to each kind of failure, with and without a cached answer.
func TestErrorPolicy(t *testing.T) {
	denies := respond(403, "application/json", `{"errors":[{"code":"DENIED"}]}`)
	const gadget, good = "/providers/" + host + "/acme/gadget/", "200 good"
	type answers struct{ index, version, archive string }
	trouble := func(status string) answers { return answers{status, status, status} }
	for name, tc := range map[string]struct {
		means  bool             // the setting denied_means_absent
		lie    http.HandlerFunc // the repository's response; nil for its real response
		asked  string
		before bool // the documents were requested before the failure
		want   answers
	}{
		"absent repository":                  {asked: gadget, want: answers{"404", "200 none", "404"}},
		"out of scope":                       {asked: "/providers/elsewhere.example/acme/widget/", want: answers{"404", "200 none", "404"}},
		"unreachable":                        {lie: cut, asked: prefix, want: trouble("502")},
		"500":                                {lie: respond(500, "", ""), asked: prefix, want: trouble("502")},
		"503":                                {lie: respond(503, "", ""), asked: prefix, want: trouble("503")},
		"504":                                {lie: respond(504, "", ""), asked: prefix, want: trouble("504")},
		"429":                                {lie: respond(429, "", ""), asked: prefix, want: trouble("503")},
		"credentials rejected":               {lie: respond(401, "", ""), asked: prefix, want: trouble("502")},
		"unreachable, asked before":          {lie: cut, asked: prefix, before: true, want: answers{good, good, "502"}},
		"500, asked before":                  {lie: respond(500, "", ""), asked: prefix, before: true, want: answers{good, good, "502"}},
		"429, asked before":                  {lie: respond(429, "", ""), asked: prefix, before: true, want: answers{good, good, "503"}},
		"credentials rejected, asked before": {lie: respond(401, "", ""), asked: prefix, before: true, want: answers{good, good, "502"}},
		"denied":                             {lie: denies, asked: gadget, want: trouble("502")},
		"denied, which means absent":         {means: true, lie: denies, asked: gadget, want: answers{"404", "200 none", "404"}},
		"denied, which means absent, and asked before": {means: true, lie: denies, asked: prefix, before: true, want: answers{good, good, "502"}},
		"404 of a proxy":                                {lie: respond(404, "text/html", "<html>"), asked: gadget, want: trouble("502")},
		"denied by configuration":                       {asked: "/providers/" + host + "/acme/denied/", want: answers{"200 empty", "451", "451"}},
		"denied by configuration, and registry is down": {lie: cut, asked: "/providers/" + host + "/acme/denied/", want: answers{"502", "451", "451"}},
		"another provider's index":                      {asked: "/providers/" + host + "/acme/foreign/", want: answers{good, "502", "502"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			denied := provider.MustParseAddress(host + "/acme/denied")
			other := provider.MustParseAddress(host + "/acme/other")
			for _, a := range []provider.Address{widget, denied, other} {
				b.publish(a, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
			}
			b.publishAs(provider.MustParseAddress(host+"/acme/foreign"), widget)
			b.options.Log = nil
			b.catalog(catalog.Options{
				TagTTL:     -1,
				FreshToken: func(ctx context.Context) context.Context { return ctx },
				Account:    func(subject.Address) catalog.Account { return catalog.Account{DeniedMeansAbsent: tc.means} },
				Deny:       []catalog.Deny{{Pattern: denied.Pattern()}},
			})
			c := b.serve()
			archive := tc.asked + "1.0.0/linux_amd64/" + provider.PackageFilename(widget, provider.MustParseVersion("1.0.0"), linux)
			paths := []string{tc.asked + "index.json", tc.asked + "1.0.0.json", archive}
			c.get("/providers/" + host + "/acme/other/index.json") // shows the gateway that it can read another repository
			if tc.before {
				for _, path := range paths {
					c.get(path)
				}
			}
			if tc.lie != nil {
				b.lie(strings.TrimPrefix(tc.asked, "/providers/"), tc.lie)
			}
			for i, want := range []string{tc.want.index, tc.want.version, tc.want.archive} {
				for _, method := range []string{http.MethodGet, http.MethodHead} {
					if want == good || i < 2 || method == http.MethodGet || !tc.before {
						checkPolicy(t, method, paths[i], c.do(method, paths[i]), want)
					}
				}
			}
		})
	}
}

// checkPolicy checks the status of a response. If want has a word after the status, checkPolicy also checks the
// body.
func checkPolicy(t *testing.T, method, path string, a answer, want string) {
	t.Helper()
	status, what, _ := strings.Cut(want, " ")
	if fmt.Sprint(a.status) != status {
		t.Errorf("%s %s: %d, want %s", method, path, a.status, want)
	}
	if after := a.header.Get("Retry-After"); (after != "") != (status[:2] == "50") {
		t.Errorf("%s %s: %s with Retry-After %q", method, path, status, after)
	}
	if method == http.MethodHead {
		return
	}
	switch what {
	case "none":
		what = noArchives
	case "empty":
		what = `{"versions":{}}`
	case "good":
		what = "1.0.0"
	}
	if !strings.Contains(a.body, what) {
		t.Errorf("%s %s: %s, want %s", method, path, a.body, want)
	}
}

// publishAs stores an index in a provider's repository. The index says that it belongs to the provider claimed.
func (b *bench) publishAs(a, claimed provider.Address) {
	b.t.Helper()
	v := b.publish(a, "1.0.0", map[provider.Platform][]byte{linux: zip(b.t, linux)})
	v.Owner = claimed
	b.tagVersionIn(b.repository(a), v)
}

func TestRefreshIsForOperators(t *testing.T) {
	b := newBench(t)
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
	const path = "/-/refresh?provider=" + host + "/acme/widget"
	if a := b.serve().do(http.MethodPost, path); a.status != http.StatusNotFound {
		t.Errorf("where there are no operators: %+v", a)
	}
	b.controlled()
	b.catalog(catalog.Options{})
	c := b.serve()
	reader := c.as("acme-token")
	reader.get(prefix + "index.json")
	b.requests()
	for _, tc := range []struct {
		method, path, token string
		status              int
		asks                string
	}{
		{"GET", path, "ops-token", 405, ""},
		{"POST", path, "nonsense", 401, ""},
		{"POST", path, "acme-token", 403, ""},
		{"POST", "/-/refresh", "ops-token", 400, ""},
		{"POST", "/-/refresh?provider=acme/widget", "ops-token", 400, ""},
		{"POST", "/-/refresh?provider=" + host + "/acme/gadget", "ops-token", 200, ""},
		{"POST", path, "ops-token", 200, "GET tags/list"},
	} {
		a := c.as(tc.token).do(tc.method, tc.path)
		if a.status != tc.status || a.header.Get("Cache-Control") != "private, no-store" {
			t.Errorf("%s %s: %+v", tc.method, tc.path, a)
		}
		if alone := strings.Contains(string(a.body), "in this replica alone"); alone != (tc.status == http.StatusOK) {
			t.Errorf("%s %s: %s", tc.method, tc.path, a.body)
		}
		reader.get(prefix + "index.json")
		if got := b.requests(); got != tc.asks {
			t.Errorf("after %s %s with %s, requests to the registry: %s", tc.method, tc.path, tc.token, got)
		}
	}
}

// TestEveryDocumentHasAnETag shows that clients can revalidate every document by its ETag. This also works with
// access control, although links then depend on the client.
func TestEveryDocumentHasAnETag(t *testing.T) {
	p := newPublisher(newBench(t))
	p.push(widget, "1.0.0")
	p.options.PublicURL = parseURL(t, "https://"+host+"/")
	p.catalog(catalog.Options{})
	check := func(c *client) {
		t.Helper()
		const own = "/v1/providers/acme/widget/"
		for _, path := range []string{
			"/.well-known/terraform.json", prefix + "index.json", prefix + "1.0.0.json", own + "versions", own + "1.0.0/download/linux/amd64",
			hostsPrefix + "versions", hostsPrefix + "1.0.0/download/linux/amd64",
		} {
			known := *c.http
			first := c.get(path)
			known.Transport = withHeader{"If-None-Match", first.header.Get("ETag"), c.http.Transport}
			if first.status != http.StatusOK || first.header.Get("ETag") == "" {
				t.Errorf("%s: %+v", path, first)
			}
			for _, method := range []string{http.MethodGet, http.MethodHead} {
				if a := (&client{t, c.s, &known}).do(method, path); a.status != http.StatusNotModified && c.get(path).header.Get("ETag") == first.header.Get("ETag") {
					t.Errorf("%s %s again: %+v", method, path, a)
				}
			}
		}
	}
	check(p.serve())
	p.controlled()
	check(p.serve().as("acme-token"))
}

// TestWarmAnswersAreLogged shows that a request that bypasses the router is logged like any other request.
func TestWarmAnswersAreLogged(t *testing.T) {
	b := newBench(t)
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
	b.catalog(catalog.Options{})
	c := b.serve()
	for range 3 {
		c.get(prefix + "index.json?token=secret")
	}
	line := "path=" + prefix + "index.json status=200 bytes=25"
	if log := b.log.String(); strings.Count(log, line) != 3 || strings.Contains(log, "secret") {
		t.Errorf("log:\n%s", log)
	}
}

// TestRegistryProtocolIsCachedToo shows that the gateway fetches a version's evidence once for all documents of
// the registry protocol. Then it serves these documents even if the registry is down.
func TestRegistryProtocolIsCachedToo(t *testing.T) {
	b := newBench(t)
	p := newPublisher(b)
	p.push(widget, "1.0.0")
	b.catalog(catalog.Options{TagTTL: time.Nanosecond, Directory: t.TempDir()})
	c := b.serve()
	paths := []string{"versions", "1.0.0/download/linux/amd64", "1.0.0/checksums/terraform-provider-widget_1.0.0_SHA256SUMS"}
	want := map[string]answer{}
	for _, path := range paths {
		if want[path] = c.get(hostsPrefix + path); want[path].status != http.StatusOK {
			t.Fatalf("%s: %+v", path, want[path])
		}
	}
	b.registry.Reset()
	for _, path := range paths {
		c.get(hostsPrefix + path)
	}
	if n := b.registry.Count(recorder.PathContains("/blobs/")) + b.registry.Count(recorder.PathContains("sha256:")); n != 0 {
		t.Errorf("content is fetched again: %v", b.registry.Requests())
	}
	b.stopRegistry()
	for _, path := range paths {
		if a := c.get(hostsPrefix + path); a.status != http.StatusOK || a.body != want[path].body {
			t.Errorf("%s, with the registry stopped: %+v", path, a)
		}
	}
}
