package gateway_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/provider"
)

// cache gives the gateway a new, empty archive cache.
func (b *bench) cache() *archives.Cache {
	b.t.Helper()
	c, err := archives.OpenCache(b.t.TempDir(), 1<<30, archives.CacheOptions{Log: b.options.Log})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	b.options.Cache = c
	return c
}

// TestCachedArchive shows that the gateway fetches an archive once from a real registry, and then serves it
// from the cache. The client gets the archive even if the connection to the registry breaks during the fetch.
// HEAD and GET have the same status, even if the registry has lost the blob.
func TestCachedArchive(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		b := newBench(t)
		b.cache()
		const size = 1 << 20
		want := random(size)
		b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: want})
		c := b.serveOver(http2)
		path := archivePath("1.0.0", linux)
		if a := c.do(http.MethodHead, path); a.status != http.StatusOK || a.header.Get("Content-Length") != fmt.Sprint(size) {
			t.Errorf("HEAD: %+v", a)
		}
		b.breakOff(breaker{after: size / 2, breaks: 1, how: cut})
		b.registry.Reset()
		for range 3 {
			if a := c.get(path); a.status != http.StatusOK || a.body != string(want) {
				t.Errorf("%d with %d bytes", a.status, len(a.body))
			}
		}
		blobs := b.registry.Requests(recorder.PathContains("/blobs/"))
		if len(blobs) < 2 || !slices.ContainsFunc(blobs, func(r recorder.Request) bool { return strings.HasPrefix(r.Range, "bytes=") }) {
			t.Errorf("not resumed by a range: %v", blobs)
		}
		b.lie("/blobs/", respond(404, "application/json", `{"errors":[{"code":"BLOB_UNKNOWN"}]}`))
		b.registry.Reset()
		head, get := c.do(http.MethodHead, path), c.get(path)
		if head.status != http.StatusOK || get.status != http.StatusOK || head.header.Get("Content-Length") != get.header.Get("Content-Length") {
			t.Errorf("HEAD %d %v, GET %d %v", head.status, head.header, get.status, get.header)
		}
		if n := b.registry.Count(recorder.PathContains("/blobs/")); n != 0 {
			t.Errorf("%d requests for the blob", n)
		}
		b.cache() // an empty cache
		c = b.serveOver(http2)
		for _, method := range []string{http.MethodHead, http.MethodGet} {
			if a := c.do(method, path); a.status != http.StatusBadGateway || a.header.Get("Retry-After") == "" {
				t.Errorf("%s: %+v", method, a)
			}
		}
	})
}

// TestHeadWithoutRegistrySupport shows that HEAD of an archive succeeds even if the registry does not support
// or allow HEAD. It fails if the registry is unavailable or lacks the blob.
func TestHeadWithoutRegistrySupport(t *testing.T) {
	for status, want := range map[int]int{405: 200, 501: 200, 403: 200, 404: 502, 500: 502, 429: 503, 503: 503} {
		b := newBench(t)
		b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: random(100)})
		b.lie("/blobs/", respond(status, "text/plain", ""))
		if a := b.serve().do(http.MethodHead, archivePath("1.0.0", linux)); a.status != want {
			t.Errorf("%d: HEAD %d, want %d", status, a.status, want)
		}
	}
}
