package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// pull measures what is fetched from origins because a client asked for it.
type pull struct {
	fetches  *prometheus.CounterVec
	bytes    prometheus.Counter
	took     prometheus.Observer
	pushes   *prometheus.CounterVec
	inFlight atomic.Int64
}

// Outcomes of a fetch from an origin, for [Metrics.PullEnded].
const (
	PullFetched   = "fetched"   // verified and on its way to clients and registry
	PullRefused   = "refused"   // by the trust policy, or a limit of size
	PullBusy      = "busy"      // a limit says later
	PullAbsent    = "absent"    // the origin has no such thing
	PullFailed    = "failed"    // trouble with the origin, or on this machine
	PullAbandoned = "abandoned" // nobody waits for it any more
)

// Outcomes of storing a version that was fetched, for [Metrics.PullStored].
const (
	StoreStored   = "stored"
	StoreConflict = "conflict" // the registry has another package under that name
	StoreFailed   = "failed"
)

func (p *pull) register(m *Metrics) {
	p.fetches = m.counters("pull_fetches_total", "Packages that were to be fetched from their origin because a client asked for them, by outcome.", "outcome")
	for _, o := range []string{PullFetched, PullRefused, PullBusy, PullAbsent, PullFailed, PullAbandoned} {
		p.fetches.WithLabelValues(o)
	}
	p.pushes = m.counters("pull_pushes_total", "Versions that were to be stored in the registry after such a fetch, by outcome.", "outcome")
	for _, o := range []string{StoreStored, StoreConflict, StoreFailed} {
		p.pushes.WithLabelValues(o)
	}
	p.bytes = prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "pull_bytes_total", Help: "Bytes that were fetched from origins for packages."})
	m.registry.MustRegister(p.bytes)
	p.took = m.histograms("pull_duration_seconds", "How long fetches from origins took, until the last byte.", seconds).WithLabelValues()
	m.measure("pull_in_flight", "Packages that are being fetched from their origin.", func() float64 { return float64(p.inFlight.Load()) })
}

// PullBegan says that a package begins to be fetched. PullEnded follows.
func (m *Metrics) PullBegan() { m.pull.inFlight.Add(1) }

// PullEnded says how that ended, how much was fetched and how long it took.
func (m *Metrics) PullEnded(outcome string, bytes int64, took time.Duration) {
	m.pull.inFlight.Add(-1)
	m.pull.fetches.WithLabelValues(outcome).Inc()
	m.pull.bytes.Add(float64(max(0, bytes)))
	m.pull.took.Observe(took.Seconds())
}

// PullTurnedAway says that a package was not even begun to be fetched.
func (m *Metrics) PullTurnedAway(outcome string) { m.pull.fetches.WithLabelValues(outcome).Inc() }

// PullStored says how it ended to store a version that was fetched.
func (m *Metrics) PullStored(outcome string) { m.pull.pushes.WithLabelValues(outcome).Inc() }
