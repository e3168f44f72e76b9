package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
)

// scrape returns the metrics in the text format of Prometheus.
func scrape(t *testing.T, m *telemetry.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("metrics: %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func want(t *testing.T, m *telemetry.Metrics, lines ...string) {
	t.Helper()
	got := scrape(t, m)
	for _, line := range lines {
		if !strings.Contains(got, "\n"+line+"\n") {
			t.Errorf("no line %s in\n%s", line, got)
		}
	}
}

// filled returns metrics in which every metric has a value.
func filled() *telemetry.Metrics {
	m := telemetry.NewMetrics("1.2.3")
	m.RequestBegan()
	m.RequestEnded("index", http.MethodGet, 200, time.Millisecond)
	m.RegistryRequest(telemetry.RegistryRequest{Host: "harbor.example.com", Status: 200, Took: time.Millisecond})
	m.PullLimited("max_per_day")
	m.Pulled("fetched", "fetched")
	m.PullDownloaded(1<<20, time.Second, true)
	m.Pulled("stored", "stored")
	m.Pulled("stored", "abandoned") // counts as failed, because only fetches have this outcome
	m.Reloaded(nil)
	log := m.CountPanics(slog.New(slog.NewTextHandler(io.Discard, nil))).With("a", "b").WithGroup("c")
	log.Info("another line")
	_ = panics.Catch(context.Background(), log, func() error { panic("a bug") })
	telemetry.NewReadiness(m, slog.New(slog.DiscardHandler)).Refresh(context.Background())
	return m
}

func TestLint(t *testing.T) {
	families, err := filled().Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestValues(t *testing.T) {
	m := filled()
	m.Catalog.Stale.Add(3)
	m.Archives.Cached.Bytes.Add(1000)
	m.Verify.Refused.Add(1)
	m.Access.Capability.Add(2)
	m.Reloaded(errors.New("no"))
	want(t, m, `ocibridge_catalog_entries 0`)
	m.Sample(func() map[string]float64 {
		return map[string]float64{
			"catalog_entries": 7, "catalog_memory_bytes": 7000, "archive_cache_bytes": 50, "archive_cache_limit_bytes": 60, "archive_cache_fetches_in_flight": 3,
			"pull_in_flight": 2, "pull_in_flight_limit": 8, "pull_today_bytes": 30, "pull_spool_bytes": 20, "pull_spool_limit_bytes": 100,
			"certificate_expiration_timestamp_seconds": 1.8e9,
		}
	})
	want(t, m,
		`ocibridge_http_requests_total{method="GET",route="index",status="200"} 1`,
		`ocibridge_http_requests_in_flight 0`,
		`ocibridge_http_request_duration_seconds_bucket{route="index",le="0.001"} 1`,
		`ocibridge_http_request_duration_seconds_bucket{route="index",le="0.0005"} 0`,
		`ocibridge_registry_requests_total{outcome="ok",registry="harbor.example.com"} 1`,
		`ocibridge_catalog_answers_total{result="stale"} 3`,
		`ocibridge_catalog_entries 7`,
		`ocibridge_catalog_memory_bytes 7000`,
		`ocibridge_archive_cache_bytes 50`,
		`ocibridge_archive_cache_fetches_in_flight 3`,
		`ocibridge_archive_bytes_total{from="cache"} 1000`,
		`ocibridge_archive_cache_limit_bytes 60`,
		`ocibridge_verify_versions_total{verdict="refused"} 1`,
		`ocibridge_access_refusals_total{reason="capability"} 2`,
		`ocibridge_config_reloads_total{result="success"} 1`,
		`ocibridge_config_reloads_total{result="failure"} 1`,
		`ocibridge_config_last_reload_successful 0`,
		`ocibridge_pull_fetches_total{outcome="fetched"} 1`,
		`ocibridge_pull_fetches_total{outcome="busy"} 0`,
		`ocibridge_pull_bytes_total 1.048576e+06`,
		`ocibridge_pull_pushes_total{outcome="stored"} 1`,
		`ocibridge_pull_pushes_total{outcome="failed"} 1`,
		`ocibridge_pull_limits_reached_total{limit="max_per_day"} 1`,
		`ocibridge_pull_limits_reached_total{limit="disk"} 0`,
		`ocibridge_pull_duration_seconds_count 1`,
		`ocibridge_pull_in_flight 2`,
		`ocibridge_pull_in_flight_limit 8`,
		`ocibridge_pull_today_bytes 30`,
		`ocibridge_pull_today_limit_bytes 0`,
		`ocibridge_pull_spool_bytes 20`,
		`ocibridge_pull_spool_limit_bytes 100`,
		`ocibridge_certificate_expiration_timestamp_seconds 1.8e+09`,
		`ocibridge_ready 1`,
		`ocibridge_panics_total 1`,
	)
	if got := scrape(t, m); !strings.Contains(got, `version="1.2.3"`) || !strings.Contains(got, "go_goroutines") {
		t.Errorf("metrics\n%s", got)
	}
}

func TestRequests(t *testing.T) {
	m := telemetry.NewMetrics("", "page")
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() {
			for status := range 100 {
				m.RequestBegan()
				m.RequestEnded("archive", http.MethodGet, 200+status, 0)
			}
		})
	}
	asking.Wait()
	m.RequestBegan() // a request that does not end
	for _, end := range []struct {
		route, method string
		status        int
	}{{"archive", "HEAD", 0}, {"other", "BREW", 405}, {"other", "PROPFIND", 405}} {
		m.RequestBegan()
		m.RequestEnded(end.route, end.method, end.status, 0)
	}
	want(t, m,
		`ocibridge_http_requests_total{method="GET",route="archive",status="200"} 8`,
		`ocibridge_http_requests_total{method="GET",route="archive",status="299"} 8`,
		`ocibridge_http_requests_total{method="HEAD",route="archive",status="aborted"} 1`,
		`ocibridge_http_requests_total{method="other",route="other",status="405"} 2`,
		`ocibridge_http_request_duration_seconds_count{route="archive"} 801`,
		`ocibridge_http_request_duration_seconds_count{route="page"} 0`,
		`ocibridge_http_requests_in_flight 1`,
	)
}

type timeout struct{}

var _ net.Error = timeout{}

func (timeout) Error() string   { return "timeout" }
func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }

func TestOutcomes(t *testing.T) {
	m := telemetry.NewMetrics("")
	for want, s := range map[string]telemetry.RegistryRequest{
		"ok": {Status: 307}, "challenge": {Status: 401}, "denied": {Status: 401, Authorized: true}, "not_found": {Status: 404},
		"too_many": {Status: 429}, "server_error": {Status: 503}, "client_error": {Status: 400},
		"network": {Err: errors.New("refused")}, "timeout": {Err: fmt.Errorf("read: %w", timeout{})}, "canceled": {Err: context.Canceled},
	} {
		s.Host = want
		m.RegistryRequest(s)
	}
	m.RegistryRequest(telemetry.RegistryRequest{Host: "denied", Status: 403})
	m.RegistryRequest(telemetry.RegistryRequest{Host: "timeout", Err: context.DeadlineExceeded})
	for _, outcome := range []string{"ok", "challenge", "not_found", "too_many", "server_error", "client_error", "network", "canceled"} {
		want(t, m, fmt.Sprintf(`ocibridge_registry_requests_total{outcome=%q,registry=%q} 1`, outcome, outcome))
	}
	for _, outcome := range []string{"denied", "timeout"} {
		want(t, m, fmt.Sprintf(`ocibridge_registry_requests_total{outcome=%q,registry=%q} 2`, outcome, outcome))
	}
}

// TestHostsAreBounded shows that if a registry redirects to a thousand hosts, only the
// first hosts get a label of their own.
func TestHostsAreBounded(t *testing.T) {
	m := telemetry.NewMetrics("")
	m.AddRegistries("harbor.example.com")
	for i := range 1000 {
		m.RegistryRequest(telemetry.RegistryRequest{Host: fmt.Sprintf("bucket-%d.storage.example", i), Status: 200})
	}
	m.RegistryRequest(telemetry.RegistryRequest{Host: "harbor.example.com", Status: 200})
	got := scrape(t, m)
	if n := strings.Count(got, "\nocibridge_registry_requests_total{"); n != 33 {
		t.Errorf("%d hosts have a label", n)
	}
	want(t, m, `ocibridge_registry_requests_total{outcome="ok",registry="harbor.example.com"} 1`, `ocibridge_registry_requests_total{outcome="ok",registry="other"} 969`)
}
