package telemetry

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// pull are the metrics of pull-through.
type pull struct {
	results map[string]*prometheus.CounterVec // by kind, as in pullResults
	reached *prometheus.CounterVec
	bytes   prometheus.Counter
	took    prometheus.Observer
}

// pullResults contains the metric and the outcomes of each kind of result of pull-through.
// docs/reference/operations.md explains the outcomes.
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

// Pulled counts a result of pull-through. The kind of the result is "verified", "fetched"
// or "stored". An outcome that the kind does not have counts as "failed".
func (m *Metrics) Pulled(kind, outcome string) {
	if !slices.Contains(pullResults[kind].outcomes, outcome) {
		outcome = "failed"
	}
	m.pull.results[kind].WithLabelValues(outcome).Inc()
}

// PullDownloaded counts the bytes that an origin sent for an archive. If the download is
// complete, PullDownloaded also counts the duration of the download.
func (m *Metrics) PullDownloaded(bytes int64, took time.Duration, complete bool) {
	m.pull.bytes.Add(float64(max(0, bytes)))
	if complete {
		m.pull.took.Observe(took.Seconds())
	}
}

// PullLimited counts an archive that was not fetched because of a limit.
func (m *Metrics) PullLimited(limit string) { m.pull.reached.WithLabelValues(limit).Inc() }
