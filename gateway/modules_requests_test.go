package gateway_test

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/module"
)

const (
	moduleVersions = modulePrefix + "versions"
	moduleDownload = modulePrefix + "1.0.0/download"
	moduleArchive  = modulePrefix + "1.0.0/net-1.0.0.zip"
)

// TestConcurrentModuleClientsShareFetches shows that concurrent clients of a module share the requests to the registry.
// The registry sends nothing until all clients have sent their requests.
func TestConcurrentModuleClientsShareFetches(t *testing.T) {
	const clients, tags, manifest = 20, "GET tags/list", "GET manifests/1.0.0"
	for name, tc := range map[string]struct {
		paths []string
		held  string // the part of the path of the registry's held requests
		want  []string
	}{
		"versions": {[]string{moduleVersions}, "/tags/list", []string{tags}},
		"download": {[]string{moduleDownload}, "/manifests/", []string{manifest}},
		"archive":  {[]string{moduleArchive}, "/blobs/", []string{"GET blobs/", manifest}},
		"all":      {[]string{moduleVersions, moduleDownload, moduleArchive}, "/", []string{"GET blobs/", manifest, tags}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t).modules()
			content := b.publishModule(netModule, "1.0.0", "1.0.0")
			b.cache()
			b.catalog(catalog.Options{Repository: b.options.Repository, TagTTL: time.Hour})
			began := make(chan struct{}, clients*len(tc.paths))
			b.options.Hooks.Began = func() { began <- struct{}{} }
			c := b.serve()
			b.registry.Reset()
			asked, open := make(chan struct{}, clients*len(tc.paths)), make(chan struct{})
			b.registry.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
				if strings.Contains(r.URL.Path, tc.held) {
					asked <- struct{}{}
					<-open
				}
				return false
			})
			var all sync.WaitGroup
			for range clients {
				for _, path := range tc.paths {
					all.Go(func() {
						if a := c.get(path); a.status != http.StatusOK || path == moduleArchive && a.body != string(content) {
							t.Errorf("%s: %+v", path, a)
						}
					})
				}
			}
			for range cap(began) {
				<-began
			}
			<-asked
			close(open)
			all.Wait()
			got := b.asked()
			for i := range got {
				got[i] = strings.TrimSuffix(got[i], digest.FromBytes(content).String())
			}
			if slices.Sort(got); !slices.Equal(got, tc.want) {
				t.Errorf("the requests to the registry %q, want %q", got, tc.want)
			}
		})
	}
}

// TestModuleETags shows that clients can revalidate the list of versions, the download document and the zip of a module
// by their ETags. A changed list and another zip have other ETags.
func TestModuleETags(t *testing.T) {
	paths := []string{moduleVersions, moduleDownload, moduleArchive}
	protocols(t, func(t *testing.T, http2 bool) {
		for name, cached := range map[string]bool{"with a cache": true, "without a cache": false} {
			b := newBench(t).modules()
			content := b.publishModule(netModule, "1.0.0", "1.0.0")
			if cached {
				b.cache()
			}
			c := b.serveOver(http2)
			first := map[string]string{}
			for _, path := range paths {
				a := c.get(path)
				etag := a.header.Get("ETag")
				if first[path] = etag; a.status != http.StatusOK || len(etag) < 10 || etag[0] != '"' {
					t.Errorf("%s: %s: %+v", name, path, a)
				}
				b.registry.Reset()
				for known, status := range map[string]int{
					etag: 304, "W/" + etag: 304, `"other", ` + etag: 304, "*": 304, `"other"`: 200, strings.Trim(etag, `"`): 200,
				} {
					for _, method := range []string{http.MethodGet, http.MethodHead} {
						a := c.knowing(known).do(method, path)
						if a.status != status || a.header.Get("ETag") != etag {
							t.Errorf("%s: %s %s with If-None-Match %s: %+v, want %d", name, method, path, known, a, status)
						}
						if a.status == http.StatusNotModified && (a.body != "" || a.header.Get("Content-Length") != "") {
							t.Errorf("%s: %s %s with If-None-Match %s: a body: %+v", name, method, path, known, a)
						}
						if n := b.registry.Count(recorder.PathContains("/blobs/")); n > 0 && (cached || status == http.StatusNotModified) {
							t.Errorf("%s: %s %s with If-None-Match %s: %d requests for the zip", name, method, path, known, n)
						}
						b.registry.Reset()
					}
				}
			}
			if want := `"` + digest.FromBytes(content).String() + `"`; first[moduleArchive] != want {
				t.Errorf("%s: the zip has the ETag %s, want %s", name, first[moduleArchive], want)
			}
			b.publishModule(netModule, "1.1.0", "1.1.0")
			b.storeModule(netModule, "1.0.0", "1.0.0", random(100))
			for path, status := range map[string]int{moduleVersions: 200, moduleDownload: 304, moduleArchive: 200} {
				if a := c.knowing(first[path]).get(path); a.status != status || (a.header.Get("ETag") == first[path]) != (status == 304) {
					t.Errorf("%s: %s after a change: %+v, want %d", name, path, a, status)
				}
			}
		}
	})
}

// knowing returns a client that sends an If-None-Match header.
func (c *client) knowing(etag string) *client {
	known := *c.http
	known.Transport = withHeader{"If-None-Match", etag, c.http.Transport}
	return &client{c.t, c.s, &known}
}

// TestModuleHeadIsGetWithoutBody is like [TestHeadIsGetWithoutBody], for modules.
func TestModuleHeadIsGetWithoutBody(t *testing.T) {
	const hosts = "/hosts/" + host + "/v1/modules/acme/"
	protocols(t, func(t *testing.T, http2 bool) {
		b := newBench(t).modules()
		b.publishModule(netModule, "1.0.0", "1.0.0")
		b.publishModule(netModule, "1.1.0", "v1.1.0")
		b.publishModule(otherModule, "1.0.0", "1.0.0")
		b.tag(b.moduleRepository(netModule), blobOf(ocispec.MediaTypeImageIndex, []byte(`{"schemaVersion":2,"mediaType":"`+ocispec.MediaTypeImageIndex+`","manifests":[]}`)), "2.0.0")
		b.options.Deny = []catalog.Deny{{Pattern: otherModule.Pattern(), Reason: "it is retired"}}
		b.options.ModuleOrigin = func(_ context.Context, a module.Address) (*url.URL, error) {
			if a.Name() != "origin" {
				return nil, nil
			}
			return url.Parse("https://origin.example/v1/modules/")
		}
		statuses := map[string]int{
			moduleVersions:                              200,
			moduleDownload:                              200,
			moduleArchive:                               200,
			moduleArchive + "?archive=zip":              200,
			modulePrefix + "1.1.0/download":             200,
			modulePrefix + "1.1.0/net-1.1.0.zip":        200,
			modulePrefix + "9.9.9/download":             404,
			modulePrefix + "9.9.9/net-9.9.9.zip":        404,
			modulePrefix + "1.0.0/other.zip":            404,
			modulePrefix + "2.0.0/download":             502,
			modulePrefix + "2.0.0/net-2.0.0.zip":        502,
			modulePrefix + "nonsense/download":          404,
			hosts + "absent/aws/versions":               404,
			hosts + "origin/aws/versions":               307,
			hosts + "origin/aws/1.0.0/download":         307,
			hosts + "origin/aws/1.0.0/origin-1.0.0.zip": 404,
			hosts + "other/aws/versions":                200,
			hosts + "other/aws/1.0.0/download":          451,
			hosts + "other/aws/1.0.0/other-1.0.0.zip":   451,
		}
		check := func(c *client) {
			t.Helper()
			for path, status := range statuses {
				b.wantHeadAsGet(c, path, status)
			}
		}
		check(b.serveOver(http2))
		b.cache()
		c := b.serveOver(http2)
		check(c) // the archives are in the cache after their first GET
		check(c)
		b.options.Access = access.New(access.Options{})
		for path := range statuses {
			statuses[path] = http.StatusUnauthorized
		}
		check(b.serveOver(http2))
	})
}
