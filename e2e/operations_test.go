package e2e

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// collector is an HTTP server that stores the OTLP exports that it receives.
type collector struct {
	*httptest.Server
	mu   sync.Mutex
	data bytes.Buffer
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		io.Copy(&c.data, r.Body)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.data.String()
}

// watcher monitors a gateway.
type watcher struct {
	t       *testing.T
	http    http.Client
	base    string // URL of the gateway
	metrics string // URL of the separate listener for metrics
}

var metricsAddress = regexp.MustCompile(`metrics are answered"(?: |,")address(?:=|":")([0-9.:\[\]]+)`)

// watch monitors a gateway with a separate address for metrics.
func watch(t *testing.T, g *world.Gateway) *watcher {
	t.Helper()
	w := &watcher{t: t, base: strings.TrimSuffix(g.URL, "/providers/")}
	w.http.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	w.http.Timeout = 30 * time.Second
	t.Cleanup(w.http.CloseIdleConnections)
	for deadline := time.Now().Add(waitForLog); w.metrics == ""; time.Sleep(10 * time.Millisecond) {
		if m := metricsAddress.FindStringSubmatch(g.Log()); m != nil {
			w.metrics = "http://" + m[1]
		} else if time.Now().After(deadline) {
			t.Fatalf("where are the metrics?\n%s", g.Log())
		}
	}
	return w
}

func (w *watcher) get(url string) (status int, body string, header http.Header) {
	w.t.Helper()
	resp, err := w.http.Get(url)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, string(data), resp.Header
}

// atLeast waits until the value of a metric is least or more. name includes the labels, as Prometheus formats
// them. The test must wait, because the gateway counts a package shortly after the client has received the
// package.
func (w *watcher) atLeast(name string, least float64) {
	w.t.Helper()
	deadline := time.Now().Add(waitForLog)
	for {
		status, body, _ := w.get(w.metrics + "/metrics")
		v, there := value(w.t, body, name)
		if there && v >= least {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%d: %s is %v, want %v at least:\n%s", status, name, v, least, body)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// value returns the value of a metric, and reports whether the metric exists.
func value(t *testing.T, metrics, name string) (v float64, there bool) {
	t.Helper()
	for line := range strings.Lines(metrics) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			clients.Must(t, err)
			return v, true
		}
	}
	return 0, false
}

var (
	selector     = regexp.MustCompile(`(ocibridge_\w+)(?:\{([^}]*)\})?`)
	labelMatcher = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"`)
)

// hasMetricsOf checks that the gateway has each metric that a file of alert rules selects, with the selected labels.
func (w *watcher) hasMetricsOf(file string) {
	w.t.Helper()
	rules, err := os.ReadFile(file)
	clients.Must(w.t, err)
	_, metrics, _ := w.get(w.metrics + "/metrics")
	found := selector.FindAllStringSubmatch(string(rules), -1)
	if len(found) < 10 {
		w.t.Errorf("%s selects %q", file, found)
	}
	for _, m := range found {
		series := regexp.MustCompile(`(?m)^` + m[1] + `[ {].*$`).FindString(metrics)
		if series == "" {
			w.t.Errorf("%s selects %s, which the gateway lacks", file, m[1])
		}
		for _, label := range labelMatcher.FindAllStringSubmatch(m[2], -1) {
			if !strings.Contains(series, label[1]+`="`) {
				w.t.Errorf("%s selects the label %s of %s, which has none: %s", file, label[1], m[1], series)
			}
		}
	}
}

// ready waits until /readyz returns the status want at both addresses. It must wait, because the gateway's
// check of a registry can time out after three seconds on a busy machine.
func (w *watcher) ready(want int, says string) {
	w.t.Helper()
	deadline := time.Now().Add(waitForLog)
	for _, base := range []string{w.base, w.metrics} {
		for {
			status, body, _ := w.get(base + "/readyz")
			var found struct {
				Ready  bool
				Checks map[string]struct {
					OK   bool
					Says string
				}
			}
			if err := json.Unmarshal([]byte(body), &found); err != nil {
				w.t.Fatalf("%v: %s", err, body)
			}
			if status == want && found.Ready == (want == http.StatusOK) && strings.Contains(found.Checks["registry"].Says, says) && found.Checks["configuration"].OK {
				break
			}
			if time.Now().After(deadline) {
				w.t.Fatalf("%s: %d %s, want %d %q", base, status, body, want, says)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// TestOperations runs a gateway as in production. The gateway has a separate address for metrics, a log in
// JSON, and a collector for traces. Later, the gateway loses its registry.
func TestOperations(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
	s.pushTo(r, world.Null+"@"+nullVersion)
	c := newCollector(t)
	s.ws.Env["OTEL_EXPORTER_OTLP_ENDPOINT"] = c.URL
	cache := filepath.Join(t.TempDir(), "cache")
	config := s.config(mirror(r.Host) + "log_format = \"text\"\ngateway {\n  metrics_listen = \"localhost:0\"\n  tag_ttl = \"0s\"\n  cache {\n    directory = \"" + cache + "\"\n  }\n}\n")
	g := s.serve(config)
	w := watch(t, g)

	w.ready(http.StatusOK, "")
	req, err := http.NewRequest(http.MethodGet, g.URL+world.Null+"/"+nullVersion+".json", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Request-Id", "from-a-proxy-1")
	resp, err := w.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Header.Get("X-Request-Id") != "from-a-proxy-1" {
		t.Errorf("%s, %v", resp.Status, resp.Header)
	}
	p := hostPackage(t, s.null)
	archive := g.URL + world.Null + "/" + nullVersion + "/" + p.OS + "_" + p.Arch + "/" + p.Filename
	for range 2 {
		if status, _, _ := w.get(archive); status != http.StatusOK {
			t.Errorf("%s: %d", archive, status)
		}
	}
	for name, least := range map[string]float64{
		`ocibridge_http_requests_total{method="GET",route="version",status="200"}`:  1,
		`ocibridge_http_requests_total{method="GET",route="archive",status="200"}`:  2,
		`ocibridge_registry_requests_total{outcome="ok",registry="` + r.Host + `"}`: 3,
		`ocibridge_catalog_answers_total{result="miss"}`:                            1,
		`ocibridge_archive_cache_requests_total{result="miss"}`:                     1,
		`ocibridge_archive_cache_requests_total{result="hit"}`:                      1,
		`ocibridge_archive_bytes_total{from="cache"}`:                               1000,
		`ocibridge_archive_cache_bytes`:                                             1000,
		`ocibridge_config_last_reload_successful`:                                   1,
		`ocibridge_ready`:  1,
		`process_open_fds`: 1,
	} {
		w.atLeast(name, least)
	}
	w.hasMetricsOf("../deploy/prometheus/ocibridge.rules.yml")
	if status, _, _ := w.get(w.base + "/metrics"); status != http.StatusNotFound {
		t.Errorf("the gateway answers metrics beside their own address: %d", status)
	}
	if status, _, _ := w.get(w.metrics + "/providers/" + world.Null + "/index.json"); status != http.StatusNotFound {
		t.Errorf("providers are served at the address of the metrics: %d", status)
	}

	// The gateway serves stale answers, and is still ready.
	r.Stop()
	o := s.serve(config)
	watch(t, o).ready(http.StatusOK, "stale answers are served")
	waitFor(t, o, "ready, but not as it should be", 1)
	if log := o.Log(); !strings.Contains(log, r.Host) {
		t.Errorf("the log does not say why:\n%s", log)
	}
	if err := g.Stop(); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"registry request", "catalog fetch", "archive fetch", "from-a-proxy-1", r.Host, "service.name"} {
		if !strings.Contains(c.text(), want) {
			t.Errorf("%q is in no trace", want)
		}
	}
	if !strings.Contains(g.Log(), "request_id=from-a-proxy-1") {
		t.Errorf("the log has no id:\n%s", g.Log())
	}
}

// TestNotReady shows that a gateway that cannot serve anything is not ready.
func TestNotReady(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := registry.For(t, registry.Options{})
	r.Stop()
	g := s.serve("--template", template(r), "--metrics-listen", "localhost:0", "--log-format", "json")
	w := watch(t, g)
	w.ready(http.StatusServiceUnavailable, "there are no stale answers")
	if status, body, _ := w.get(w.base + "/healthz"); status != http.StatusOK || body != "ok\n" {
		t.Errorf("it is alive: %d %s", status, body)
	}
	if _, body, _ := w.get(w.base + "/readyz"); strings.Contains(body, r.Host) {
		t.Errorf("everybody is told where the registry is: %s", body)
	}
	for line := range strings.Lines(g.Log()) {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil || record["msg"] == "" {
			t.Errorf("a line that is no JSON: %s", line)
		}
	}
}
