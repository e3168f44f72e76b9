package metrics

import (
	"maps"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ocibridge/ocibridge/gateway"
)

// requests measures those of clients, at next to no cost: documents are answered out
// of memory some ten thousand times a second.
type requests struct {
	total    *prometheus.CounterVec
	took     []prometheus.Observer // by route
	inFlight atomic.Int64

	// known are the counters that there are. The map is copied to be changed.
	known atomic.Pointer[map[answered]prometheus.Counter]
	mu    sync.Mutex // of who changes it
}

// answered is what requests are told apart by. There are few: routes and methods are
// bounded, and statuses are the gateway's own.
type answered struct {
	route  gateway.Route
	method uint8 // index of methods
	status uint16
}

// methods are those that have names; the first stands for all others.
var methods = [...]string{"other", http.MethodGet, http.MethodHead, http.MethodPost}

func methodOf(name string) uint8 {
	switch name {
	case http.MethodGet:
		return 1
	case http.MethodHead:
		return 2
	case http.MethodPost:
		return 3
	}
	return 0
}

// seconds are the bounds of histograms: documents take less than a millisecond out of
// memory, clients wait 10 seconds for others, and packages take minutes.
var seconds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

func (r *requests) register(m *Metrics) {
	r.total = m.counters("http_requests_total", "Requests of clients that were answered, by route, method and status; the status is aborted where the answer was broken off.", "route", "method", "status")
	took := m.histograms("http_request_duration_seconds", "How long requests took until the end of the answer, by route.", seconds, "route")
	for _, route := range gateway.Routes() {
		r.took = append(r.took, took.WithLabelValues(route.String()))
	}
	m.measure("http_requests_in_flight", "Requests of clients that are being answered.", func() float64 { return float64(r.inFlight.Load()) })
	r.known.Store(&map[answered]prometheus.Counter{})
}

// Hooks are those of a gateway whose requests are measured.
func (m *Metrics) Hooks() gateway.Hooks {
	return gateway.Hooks{Began: func() { m.requests.inFlight.Add(1) }, Ended: m.requests.ended}
}

func (r *requests) ended(a gateway.Answered) {
	r.inFlight.Add(-1)
	key := answered{a.Route, methodOf(a.Method), uint16(a.Status)}
	counter, ok := (*r.known.Load())[key]
	if !ok {
		counter = r.add(key)
	}
	counter.Inc()
	r.took[a.Route].Observe(a.Took.Seconds())
}

// add makes the counter of what was not seen before.
func (r *requests) add(key answered) prometheus.Counter {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := strconv.Itoa(int(key.status))
	if key.status == 0 {
		status = "aborted"
	}
	counter := r.total.WithLabelValues(key.route.String(), methods[key.method], status)
	known := maps.Clone(*r.known.Load())
	known[key] = counter
	r.known.Store(&known)
	return counter
}
