package faults_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
)

const (
	// clientsWait is how long clients wait for JSON.
	clientsWait = 10 * time.Second
	// maxArchive is the maximum time until an archive arrives or fails.
	maxArchive = 12 * time.Minute
)

var readSteps = []step{
	{"token", to("GET", "/token")},
	{"list tags", to("GET", "/tags/list")},
	{"read the tag", to("GET HEAD", "/manifests/"+version)},
	{"read evidence", func(r *http.Request) bool {
		return strings.Contains(r.URL.Path, "/manifests/sha256") || strings.Contains(r.URL.Path, "/blobs/") && !isPackage(r)
	}},
	{"read a package", isPackage},
}

// isPackage reports whether a request is for a package's bytes.
func isPackage(r *http.Request) bool {
	return strings.HasSuffix(r.URL.Path, "/blobs/"+shared.module.version.Zip().Digest.String()) ||
		slices.ContainsFunc(slices.Concat(shared.release.Packages, shared.large.Packages), func(p release.Package) bool {
			return strings.HasSuffix(r.URL.Path, "/blobs/sha256:"+p.SHA256)
		})
}

// document is a JSON document or a package that clients request from the gateway.
type document struct {
	path  string
	steps []string // the requests that the gateway sends to the registry for the document
}

// undescribed is the list of versions that the gateway returns if it cannot read the content of the version.
const undescribed = `{"versions":[{"version":"` + version + `"}]}`

// documents returns all documents of a provider.
func documents(rel *release.Release) []document {
	mirror := "/providers/" + originHost + "/acme/" + rel.Type + "/"
	hosts := "/hosts/" + originHost + "/v1/providers/acme/" + rel.Type + "/"
	return []document{
		{mirror + "index.json", []string{"token", "list tags"}},
		{mirror + version + ".json", []string{"token", "read the tag"}},
		{hosts + "versions", []string{"token", "list tags", "read the tag"}},
		{hosts + version + "/download/linux/amd64", []string{"token", "read the tag", "read evidence"}},
		{mirror + version + "/linux_amd64/" + rel.Packages[0].Filename, []string{"token", "read the tag", "read a package"}},
	}
}

// moduleDocuments returns all documents of a module.
func moduleDocuments() []document {
	hosts := "/hosts/" + originHost + "/v1/modules/acme/vpc/aws/"
	return []document{
		{hosts + "versions", []string{"token", "list tags"}},
		{hosts + version + "/download", []string{"token", "read the tag"}},
		{hosts + version + "/vpc-" + version + ".zip", []string{"token", "read the tag", "read a package"}},
	}
}

// serve starts a gateway as "ocibridge serve" does, with its files in dir.
func (r *rig) serve(dir string) {
	r.t.Helper()
	r.serveWith(dir, nil, func() {})
}

// serveWith is like [rig.serve], but for a gateway that also serves the versions of an origin. If origin is nil, there is
// no origin. The function end is called when the gateway stops.
func (r *rig) serveWith(dir string, origin catalog.Origin, end func()) {
	r.t.Helper()
	log := slog.New(slog.NewTextHandler(r.log, nil))
	cache, err := archives.OpenCache(dir, 1<<30, archives.CacheOptions{Log: log})
	if err != nil {
		r.t.Fatal(err)
	}
	repository := func(ctx context.Context) (catalog.Store, error) {
		repo, err := r.auth.Repository(ctx, r.repo)
		if err != nil {
			return nil, err
		}
		repo.Client = catalog.Conditional(repo.Client)
		return repo, nil
	}
	known, err := catalog.New(catalog.Options{Directory: dir, Log: log, FreshToken: wire.WithFreshToken, Origin: origin,
		Repository: func(ctx context.Context, _ subject.Address) (catalog.Store, error) { return repository(ctx) }})
	if err != nil {
		r.t.Fatal(err)
	}
	listener, err := r.net.Listen(gatewayHost + ":80")
	if err != nil {
		r.t.Fatal(err)
	}
	server := &http.Server{
		Handler:           gateway.New(gateway.Options{Catalog: known, Cache: cache, PublicURL: &url.URL{Scheme: "https", Host: gatewayHost}, Log: log}),
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo),
	}
	go server.Serve(listener)
	r.client = &http.Client{Transport: &http.Transport{DialContext: r.net.Dial, DisableKeepAlives: true}} // with keep-alives, the client would retry
	r.stop = func() {
		// The gateway stops like "ocibridge serve". Responses that have begun can complete.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			r.t.Errorf("shutting down: %v", err)
		}
		known.Close()
		cache.Close()
		end()
	}
}

// answer is a response that a client has received.
type answer struct {
	status     int
	retryAfter string
	body       []byte
	err        error // the error of reading the body
	took       time.Duration
}

func (r *rig) get(path string) answer {
	r.t.Helper()
	start := time.Now()
	resp, err := r.client.Get("http://" + gatewayHost + path)
	if err != nil {
		return answer{err: err, took: time.Since(start)}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header.Get("Retry-After"), body, err, time.Since(start)}
}

// TestGatewayRegistry tests every fault at every step between the gateway and the registry. It tests each fault
// with empty and with filled caches, for one request and permanently.
func TestGatewayRegistry(t *testing.T) {
	gatewayFaults(t, readSteps, ofProvider, documents(shared.release))
}

// TestGatewayModules is like [TestGatewayRegistry], for a module.
func TestGatewayModules(t *testing.T) {
	testkit.LeaveToAll(t)
	steps := slices.DeleteFunc(slices.Clone(readSteps), func(s step) bool { return s.name == "read evidence" })
	gatewayFaults(t, steps, ofModule, moduleDocuments())
}

func gatewayFaults(t *testing.T, steps []step, of pushed, all []document) {
	truth := truths(t, of, all)
	for _, f := range faultsFor(registryHost) {
		if f.name == "reset in the request" {
			continue // requests of this step have no body
		}
		for _, s := range steps {
			for _, mode := range []string{"stays", "once", "known"} {
				t.Run(f.name+"/"+s.name+"/"+mode, func(t *testing.T) {
					f.leave(t)
					t.Parallel()
					inRig(t, func(r *rig) {
						if err := of.push(r, r.t.Context()); err != nil {
							r.t.Fatal(err)
						}
						r.auth = r.newAuth() // a new client has no tokens from the push
						r.serve(r.t.TempDir())
						c := served{r, f, s, all, truth}
						c.check(mode)
					})
				})
			}
		}
	}
}

// truths returns the bodies of the correct responses by path.
func truths(t *testing.T, of pushed, all []document) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	inRig(t, func(r *rig) {
		if err := of.push(r, r.t.Context()); err != nil {
			r.t.Fatal(err)
		}
		r.serve(r.t.TempDir())
		for _, d := range all {
			a := r.get(d.path)
			if a.status != http.StatusOK || a.err != nil {
				r.t.Fatalf("%s: %+v\n%s", d.path, a, r.log)
			}
			out[d.path] = a.body
		}
	})
	for path, has := range map[string]string{"index.json": `"` + version + `"`, version + ".json": shared.release.Packages[0].SHA256, "amd64": shared.release.Packages[0].SHA256, "versions": `"` + version + `"`, "download": "/vpc-" + version + ".zip?archive=zip"} {
		for p, body := range out {
			if strings.HasSuffix(p, path) && !strings.Contains(string(body), has) {
				t.Fatalf("%s: %s", p, body)
			}
		}
	}
	return out
}

// served is a gateway with a fault.
type served struct {
	*rig
	f     fault
	s     step
	all   []document
	truth map[string][]byte // the bodies of the correct responses by path
}

func (c served) check(mode string) {
	c.t.Helper()
	known := mode == "known"
	if known {
		c.allRight("before the fault")
		time.Sleep(2 * time.Minute) // everything must be revalidated
	}
	times := map[string]int{"once": 1}[mode]
	end := c.f.begin(c.rig, c.registry, c.s, times)
	for _, d := range c.all {
		a := c.get(d.path)
		right := c.judge(d, a)
		needed := slices.Contains(d.steps, c.s.name) || c.f.dial != nil
		switch {
		case right:
			if mode == "stays" && slices.Contains(d.steps, c.s.name) && !c.mayPass() {
				c.t.Errorf("%s is served, and the fault affects no request", d.path)
			}
		case known, !needed, c.f.harmless(), mode == "once" && c.f.passes() && !c.f.ofNames() && !c.f.lasts():
			c.t.Errorf("%s: %d, %v after %s\n%s", d.path, a.status, a.err, a.took, c.log)
		}
	}
	if c.registry.Hits() == 0 && !known {
		c.t.Error("the fault affected no request")
	}
	end()
	time.Sleep(time.Minute)
	c.allRight("after the fault")
}

// mayPass reports whether a document can be correct during a permanent fault. The gateway replaces an expired
// token with a new token. An altered byte has no effect if the gateway does not use this byte.
func (c served) mayPass() bool {
	return c.f.harmless() || c.f.name == "token expires" || c.f.name == "altered byte" && (c.s.name == "token" || c.s.name == "list tags")
}

// judge reports whether a response is correct. It fails the test if the content of the response is wrong. An
// error is not correct, but does not fail the test.
func (c served) judge(d document, a answer) bool {
	c.t.Helper()
	limit, archive := clientsWait, strings.HasSuffix(d.path, ".zip")
	if archive {
		limit = maxArchive
	}
	if a.took > limit {
		c.t.Errorf("%s took %s", d.path, a.took)
	}
	switch {
	case a.status == http.StatusOK && a.err == nil && bytes.Equal(a.body, c.truth[d.path]):
		return true
	case a.status == http.StatusBadGateway, a.status == http.StatusServiceUnavailable, a.status == http.StatusGatewayTimeout:
		if a.retryAfter == "" {
			c.t.Errorf("%s: %d without Retry-After", d.path, a.status)
		}
	case archive && a.err != nil && len(a.body) < len(c.truth[d.path]):
		// The response was aborted, so no client mistakes the response for complete.
	case strings.HasSuffix(d.path, "/versions") && string(a.body) == undescribed && c.f.inAnswer():
		// The version is known to exist, but the gateway cannot read its content now.
	default:
		c.t.Errorf("%s: %d with %d bytes, %v: %.200s", d.path, a.status, len(a.body), a.err, a.body)
	}
	return false
}

func (c served) allRight(when string) {
	c.t.Helper()
	for _, d := range c.all {
		if a := c.get(d.path); !c.judge(d, a) {
			c.t.Errorf("%s: %s: %d, %v\n%s", when, d.path, a.status, a.err, c.log)
		}
	}
}
