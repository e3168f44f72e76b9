package serve

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// asked sends a GET request for a path to a handler, and returns the response.
func asked(h http.Handler, path string) (status int, body string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// testOperations returns the operations of a gateway with a separate listener for metrics.
func testOperations(t *testing.T) *operations {
	t.Helper()
	ops, err := newOperations(t.Context(), Options{Log: slog.New(slog.DiscardHandler), Getenv: os.Getenv}, "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ops.Close)
	return ops
}

// TestOperationsOutliveReloads shows that counters survive a reload. If the new settings are invalid, the gateway
// stays ready with the earlier settings.
func TestOperationsOutliveReloads(t *testing.T) {
	r := newReloading(t, withToken(""))
	ops := testOperations(t)
	if status, body := asked(ops.handler(), "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, `"configuration":{"ok":false}`) {
		t.Errorf("before anything is served: %d %s", status, body)
	}
	r.process.ops = ops
	for range 2 {
		if !r.as(withToken("  # again\n")) {
			t.Fatalf("%s", r.log.String())
		}
		r.status(absentPath, "")
		r.status(absentPath, testToken)
	}
	if r.as("gateway {\n  verfy = \"off\"\n}\n") {
		t.Fatal("invalid settings took effect")
	}
	_, body := asked(ops.handler(), "/metrics")
	for _, line := range []string{
		`ocibridge_http_requests_total{method="GET",route="index",status="401"} 2`,
		`ocibridge_http_requests_total{method="GET",route="index",status="404"} 2`,
		`ocibridge_access_refusals_total{reason="unknown"} 2`,
		`ocibridge_catalog_answers_total{result="miss"} 2`,
		`ocibridge_config_reloads_total{result="success"} 3`,
		`ocibridge_config_reloads_total{result="failure"} 1`,
		`ocibridge_config_last_reload_successful 0`,
	} {
		if !strings.Contains(body, "\n"+line+"\n") {
			t.Errorf("no line %s in\n%s", line, body)
		}
	}
	again := testOperations(t)
	r.process.ops = again // without any findings yet
	again.use(r.live.current.Load())
	r.as("nonsense")
	if status, body := asked(again.handler(), "/readyz"); status != http.StatusOK || !strings.Contains(body, "the earlier one stays in force") {
		t.Errorf("after a reload that failed: %d %s", status, body)
	}
	scraped := testOperations(t)
	scraped.use(r.live.current.Load())
	for _, want := range []string{"1", "0"} { // although no client requests /readyz
		if _, body := asked(scraped.handler(), "/metrics"); !strings.Contains(body, "\nocibridge_ready "+want+"\n") {
			t.Errorf("ready is not %s in\n%s", want, body)
		}
		scraped.ready.Drain()
	}
	again.ready.Drain()
	if status, body := asked(again.handler(), "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "shutting down") {
		t.Errorf("at the end: %d %s", status, body)
	}
	if status, _ := asked(again.handler(), "/providers/"); status != http.StatusNotFound {
		t.Errorf("providers at the address of metrics: %d", status)
	}
}
