package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// pull measures what is fetched from origins because a client asked for it.
type pull struct {
	checked *prometheus.CounterVec
	fetches *prometheus.CounterVec
	bytes   prometheus.Counter
	took    prometheus.Observer
	reached *prometheus.CounterVec
	pushes  *prometheus.CounterVec
	usage   atomic.Pointer[func() PullUsage]
}

// PullUsage is what is taken of the limits of what is fetched, at this moment.
// Limits of 0 are none.
type PullUsage struct {
	Fetching, MaxFetching int   // packages
	Today, MaxPerDay      int64 // bytes, since midnight UTC
	Spool, MaxSpool       int64 // bytes, of packages under way on disk
}

// Outcomes of a fetch from an origin, for [Metrics.PullEnded], and of the checksums of
// a version, for [Metrics.PullChecked].
const (
	PullVerified  = "verified"  // checksums: by the trust policy
	PullFetched   = "fetched"   // verified, and all of it is here
	PullPresent   = "present"   // the registry turned out to have it
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
	p.checked = m.counters("pull_versions_total", "Versions whose checksums an origin was asked for, by outcome.", "outcome")
	for _, o := range []string{PullVerified, PullRefused, PullFailed} {
		p.checked.WithLabelValues(o)
	}
	p.fetches = m.counters("pull_fetches_total", "Packages that were to be fetched from their origin because a client asked for them, by outcome.", "outcome")
	for _, o := range []string{PullFetched, PullPresent, PullRefused, PullBusy, PullAbsent, PullFailed, PullAbandoned} {
		p.fetches.WithLabelValues(o)
	}
	p.pushes = m.counters("pull_pushes_total", "Versions that were to be stored in the registry after such a fetch, by outcome.", "outcome")
	for _, o := range []string{StoreStored, StoreConflict, StoreFailed} {
		p.pushes.WithLabelValues(o)
	}
	p.reached = m.counters("pull_limits_reached_total", "Packages that were not fetched because of a limit, by its name.", "limit")
	for _, l := range pullLimits {
		p.reached.WithLabelValues(l)
	}
	p.bytes = prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "pull_bytes_total", Help: "Bytes that were fetched from origins for packages."})
	m.registry.MustRegister(p.bytes)
	p.took = m.histograms("pull_duration_seconds", "How long it took to fetch packages from their origins, until the last byte.", seconds).WithLabelValues()
	p.registerUsage(m)
}

// pullLimits are the arguments of the pull_through block that bound what is fetched,
// and what is free on the disk.
var pullLimits = []string{"max_concurrent", "max_per_day", "max_spool", "max_size", "disk"}

func (p *pull) registerUsage(m *Metrics) {
	measure := func(name, help string, of func(PullUsage) float64) {
		m.measure(name, help, func() float64 {
			if usage := p.usage.Load(); usage != nil {
				return of((*usage)())
			}
			return 0
		})
	}
	measure("pull_in_flight", "Packages that are being fetched from their origin.", func(u PullUsage) float64 { return float64(u.Fetching) })
	measure("pull_in_flight_limit", "How many may be at once.", func(u PullUsage) float64 { return float64(u.MaxFetching) })
	measure("pull_today_bytes", "Bytes of packages that were fetched since midnight UTC, with what is under way.", func(u PullUsage) float64 { return float64(u.Today) })
	measure("pull_today_limit_bytes", "How many may be in a day; 0 for any number.", func(u PullUsage) float64 { return float64(u.MaxPerDay) })
	measure("pull_spool_bytes", "Bytes on disk of packages under way.", func(u PullUsage) float64 { return float64(u.Spool) })
	measure("pull_spool_limit_bytes", "How many there may be.", func(u PullUsage) float64 { return float64(u.MaxSpool) })
}

// WatchPull says what tells how much of the limits is taken.
func (m *Metrics) WatchPull(usage func() PullUsage) { m.pull.usage.Store(&usage) }

// PullChecked says what came of the checksums of a version.
func (m *Metrics) PullChecked(outcome string) { m.pull.checked.WithLabelValues(outcome).Inc() }

// PullEnded says how it ended to fetch a package, how much came and how long it
// took.
func (m *Metrics) PullEnded(outcome string, bytes int64, took time.Duration) {
	m.pull.fetches.WithLabelValues(outcome).Inc()
	m.pull.bytes.Add(float64(max(0, bytes)))
	if outcome == PullFetched {
		m.pull.took.Observe(took.Seconds())
	}
}

// PullLimited says that it did so because of a limit.
func (m *Metrics) PullLimited(limit string) { m.pull.reached.WithLabelValues(limit).Inc() }

// PullStored says how it ended to store a version that was fetched.
func (m *Metrics) PullStored(outcome string) { m.pull.pushes.WithLabelValues(outcome).Inc() }
