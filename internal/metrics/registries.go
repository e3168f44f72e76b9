package metrics

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ocibridge/ocibridge/auth"
)

// registries measures requests to registries.
type registries struct {
	total *prometheus.CounterVec
	took  *prometheus.HistogramVec

	mu    sync.Mutex
	hosts map[string]bool // that have a label
}

const (
	// maxHosts bounds the hosts that have a label of their own: registries send their
	// clients to token servers and storage, as many as they like.
	maxHosts = 32
	// otherHosts is the label of all others.
	otherHosts = "other"
)

func (r *registries) register(m *Metrics) {
	r.hosts = map[string]bool{}
	r.total = m.counters("registry_requests_total", "Requests that were sent to a registry, its token server or its storage, each attempt by itself, by host and outcome.", "registry", "outcome")
	r.took = m.histograms("registry_request_duration_seconds", "How long it took until the answer to such a request began, or failed.", seconds, "registry")
}

// Registries names hosts that have a label of their own whatever comes. Those of
// before keep theirs.
func (m *Metrics) Registries(hosts ...string) {
	m.registries.mu.Lock()
	defer m.registries.mu.Unlock()
	for _, h := range hosts {
		m.registries.hosts[h] = true
	}
}

// Sent is for [auth.Options].
func (m *Metrics) Sent(s auth.Sent) {
	host := m.registries.label(s.Host)
	m.registries.total.WithLabelValues(host, outcome(s)).Inc()
	m.registries.took.WithLabelValues(host).Observe(s.Took.Seconds())
}

// label returns the label of a host. Of those that nobody named, the first have one.
func (r *registries) label(host string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.hosts[host] {
		if len(r.hosts) >= maxHosts {
			return otherHosts
		}
		r.hosts[host] = true
	}
	return host
}

// outcome says in a word what came of a request.
func outcome(s auth.Sent) string {
	var network net.Error
	switch {
	case s.Err == nil:
	case errors.Is(s.Err, context.DeadlineExceeded), errors.As(s.Err, &network) && network.Timeout():
		return "timeout"
	case errors.Is(s.Err, context.Canceled):
		return "canceled"
	default:
		return "network"
	}
	switch {
	case s.Status == http.StatusUnauthorized && !s.Authorized:
		return "challenge" // the way to a token
	case s.Status == http.StatusUnauthorized, s.Status == http.StatusForbidden:
		return "denied"
	case s.Status == http.StatusNotFound:
		return "not_found"
	case s.Status == http.StatusTooManyRequests:
		return "too_many"
	case s.Status >= 500:
		return "server_error"
	case s.Status >= 400:
		return "client_error"
	}
	return "ok"
}
