package telemetry

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// RegistryRequest is one attempt of a request to a registry, its token server or its storage.
type RegistryRequest struct {
	Host       string        // with its port, if the URL has a port
	Authorized bool          // whether the request had a credential
	Status     int           // 0 without a response
	Err        error         // why there was no response
	Took       time.Duration // the time until the response began, or until the error
}

// registries are the metrics of requests to registries.
type registries struct {
	total *prometheus.CounterVec
	took  *prometheus.HistogramVec

	mu    sync.Mutex
	hosts map[string]bool // the hosts that have their own label
}

const (
	// maxHosts is the maximum number of hosts with their own label. A registry can redirect its clients to any number of
	// token servers and storage hosts.
	maxHosts   = 32
	otherHosts = "other" // the label of all other hosts
)

func (r *registries) register(m *Metrics) {
	r.hosts = map[string]bool{}
	r.total = m.counters("registry_requests_total", "Requests that were sent to a registry, its token server or its storage, each attempt by itself, by host and outcome.", nil, "registry", "outcome")
	r.took = m.histograms("registry_request_duration_seconds", "How long it took until the answer to such a request began, or failed.", "registry")
}

// AddRegistries gives each of the given hosts its own label, even beyond the limit.
func (m *Metrics) AddRegistries(hosts ...string) {
	m.registries.mu.Lock()
	defer m.registries.mu.Unlock()
	for _, h := range hosts {
		m.registries.hosts[h] = true
	}
}

// RegistryRequest counts a request to a registry.
func (m *Metrics) RegistryRequest(r RegistryRequest) {
	host := m.registries.label(r.Host)
	m.registries.total.WithLabelValues(host, r.outcome()).Inc()
	m.registries.took.WithLabelValues(host).Observe(r.Took.Seconds())
}

// label returns the label of a host: the host itself, or otherHosts beyond maxHosts.
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

// outcome returns the label of the request's outcome.
func (r RegistryRequest) outcome() string {
	network, ok := errors.AsType[net.Error](r.Err)
	switch {
	case r.Err == nil:
	case errors.Is(r.Err, context.DeadlineExceeded), ok && network.Timeout():
		return "timeout"
	case errors.Is(r.Err, context.Canceled):
		return "canceled"
	default:
		return "network"
	}
	switch {
	case r.Status == http.StatusUnauthorized && !r.Authorized:
		return "challenge" // the response names the token server
	case r.Status == http.StatusUnauthorized, r.Status == http.StatusForbidden:
		return "denied"
	case r.Status == http.StatusNotFound:
		return "not_found"
	case r.Status == http.StatusTooManyRequests:
		return "too_many"
	case r.Status >= 500:
		return "server_error"
	case r.Status >= 400:
		return "client_error"
	}
	return "ok"
}
