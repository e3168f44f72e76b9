package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// pull are the metrics of pull-through.
type pull struct {
	checked *prometheus.CounterVec
	fetches *prometheus.CounterVec
	bytes   prometheus.Counter
	took    prometheus.Observer
	reached *prometheus.CounterVec
	pushes  *prometheus.CounterVec
}

// Outcomes of fetching an archive from its origin, for [Metrics.PullFetched], and of
// checking the checksums of a version, for [Metrics.PullChecked].
const (
	PullVerified  = "verified"  // the trust policy accepts the checksums
	PullFetched   = "fetched"   // the archive is complete and verified
	PullPresent   = "present"   // the registry has the archive after all
	PullRefused   = "refused"   // by the trust policy, or a limit of size
	PullBusy      = "busy"      // another limit is reached
	PullAbsent    = "absent"    // the origin lacks the archive
	PullFailed    = "failed"    // the origin or this machine failed
	PullAbandoned = "abandoned" // every client that waited has left
)

// Outcomes of storing a fetched version, for [Metrics.PullStored].
const (
	StoreStored   = "stored"
	StoreConflict = "conflict" // the registry has another archive under that name
	StoreFailed   = "failed"
)

func (p *pull) register(m *Metrics) {
	p.checked = m.counters("pull_versions_total", "Versions whose checksums were requested from an origin, by outcome.",
		[]string{PullVerified, PullRefused, PullFailed}, "outcome")
	p.fetches = m.counters("pull_fetches_total", "Archives that clients caused to be fetched from their origin, by outcome.",
		[]string{PullFetched, PullPresent, PullRefused, PullBusy, PullAbsent, PullFailed, PullAbandoned}, "outcome")
	p.pushes = m.counters("pull_pushes_total", "Versions that were to be stored in the registry after such a fetch, by outcome.",
		[]string{StoreStored, StoreConflict, StoreFailed}, "outcome")
	p.reached = m.counters("pull_limits_reached_total", "Archives that were not fetched because of a limit, by its name.",
		[]string{"max_concurrent", "max_per_day", "max_spool", "max_size", "disk"}, "limit") // arguments of pull_through, and free disk space
	p.bytes = m.counters("pull_bytes_total", "Bytes of archives that were fetched from origins.", nil).WithLabelValues()
	p.took = m.histograms("pull_duration_seconds", "How long it took to fetch archives from their origins, until the last byte.").WithLabelValues()
}

// PullChecked counts a version whose checksums were checked.
func (m *Metrics) PullChecked(outcome string) { m.pull.checked.WithLabelValues(outcome).Inc() }

// PullFetched counts an archive that was fetched, or was not, and its bytes.
func (m *Metrics) PullFetched(outcome string, bytes int64, took time.Duration) {
	m.pull.fetches.WithLabelValues(outcome).Inc()
	m.pull.bytes.Add(float64(max(0, bytes)))
	if outcome == PullFetched {
		m.pull.took.Observe(took.Seconds())
	}
}

// PullLimited counts an archive that was not fetched because of a limit.
func (m *Metrics) PullLimited(limit string) { m.pull.reached.WithLabelValues(limit).Inc() }

// PullStored counts a version that was stored after a fetch, or was not.
func (m *Metrics) PullStored(outcome string) { m.pull.pushes.WithLabelValues(outcome).Inc() }
