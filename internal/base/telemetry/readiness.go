package telemetry

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/fresh"
	"github.com/ocibridge/ocibridge/internal/base/panics"
)

// Check is one condition of readiness.
type Check struct {
	Name string
	// Run reports whether the condition holds. It must return when its context ends. Its calls never overlap.
	Run func(context.Context) Finding
}

// Finding is the result of a [Check].
type Finding struct {
	OK bool `json:"ok"`
	// Message is sent to clients. It contains no host name and no secret.
	Message string `json:"says,omitempty"`
	// Err is the reason for the finding. It appears only in the log.
	Err error `json:"-"`
}

const (
	currentFor   = 5 * time.Second // how long findings are current; requests run no checks during this time
	staleFor     = time.Minute     // the maximum age of the stale findings that requests get while new checks run
	checkTimeout = 3 * time.Second
	// patience is how long a request waits for new findings if there are stale findings. It is short because many probes
	// wait only one second for a response.
	patience = 500 * time.Millisecond
)

// Readiness reports whether a gateway is ready for requests. It is safe for concurrent use.
type Readiness struct {
	metrics  *Metrics
	log      *slog.Logger
	checks   []Check
	reports  *fresh.Cache[string, *report] // caches one report under a constant key
	draining atomic.Bool
}

// report is the JSON document about all findings.
type report struct {
	Ready  bool               `json:"ready"`
	Says   string             `json:"says,omitempty"`
	Checks map[string]Finding `json:"checks,omitempty"`
}

// NewReadiness returns the readiness of a gateway. The first request runs the first checks. The readiness sets the metric
// "ready", and logs each change of a finding.
func NewReadiness(m *Metrics, log *slog.Logger, checks ...Check) *Readiness {
	h := &Readiness{metrics: m, log: log, checks: checks}
	h.reports = fresh.New(fresh.Options[string, *report]{
		Key: func(name string) string { return name }, Fetch: h.check, Timeout: checkTimeout, Patience: patience, Log: log,
	})
	return h
}

// Drain makes the gateway report that it is not ready, until the process exits.
func (h *Readiness) Drain() {
	h.draining.Store(true)
	h.metrics.ready.Set(0)
}

// Refresh runs the checks and sets the metric "ready", unless the findings are current.
func (h *Readiness) Refresh(ctx context.Context) { h.report(ctx) }

// ServeHTTP responds with the findings in JSON, with status 200 if the gateway is ready, and 503 otherwise.
func (h *Readiness) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	found := h.report(r.Context())
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !found.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	json.NewEncoder(w).Encode(found)
}

// report returns current findings. If the checks take too long, it returns stale findings.
func (h *Readiness) report(ctx context.Context) *report {
	shuttingDown := &report{Says: "shutting down"}
	if h.draining.Load() {
		return shuttingDown
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout+patience)
	defer cancel()
	found, err := h.reports.Get(ctx, "")
	switch {
	case h.draining.Load():
		return shuttingDown
	case err != nil:
		return &report{Says: "the checks do not end"}
	}
	return found.Value
}

// check runs all checks concurrently.
func (h *Readiness) check(ctx context.Context, _ string, last *fresh.Answer[*report]) (fresh.Answer[*report], error) {
	findings := make([]Finding, len(h.checks))
	var running panics.Group
	for i, c := range h.checks {
		running.Go(func() error { findings[i] = c.Run(ctx); return nil })
	}
	_ = running.Wait() // its functions return nil
	found := &report{Ready: true, Checks: map[string]Finding{}}
	for i, c := range h.checks {
		found.Checks[c.Name] = findings[i]
		found.Ready = found.Ready && findings[i].OK
		was := Finding{OK: true}
		if last != nil {
			was = last.Value.Checks[c.Name]
		}
		h.logChange(c.Name, was, findings[i])
	}
	h.metrics.ready.Set(oneIf(found.Ready))
	if h.draining.Load() {
		h.metrics.ready.Set(0) // Drain was called meanwhile
	}
	return fresh.Answer[*report]{Value: found, TTL: currentFor, StaleFor: staleFor}, nil
}

// logChange logs the finding f of a check if it differs from was, the check's previous finding.
func (h *Readiness) logChange(name string, was, f Finding) {
	switch {
	case f.OK == was.OK && f.Message == was.Message:
	case !f.OK:
		h.log.Error("not ready", "check", name, "says", f.Message, "err", f.Err)
	case f.Err != nil:
		h.log.Warn("ready, but not as it should be", "check", name, "says", f.Message, "err", f.Err)
	default:
		h.log.Info("ready again", "check", name)
	}
}
