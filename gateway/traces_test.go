package gateway_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/internal/test/testkit/traces"
	"github.com/ocibridge/ocibridge/provider"
)

// TestTraces shows that a request's trace has spans for the fetches that the request causes. Traces contain
// no secrets.
func TestTraces(t *testing.T) {
	b := newBench(t)
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
	b.controlled()
	cache, err := archives.OpenCache(t.TempDir(), 1<<20, archives.CacheOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cache.Close() })
	seen := &traces.Recorder{}
	b.options.Hooks.Tracer, b.options.Cache = seen, cache
	c := b.serve()
	acme := *c.as("acme-token").http
	acme.Transport = withHeader{"Traceparent", "caller", acme.Transport}
	url := (&client{t, c.s, &acme}).archiveURL("1.0.0", linux)
	if a := c.get(url); a.status != http.StatusOK || !strings.Contains(url, "/cap1.") {
		t.Fatalf("%s: %+v", url, a)
	}
	if a := c.get(url + "x"); a.status != http.StatusForbidden {
		t.Errorf("another name: %d", a.status)
	}
	c.s.Close()
	cache.Close() // waits for running downloads
	for _, want := range []string{"caller > request", "caller > request > catalog fetch", "request > archive", "request > archive > archive fetch"} {
		if !slices.Contains(seen.Spans(), want) {
			t.Errorf("no span %q in\n%s", want, seen)
		}
	}
	for _, want := range []string{"http.route=version http.response.status_code=200", "http.route=archive http.response.status_code=200", "provider=" + widget.String()} {
		if !strings.Contains(seen.String(), want) {
			t.Errorf("%s is not in\n%s", want, seen)
		}
	}
	_, capability, _ := strings.Cut(url, "/cap1.")
	for _, secret := range []string{capability[:40], "acme-token", "Bearer"} {
		if strings.Contains(seen.String(), secret) {
			t.Errorf("%q is in the traces:\n%s", secret, seen)
		}
	}
}
