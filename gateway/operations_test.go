package gateway_test

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/gateway"
)

// TestEveryEndpointIsDocumented checks that docs/reference/operations.md describes every route.
func TestEveryEndpointIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	b.controlled()
	b.options.PublicURL, b.options.Registry = parseURL(t, "https://"+host+"/"), b.registry.Truth
	b.options.Ready, b.options.Metrics = http.NotFoundHandler(), http.NotFoundHandler()
	b.options.Page = http.NotFoundHandler()
	paths := gateway.Paths(b.options.Options)
	for _, want := range []string{"/healthz", "/readyz", "/metrics", "/-/refresh", "/v2/", gateway.MirrorPath + "{hostname}/{namespace}/{type}/index.json"} {
		if !slices.Contains(paths, want) {
			t.Errorf("no route %s in %v", want, paths)
		}
	}
	for _, path := range paths {
		if !strings.Contains(string(page), "| `"+path+"` |") {
			t.Errorf("docs/reference/operations.md does not describe %s", path)
		}
	}
}

// TestWhoMayReadMetrics shows that only operators can read the metrics if access is controlled.
// Otherwise everyone can read them.
func TestWhoMayReadMetrics(t *testing.T) {
	b := newBench(t)
	b.options.Metrics, b.options.Ready = http.HandlerFunc(gateway.Healthz), http.HandlerFunc(gateway.Healthz)
	if a := b.serve().get("/metrics"); a.status != http.StatusOK {
		t.Errorf("without access control: %+v", a)
	}
	b.controlled()
	anybody := b.serve()
	for c, status := range map[*client]int{anybody: 401, anybody.as("acme-token"): 403, anybody.as("ops-token"): 200} {
		if a := c.get("/metrics"); a.status != status {
			t.Errorf("%+v, want %d", a, status)
		}
		if a := c.get("/readyz"); a.status != http.StatusOK {
			t.Errorf("readyz: %+v", a)
		}
	}
	b.options.Metrics, b.options.Ready = nil, nil
	nothing := b.serve().as("ops-token")
	for _, path := range []string{"/metrics", "/readyz"} {
		if a := nothing.get(path); a.status != http.StatusNotFound {
			t.Errorf("%s: %+v", path, a)
		}
	}
}
