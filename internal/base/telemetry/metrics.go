package telemetry

import (
	"context"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ocibridge/ocibridge/internal/base/fresh"
	"github.com/ocibridge/ocibridge/internal/base/panics"
)

// namespace is the prefix of the names of ocibridge's own metrics.
const namespace = "ocibridge"

// seconds are the upper bounds of the buckets of histograms. Documents from memory take less than a millisecond. Clients
// wait up to 10 seconds for other documents. Archives take minutes.
var seconds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// Metrics are the metrics of a process. They survive reloads of the configuration.
type Metrics struct {
	registry *prometheus.Registry

	Catalog  CatalogCounters
	Archives ArchiveCounters
	Verify   VerifyCounters
	Approve  ApproveCounters
	Access   AccessCounters

	sampled    atomic.Pointer[func() map[string]float64]
	requests   *prometheus.CounterVec
	took       *prometheus.HistogramVec
	inFlight   prometheus.Gauge
	registries registries
	pull       pull
	ready      prometheus.Gauge
	reloads    *prometheus.CounterVec
	reloaded   prometheus.Gauge
	reloadTime prometheus.Gauge
	panics     prometheus.Counter
}

// sampled maps the names of sampled gauges to their help texts. Each scrape reads the values of these gauges anew.
var sampled = map[string]string{
	"catalog_memory_bytes":                     "The approximate size of the catalog in memory.",
	"catalog_entries":                          "Entries of the catalog in memory.",
	"archive_cache_bytes":                      "Bytes of archives in the cache; 0 without one.",
	"archive_cache_limit_bytes":                "The limit of bytes in the cache; 0 without one.",
	"archive_cache_fetches_in_flight":          "Archives that the cache is fetching.",
	"certificate_expiration_timestamp_seconds": "When the certificate of the gateway expires, the first of several; 0 without one.",
	"pull_in_flight":                           "Archives that are being fetched from their origin.",
	"pull_in_flight_limit":                     "The limit of archives that are fetched at once.",
	"pull_today_bytes":                         "Bytes of archives that were fetched since midnight UTC, with those being fetched.",
	"pull_today_limit_bytes":                   "The limit of bytes in a day; 0 without a limit.",
	"pull_spool_bytes":                         "Bytes on disk of archives that are being fetched.",
	"pull_spool_limit_bytes":                   "The limit of bytes on disk of archives that are being fetched.",
}

// NewMetrics returns the metrics of a version of ocibridge. The histogram of durations contains each of the given routes
// from the start.
func NewMetrics(version string, routes ...string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.gauge("build_info", "Always 1, with the version of ocibridge and of Go that it was built with.",
		prometheus.Labels{"version": version, "goversion": runtime.Version()}).Set(1)
	m.ready = m.gauge("ready", "Whether the gateway was ready (1) or not (0) when it was last checked.", nil)
	m.registerRequests(routes)
	m.registries.register(m)
	m.pull.register(m)
	m.registerCatalog()
	m.registerArchives()
	m.registerRefusals()
	m.registerReloads()
	m.panics = prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "panics_total", Help: "Bugs that ended a request or an operation, as the log has them."})
	m.registry.MustRegister(m.panics)
	m.registerSampled()
	return m
}

// Handler returns a handler that serves the metrics in the format that the client requests.
func (m *Metrics) Handler(log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError,
		MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
	})
}

// Gatherer returns the metrics for tests and exporters.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// CountPanics returns a log that counts the lines about panics that it writes to the given log.
func (m *Metrics) CountPanics(log *slog.Logger) *slog.Logger {
	return slog.New(counting{log.Handler(), m.panics})
}

// counting is a [slog.Handler] that counts the lines about panics.
type counting struct {
	slog.Handler
	n prometheus.Counter
}

func (c counting) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == panics.Message {
		c.n.Inc()
	}
	return c.Handler.Handle(ctx, r)
}

func (c counting) WithAttrs(attrs []slog.Attr) slog.Handler {
	return counting{c.Handler.WithAttrs(attrs), c.n}
}

func (c counting) WithGroup(name string) slog.Handler {
	return counting{c.Handler.WithGroup(name), c.n}
}

// Sample sets the function that returns the values of the sampled gauges by their names. A gauge without a value is 0.
func (m *Metrics) Sample(read func() map[string]float64) { m.sampled.Store(&read) }

// RequestBegan counts the beginning of a client's request.
func (m *Metrics) RequestBegan() { m.inFlight.Inc() }

// RequestEnded counts the end of a client's request. A status of 0 means that the response broke off.
func (m *Metrics) RequestEnded(route, method string, status int, took time.Duration) {
	m.inFlight.Dec()
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost:
	default:
		method = "other" // clients can send any method
	}
	code := "aborted"
	if status != 0 {
		code = strconv.Itoa(status)
	}
	m.requests.WithLabelValues(route, method, code).Inc()
	m.took.WithLabelValues(route).Observe(took.Seconds())
}

// Reloaded counts a reload of the configuration, with its error or nil. The start of the process counts as a reload.
func (m *Metrics) Reloaded(err error) {
	m.reloaded.Set(oneIf(err == nil))
	if err != nil {
		m.reloads.WithLabelValues("failure").Inc()
		return
	}
	m.reloads.WithLabelValues("success").Inc()
	m.reloadTime.SetToCurrentTime()
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (m *Metrics) registerRequests(routes []string) {
	m.requests = m.counters("http_requests_total", "Requests of clients that were answered, by route, method and status; the status is aborted where the answer was broken off.", nil, "route", "method", "status")
	m.took = m.histograms("http_request_duration_seconds", "How long requests took until the end of the answer, by route.", "route")
	for _, route := range routes {
		m.took.WithLabelValues(route)
	}
	m.inFlight = m.gauge("http_requests_in_flight", "Requests of clients that are being answered.", nil)
}

func (m *Metrics) registerReloads() {
	m.reloads = m.counters("config_reloads_total", "Times that the configuration was read, by result; the start is one.", []string{"success", "failure"}, "result")
	m.reloaded = m.gauge("config_last_reload_successful", "Whether the configuration could be used when it was last read (1) or not (0).", nil)
	m.reloadTime = m.gauge("config_last_reload_success_timestamp_seconds", "When the configuration in force was read, in Unix time.", nil)
}

func (m *Metrics) registerCatalog() {
	c := &m.Catalog
	m.countBy("result", "catalog_answers_total", "Questions about versions, by the source of the answer: a current cache entry (hit), the registry (miss), an expired cache entry (stale), or none (failure).",
		map[string]*atomic.Uint64{"hit": &c.Hits, "miss": &c.Misses, "stale": &c.Stale, "failure": &c.Failures})
	m.count("catalog_refreshes_total", "Cache entries that were requested from the registry before they expired.", nil, &c.Refreshes)
}

func (m *Metrics) registerArchives() {
	a := &m.Archives
	answers, bytes := map[string]*atomic.Uint64{}, map[string]*atomic.Uint64{}
	for from, n := range map[string]*Served{"cache": &a.Cached, "fetch": &a.Fetched, "registry": &a.Streamed, "redirect": &a.Redirected} {
		answers[from], bytes[from] = &n.Answers, &n.Bytes
	}
	m.countBy("from", "archives_total", "Archives that clients were sent, by source: the cache, a fetch into the cache, the registry past the cache, or a redirect.", answers)
	m.countBy("from", "archive_bytes_total", "Bytes of archives that clients were sent, or redirected to, by source.", bytes)
	m.count("archives_broken_off_total", "Archives whose answer was broken off because of the registry or the cache.", nil, &a.BrokenOff)
	m.countBy("result", "archive_cache_requests_total", "Lookups in the cache of archives, by result: the cache has the archive (hit), is fetching it (join), has to fetch it (miss), or cannot store it (bypass).",
		map[string]*atomic.Uint64{"hit": &a.Hits, "join": &a.Joins, "miss": &a.Misses, "bypass": &a.Bypasses})
	m.count("archive_cache_evictions_total", "Archives that were removed from the cache to make room.", nil, &a.Evicted)
	m.count("archive_cache_evicted_bytes_total", "Bytes of archives that were removed from the cache to make room.", nil, &a.EvictedBytes)
	m.count("archive_cache_damaged_total", "Archives that were removed from the cache because they differed from their digest.", nil, &a.Damaged)
}

func (m *Metrics) registerRefusals() {
	v, a := &m.Verify, &m.Access
	m.countBy("verdict", "verify_versions_total", "Versions whose evidence was checked, by verdict: verified, refused, or undecided because the registry failed.",
		map[string]*atomic.Uint64{"verified": &v.Verified, "refused": &v.Refused, "undecided": &v.Undecided})
	p := &m.Approve
	m.countBy("verdict", "approval_versions_total", "Verdicts on versions that need approvals: approved, not_approved, reported because an approval is missing that is not enforced, or undecided because the registry failed.",
		map[string]*atomic.Uint64{"approved": &p.Approved, "not_approved": &p.NotApproved, "reported": &p.Reported, "undecided": &p.Undecided})
	m.count("verify_packages_withheld_total", "Packages of verified versions that the signed document does not list.", nil, &v.Withheld)
	m.countBy("reason", "access_refusals_total", "Requests that were refused, by reason: no known token (unknown), no permission (forbidden), an invalid or expired link (capability), or an issuer that did not answer (unavailable).",
		map[string]*atomic.Uint64{"unknown": &a.Unknown, "forbidden": &a.Forbidden, "capability": &a.Capability, "unavailable": &a.Unavailable})
}

// countBy registers one metric with a label. The keys of the map are the values of the label.
func (m *Metrics) countBy(label, name, help string, counters map[string]*atomic.Uint64) {
	for value, n := range counters {
		m.count(name, help, prometheus.Labels{label: value}, n)
	}
}

// count registers a counter that other packages increment.
func (m *Metrics) count(name, help string, labels prometheus.Labels, n *atomic.Uint64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help, ConstLabels: labels},
		func() float64 { return float64(n.Load()) }))
}

func (m *Metrics) gauge(name, help string, labels prometheus.Labels) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help, ConstLabels: labels})
	m.registry.MustRegister(g)
	return g
}

// counters registers a metric with the given labels. If there are values, there is only one label, and its counters for
// these values exist from the start.
func (m *Metrics) counters(name, help string, values []string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	for _, value := range values {
		v.WithLabelValues(value)
	}
	return v
}

func (m *Metrics) histograms(name, help string, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: seconds}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) registerSampled() {
	for name, help := range sampled {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, func() float64 {
			if read := m.sampled.Load(); read != nil {
				return (*read)()[name]
			}
			return 0
		}))
	}
}

// The types below are counters that the gateway's packages increment. They survive a reload of the configuration, because
// the new catalog and cache use the same counters.

// CatalogCounters count the catalog's answers by the source of the answer.
type CatalogCounters = fresh.Counters

// ArchiveCounters count requests for archives.
type ArchiveCounters struct {
	// These fields count responses by the source of their bytes: the cache, a running fetch into the cache, the registry
	// without the cache, or another server, to which the client was sent.
	Cached, Fetched, Streamed, Redirected Served
	// BrokenOff counts responses that broke off because of the registry or the cache, and not because of the client.
	BrokenOff atomic.Uint64

	// These fields count lookups of archives. Hits are archives that the cache contains, Joins are archives that it is
	// already fetching, and Misses are archives that it starts to fetch. Bypasses counts archives that the cache cannot
	// store.
	Hits, Joins, Misses, Bypasses atomic.Uint64
	// Evicted and EvictedBytes count the archives that the cache removed to make room, and their bytes.
	Evicted, EvictedBytes atomic.Uint64
	// Damaged counts archives in the cache that did not match their digest.
	Damaged atomic.Uint64
}

// Served counts responses and their bytes.
type Served struct{ Answers, Bytes atomic.Uint64 }

// Add counts one response with the given number of bytes.
func (s *Served) Add(bytes int64) {
	s.Answers.Add(1)
	s.Bytes.Add(uint64(max(0, bytes)))
}

// VerifyCounters count indexes by the verdict on their evidence.
type VerifyCounters struct {
	Verified, Refused atomic.Uint64
	Undecided         atomic.Uint64 // indexes that could not be checked because the registry failed
	Withheld          atomic.Uint64 // packages of verified versions that are not served
}

// ApproveCounters count verdicts on versions that need approvals. A manifest counts again when its verdict changes.
type ApproveCounters struct {
	Approved, NotApproved atomic.Uint64
	Reported              atomic.Uint64 // missing approvals that are not enforced
	Undecided             atomic.Uint64 // look-ups that failed
}

// AccessCounters count refused requests by their reason.
type AccessCounters struct {
	Unknown     atomic.Uint64 // no token, or an unknown token
	Forbidden   atomic.Uint64 // a known token without permission for the request
	Capability  atomic.Uint64 // a link that is expired, altered or for another file
	Unavailable atomic.Uint64 // the issuer of the token did not answer
}

// pull are the metrics of pull-through.
type pull struct {
	results map[string]*prometheus.CounterVec // by kind, as in pullResults
	reached *prometheus.CounterVec
	bytes   prometheus.Counter
	took    prometheus.Observer
}

// pullResults contains the metric and the outcomes of each kind of result of pull-through.
var pullResults = map[string]struct {
	name, help string
	outcomes   []string
}{
	"verified": {"pull_versions_total", "Versions whose checksums were requested from an origin, by outcome.", []string{"verified", "refused", "failed"}},
	"fetched": {"pull_fetches_total", "Archives that clients caused to be fetched from their origin, by outcome.",
		[]string{"fetched", "present", "refused", "busy", "absent", "failed", "abandoned"}},
	"stored": {"pull_pushes_total", "Versions that were to be stored in the registry after such a fetch, by outcome.", []string{"stored", "conflict", "failed"}},
}

func (p *pull) register(m *Metrics) {
	p.results = map[string]*prometheus.CounterVec{}
	for kind, r := range pullResults {
		p.results[kind] = m.counters(r.name, r.help, r.outcomes, "outcome")
	}
	p.reached = m.counters("pull_limits_reached_total", "Archives that were not fetched because of a limit, by its name.",
		[]string{"max_concurrent", "max_per_day", "max_spool", "max_size", "disk"}, "limit") // arguments of pull_through, and free disk space
	p.bytes = m.counters("pull_bytes_total", "Bytes of archives that were fetched from origins.", nil).WithLabelValues()
	p.took = m.histograms("pull_duration_seconds", "How long it took to fetch archives from their origins, until the last byte.").WithLabelValues()
}

// Pulled counts a result of pull-through, of the kind "verified", "fetched" or "stored". An outcome that the kind does not
// have counts as "failed".
func (m *Metrics) Pulled(kind, outcome string) {
	if !slices.Contains(pullResults[kind].outcomes, outcome) {
		outcome = "failed"
	}
	m.pull.results[kind].WithLabelValues(outcome).Inc()
}

// PullDownloaded counts the bytes that an origin sent for an archive, and the duration of a complete download.
func (m *Metrics) PullDownloaded(bytes int64, took time.Duration, complete bool) {
	m.pull.bytes.Add(float64(max(0, bytes)))
	if complete {
		m.pull.took.Observe(took.Seconds())
	}
}

// PullLimited counts an archive that was not fetched because of a limit.
func (m *Metrics) PullLimited(limit string) { m.pull.reached.WithLabelValues(limit).Inc() }
