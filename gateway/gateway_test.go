package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit/accepted"
	"github.com/ocibridge/ocibridge/internal/test/testkit/collected"
	"github.com/ocibridge/ocibridge/internal/test/testkit/loopback"
	"github.com/ocibridge/ocibridge/internal/test/testkit/ports"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

const (
	host   = "registry.acme.example"
	prefix = "/providers/" + host + "/acme/widget/"
)

var (
	widget = provider.MustParseAddress(host + "/acme/widget")
	linux  = provider.MustParsePlatform("linux_amd64")
	darwin = provider.MustParsePlatform("darwin_arm64")
)

// bench is a gateway in front of a real registry. A recorder between the two records requests, and can
// replace the registry's responses.
type bench struct {
	t        testing.TB
	registry *loopback.Registry
	repo     *remote.Repository // widget's repository
	log      *collected.Text
	limits   gateway.Limits
	options  gateway.Backed
}

func newBench(t testing.TB) *bench {
	b := &bench{t: t, registry: loopback.For(t), log: &collected.Text{}}
	b.repo = b.repository(widget)
	b.options = gateway.Backed{
		Options: gateway.Options{Log: slog.New(slog.NewTextHandler(b.log, nil))},
		Repository: func(_ context.Context, a subject.Address) (catalog.Store, error) {
			if a.Hostname() == "elsewhere.example" || a.Kind() == subject.Module {
				return nil, fmt.Errorf("%w: no template is for it", gateway.ErrNotServed)
			}
			return b.repository(a), nil
		},
	}
	return b
}

// stopRegistry makes the registry refuse connections.
func (b *bench) stopRegistry() {
	b.t.Helper()
	b.registry.Server.Close()
	held := &ports.Held{}
	held.Hold(b.registry.Server.Listener.Addr().String())
	b.t.Cleanup(held.Release)
}

// repository returns a client of a provider's repository.
func (b *bench) repository(a subject.Address) *remote.Repository {
	return b.registry.Repository(a.Path())
}

// random returns a package of size incompressible bytes. It always returns the same bytes for the same
// size.
func random(size int) []byte {
	data := make([]byte, size-release.ZipEndSize)
	rand.NewChaCha8([32]byte{byte(size)}).Read(data)
	return release.AsZip(data)
}

// zip returns a small package that has an h1 hash.
func zip(t testing.TB, p provider.Platform) []byte {
	t.Helper()
	data, err := release.Zip(map[string][]byte{"terraform-provider-widget_v1.0.0": []byte("for " + p.String())})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// withoutH1 returns a small package that has no h1 hash. The reason is a directory entry in the package.
func withoutH1(t testing.TB) []byte {
	t.Helper()
	data, err := release.Zip(map[string][]byte{"docs/": nil, "terraform-provider-widget_v1.0.0": []byte("with a folder")})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// publish stores an unsigned version of a provider, and returns the version. The version has no evidence.
// Otherwise it is the same as a pushed version.
func (b *bench) publish(a provider.Address, version string, packages map[provider.Platform][]byte) artifact.Version {
	b.t.Helper()
	repo, v := b.repository(a), provider.MustParseVersion(version)
	out := artifact.Version{Owner: a, Version: v, Protocols: []string{"5.0"}}
	b.send(repo, artifact.Config())
	for platform, content := range packages {
		pkg, _ := accepted.Package(b.t, a, v, platform, content)
		p, manifest, err := artifact.EncodePackage(pkg)
		if err != nil {
			b.t.Fatal(err)
		}
		b.send(repo, artifact.Blob{Descriptor: p.Layer(), Data: content}, manifest)
		out.Packages = append(out.Packages, p)
	}
	index, err := artifact.EncodeIndex(out)
	if err != nil {
		b.t.Fatal(err)
	}
	tag, err := ociaddr.VersionTag(v)
	if err != nil {
		b.t.Fatal(err)
	}
	b.tag(repo, index, string(tag))
	b.registry.Reset()
	return out
}

func (b *bench) send(repo *remote.Repository, blobs ...artifact.Blob) {
	b.t.Helper()
	for _, blob := range blobs {
		if err := repo.Push(b.t.Context(), blob.Descriptor, bytes.NewReader(blob.Data)); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *bench) tag(repo *remote.Repository, blob artifact.Blob, tag string) {
	b.t.Helper()
	if err := repo.PushReference(b.t.Context(), blob.Descriptor, bytes.NewReader(blob.Data), tag); err != nil {
		b.t.Fatal(err)
	}
}

func blobOf(mediaType string, data []byte) artifact.Blob {
	return artifact.Blob{Descriptor: ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}, Data: data}
}

// archivePath returns the path of a package of widget in the network mirror.
func archivePath(version string, p provider.Platform) string {
	return prefix + version + "/" + p.String() + "/" + provider.PackageFilename(widget, provider.MustParseVersion(version), p)
}

// lie makes h answer all requests to the registry whose path contains part.
func (b *bench) lie(part string, h http.HandlerFunc) {
	b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, part) {
			return false
		}
		h(w, r)
		return true
	})
}

// serve starts the gateway.
func (b *bench) serve() *client {
	b.t.Helper()
	return b.start(httptest.NewUnstartedServer(gateway.NewWithin(b.options, b.limits)), false)
}

// start starts a server of the gateway, over HTTP/2 or HTTP/1.1.
func (b *bench) start(s *httptest.Server, http2 bool) *client {
	b.t.Helper()
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo) // the tests cut connections on purpose
	if s.EnableHTTP2 = http2; http2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	b.t.Cleanup(s.Close)
	c := &client{b.t, s, s.Client()}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c
}

// client sends requests to a gateway.
type client struct {
	t    testing.TB
	s    *httptest.Server
	http *http.Client
}

// answer is a complete response of a gateway.
type answer struct {
	status int
	header http.Header
	body   string
}

func (c *client) do(method, path string) answer {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.s.URL+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

func (c *client) get(path string) answer {
	c.t.Helper()
	return c.do(http.MethodGet, path)
}

func TestHealthz(t *testing.T) {
	b := newBench(t)
	if a := b.serve().get("/healthz"); a.status != http.StatusOK || a.body != "ok\n" {
		t.Errorf("%+v", a)
	}
	if n := b.registry.Count(); n != 0 {
		t.Errorf("%d requests to the registry", n)
	}
}

func TestZeroOptionsServeNothing(t *testing.T) {
	b := newBench(t)
	b.options = gateway.Backed{}
	c := b.serve()
	for path, want := range map[string]int{prefix + "index.json": 404, archivePath("1.0.0", linux): 404, "/v2/": 404, prefix + "1.0.0.json": 200, "/healthz": 200} {
		if a := c.get(path); a.status != want {
			t.Errorf("%s: %+v", path, a)
		}
	}
}

func TestEmbeddedRegistryIsServed(t *testing.T) {
	b := newBench(t)
	v := b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
	b.options.Registry = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusTeapot) // the registry's handler answers all methods
			return
		}
		b.registry.Truth.ServeHTTP(w, r)
	})
	c := b.serve()
	blob := "/v2/" + widget.Path() + "/blobs/" + v.Packages[0].Digest.String()
	if a := c.get(blob); a.status != http.StatusOK || a.body != string(zip(t, linux)) {
		t.Errorf("%d, %d bytes", a.status, len(a.body))
	}
	if a := c.do(http.MethodPost, "/v2/x/blobs/uploads/"); a.status != http.StatusTeapot {
		t.Errorf("POST: %+v", a)
	}
}

func TestOtherMethods(t *testing.T) {
	b := newBench(t)
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
	c := b.serve()
	for _, path := range []string{"/healthz", prefix + "index.json", prefix + "1.0.0.json", archivePath("1.0.0", linux)} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, "PROPFIND"} {
			if a := c.do(method, path); a.status != http.StatusMethodNotAllowed || a.header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %d, Allow %q", method, path, a.status, a.header.Get("Allow"))
			}
		}
	}
	if n := b.registry.Count(); n != 0 {
		t.Errorf("%d requests to the registry", n)
	}
}

// wantHeadAsGet requests a path by HEAD and by GET. It checks that both have the status and the same headers, and that HEAD
// has no body and makes the gateway fetch no blob.
func (b *bench) wantHeadAsGet(c *client, path string, status int) {
	b.t.Helper()
	b.registry.Reset()
	head := c.do(http.MethodHead, path)
	if n := b.registry.Count(recorder.PathContains("/blobs/"), recorder.Method(http.MethodGet)); n != 0 {
		b.t.Errorf("HEAD %s: %d blobs fetched", path, n)
	}
	get := c.get(path)
	if get.status != status || head.status != status {
		b.t.Errorf("%s: GET %d, HEAD %d, want %d", path, get.status, head.status, status)
	}
	if head.body != "" {
		b.t.Errorf("HEAD %s has a body", path)
	}
	if want := fmt.Sprint(len(get.body)); get.header.Get("Content-Length") != want {
		b.t.Errorf("%s: Content-Length %q of %s bytes", path, get.header.Get("Content-Length"), want)
	}
	for _, a := range []answer{head, get} {
		a.header.Del("Date")
		a.header.Del("X-Request-Id")
		if status == http.StatusTemporaryRedirect {
			a.header.Del("Content-Length") // net/http adds it to the response to GET alone
		}
	}
	if g, h := fmt.Sprint(get.header), fmt.Sprint(head.header); g != h {
		b.t.Errorf("%s:\nGET  %s\nHEAD %s", path, g, h)
	}
}

// TestHeadIsGetWithoutBody shows that the response to HEAD has the same status and headers as the response
// to GET. HEAD does not make the gateway fetch a blob.
func TestHeadIsGetWithoutBody(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		b := newBench(t)
		b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: random(3 * gateway.CopyBuffer)})
		b.publish(widget, "1.1.0", map[provider.Platform][]byte{linux: release.AsZip([]byte("small"))})
		b.tag(b.repo, blobOf(ocispec.MediaTypeImageIndex, []byte(`{"schemaVersion":2,"mediaType":"`+ocispec.MediaTypeImageIndex+`","manifests":[]}`)), "2.0.0")
		c := b.start(httptest.NewUnstartedServer(gateway.NewWithin(b.options, b.limits)), http2)
		for path, status := range map[string]int{
			"/healthz":                    200,
			prefix + "index.json":         200,
			prefix + "1.0.0.json":         200,
			prefix + "9.9.9.json":         200,
			prefix + "2.0.0.json":         502,
			archivePath("1.0.0", linux):   200,
			archivePath("1.1.0", linux):   200,
			archivePath("1.0.0", darwin):  404,
			archivePath("9.9.9", linux):   404,
			archivePath("2.0.0", linux):   502,
			prefix + "latest.json":        404,
			"/":                           404,
			"/providers/x/y/z/index.json": 404,
			"/providers/elsewhere.example/acme/widget/index.json": 404,
		} {
			b.wantHeadAsGet(c, path, status)
		}
	}
}
