// Package metrics is what Prometheus is told of a gateway. docs/operations.md
// describes each metric; a test holds the two together.
//
// Others count in plain counters of their own, or tell hooks; this package alone
// knows what measures them. No label has the name of a provider, of which there may
// be any number; names of registries are bounded.
package metrics

import (
	"log/slog"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/gateway/verify"
)

// namespace begins the names of all metrics of ours.
const namespace = "ocibridge"

// Metrics is all that is measured in a process, whatever is replaced in it.
type Metrics struct {
	registry *prometheus.Registry

	// What others count.
	Catalog  *catalog.Counters
	Archives *archives.Counters
	Verify   *verify.Counters
	Access   *access.Counters

	catalog atomic.Pointer[catalog.Catalog]
	cache   atomic.Pointer[archives.Cache]

	requests   requests
	registries registries
	pull       pull
	ready      prometheus.Gauge
	reloads    *prometheus.CounterVec
	reloaded   prometheus.Gauge
	reloadTime prometheus.Gauge
}

// New returns the metrics of a program of a version.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		Catalog:  &catalog.Counters{}, Archives: &archives.Counters{}, Verify: &verify.Counters{}, Access: &access.Counters{},
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	build := m.gauge("build_info", "Always 1, with the version of ocibridge and of Go that it was built with.",
		prometheus.Labels{"version": version, "goversion": runtime.Version()})
	build.Set(1)
	m.ready = m.gauge("ready", "Whether the gateway was ready (1) or not (0) when it was last looked at.", nil)
	m.requests.register(m)
	m.registries.register(m)
	m.pull.register(m)
	m.registerCatalog()
	m.registerArchives()
	m.registerRefusals()
	m.registerReloads()
	return m
}

// Handler answers with the metrics in the format that is asked for.
func (m *Metrics) Handler(log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError,
		MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
	})
}

// Gatherer returns what gathers the metrics.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// Watch says what is in force: sizes are those of its parts. A nil cache is none.
func (m *Metrics) Watch(c *catalog.Catalog, cache *archives.Cache) {
	m.catalog.Store(c)
	m.cache.Store(cache)
}

// Ready says whether the gateway is ready.
func (m *Metrics) Ready(ready bool) { m.ready.Set(oneIf(ready)) }

// Reloaded says how a reload of the configuration ended. The start counts as one
// that succeeded.
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

func (m *Metrics) registerReloads() {
	m.reloads = m.counters("config_reloads_total", "Times that the configuration was read, by result; the start is one.", "result")
	for _, result := range []string{"success", "failure"} {
		m.reloads.WithLabelValues(result)
	}
	m.reloaded = m.gauge("config_last_reload_successful", "Whether the configuration could be used when it was last read (1) or not (0).", nil)
	m.reloadTime = m.gauge("config_last_reload_success_timestamp_seconds", "When the configuration in force was read, in Unix time.", nil)
}

func (m *Metrics) registerCatalog() {
	const help = "Questions about versions, by what answered: what was current (hit), the registry (miss), the last good answer (stale), or nothing (failure)."
	for result, n := range map[string]*atomic.Uint64{"hit": &m.Catalog.Hits, "miss": &m.Catalog.Misses, "stale": &m.Catalog.Stale, "failure": &m.Catalog.Failures} {
		m.count("catalog_answers_total", help, prometheus.Labels{"result": result}, n)
	}
	m.count("catalog_refreshes_total", "Questions that the registry was asked before anybody waited for the answer.", nil, &m.Catalog.Refreshes)
	size := func(of func(catalog.Size) float64) func() float64 {
		return func() float64 {
			if c := m.catalog.Load(); c != nil {
				return of(c.Size())
			}
			return 0
		}
	}
	m.measure("catalog_memory_bytes", "About what the catalog takes in memory.", size(func(s catalog.Size) float64 { return float64(s.Bytes) }))
	m.measure("catalog_entries", "Answers that the catalog has in memory.", size(func(s catalog.Size) float64 { return float64(s.Entries) }))
}

func (m *Metrics) registerArchives() {
	a := m.Archives
	for from, n := range map[string]*archives.Served{"cache": &a.Cached, "fetch": &a.Fetched, "registry": &a.Streamed, "redirect": &a.Redirected} {
		label := prometheus.Labels{"from": from}
		m.count("archives_total", "Packages that clients were sent, by where from: the cache, a fetch into the cache, the registry past the cache, or elsewhere by a redirect.", label, &n.Answers)
		m.count("archive_bytes_total", "Bytes of packages that clients were sent, by where from; with a redirect, that they were sent elsewhere for.", label, &n.Bytes)
	}
	m.count("archives_broken_off_total", "Packages whose answer was broken off because of the registry or the cache.", nil, &a.BrokenOff)
	for result, n := range map[string]*atomic.Uint64{"hit": &a.Hits, "join": &a.Joins, "miss": &a.Misses, "bypass": &a.Bypasses} {
		m.count("archive_cache_requests_total", "Packages that the cache was asked for, by result: it had it (hit), was fetching it already (join), fetched it (miss), or could not keep it (bypass).", prometheus.Labels{"result": result}, n)
	}
	m.count("archive_cache_evictions_total", "Packages that were removed from the cache to make room.", nil, &a.Evicted)
	m.count("archive_cache_evicted_bytes_total", "Bytes of those.", nil, &a.EvictedBytes)
	m.count("archive_cache_damaged_total", "Packages in the cache that were not what they should be, and were removed.", nil, &a.Damaged)
	size := func(of func(archives.Size) float64) func() float64 {
		return func() float64 {
			if c := m.cache.Load(); c != nil {
				return of(c.Size())
			}
			return 0
		}
	}
	m.measure("archive_cache_bytes", "Bytes of packages in the cache; 0 without one.", size(func(s archives.Size) float64 { return float64(s.Bytes) }))
	m.measure("archive_cache_limit_bytes", "Bytes that the cache may have; 0 without one.", size(func(s archives.Size) float64 { return float64(s.Limit) }))
	m.measure("archive_cache_fetches_in_flight", "Packages that the cache is fetching.", size(func(s archives.Size) float64 { return float64(s.Fetches) }))
}

func (m *Metrics) registerRefusals() {
	const verdicts = "Versions whose evidence was checked, by verdict: verified, refused, or undecided because of trouble with the registry."
	for verdict, n := range map[string]*atomic.Uint64{"verified": &m.Verify.Verified, "refused": &m.Verify.Refused, "undecided": &m.Verify.Undecided} {
		m.count("verify_versions_total", verdicts, prometheus.Labels{"verdict": verdict}, n)
	}
	m.count("verify_packages_withheld_total", "Packages of verified versions that the signed document does not list.", nil, &m.Verify.Withheld)
	const refusals = "Requests that were refused, by reason: no token that is known (unknown), not allowed (forbidden), a link that does not open what is asked for (capability), or an issuer that could not be asked (unavailable)."
	for reason, n := range map[string]*atomic.Uint64{"unknown": &m.Access.Unknown, "forbidden": &m.Access.Forbidden, "capability": &m.Access.Capability, "unavailable": &m.Access.Unavailable} {
		m.count("access_refusals_total", refusals, prometheus.Labels{"reason": reason}, n)
	}
}

// count registers a counter of somebody else's.
func (m *Metrics) count(name, help string, labels prometheus.Labels, n *atomic.Uint64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help, ConstLabels: labels},
		func() float64 { return float64(n.Load()) }))
}

// measure registers a gauge that is read when it is asked for.
func (m *Metrics) measure(name, help string, f func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, f))
}

func (m *Metrics) gauge(name, help string, labels prometheus.Labels) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help, ConstLabels: labels})
	m.registry.MustRegister(g)
	return g
}

func (m *Metrics) counters(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(v)
	return v
}
