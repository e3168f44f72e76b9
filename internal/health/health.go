// Package health says whether a gateway is ready to be sent requests.
package health

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// Check is one thing that must hold.
type Check struct {
	Name string
	// Look says whether it holds. It is called by one at a time, and must end when its
	// context does.
	Look func(context.Context) Finding
}

// Finding is what a check found.
type Finding struct {
	OK bool
	// Says is for everybody: it names no host, and holds no secret.
	Says string
	// Err is the reason, for the log.
	Err error
}

const (
	// remembered is how long findings are believed: whoever asks cannot make the
	// registry be asked more often.
	remembered = 5 * time.Second
	// lookTime bounds how long checks may take.
	lookTime = 3 * time.Second
	// patience is how long is waited for them where there are findings from before:
	// those who probe often wait for a second at most.
	patience = 500 * time.Millisecond
	// outdated is how old these may be.
	outdated = time.Minute
)

// Options configure a [Health].
type Options struct {
	// Checks are asked each time, and may be others by and by.
	Checks func() []Check
	// Changed is told what comes of a look, and of [Health.Drain]; nil: nobody is.
	Changed func(ready bool)
	Log     *slog.Logger // told when that changes, and why; nil: nobody is
}

// Health knows whether a gateway is ready. It is safe for concurrent use.
type Health struct {
	opts Options

	mu       sync.Mutex
	last     *report       // nil: nothing was looked at yet
	pending  chan struct{} // closed when the look under way ends; nil: none is
	draining bool
}

// report is what was found.
type report struct {
	Ready  bool               `json:"ready"`
	Says   string             `json:"says,omitempty"`
	Checks map[string]checked `json:"checks,omitempty"`

	at time.Time
}

type checked struct {
	OK   bool   `json:"ok"`
	Says string `json:"says,omitempty"`
}

// New returns the health of a gateway of which nothing is known yet.
func New(o Options) *Health {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Changed == nil {
		o.Changed = func(bool) {}
	}
	return &Health{opts: o}
}

// Drain has the gateway be not ready from now on: it is about to end.
func (h *Health) Drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
	h.opts.Changed(false)
}

// Look has [Options.Changed] be told what is the case now, or was a moment ago.
func (h *Health) Look(ctx context.Context) { h.report(ctx) }

// ServeHTTP answers 200 where the gateway is ready, else 503, and in JSON what was
// found.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	found := h.report(r.Context())
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !found.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	json.NewEncoder(w).Encode(found)
}

// report returns what was found a moment ago, or is found now.
func (h *Health) report(ctx context.Context) *report {
	h.mu.Lock()
	if known := h.known(remembered); known != nil {
		h.mu.Unlock()
		return known
	}
	if h.pending == nil {
		h.pending = make(chan struct{})
		go h.look(h.pending)
	}
	pending, before := h.pending, h.known(outdated)
	h.mu.Unlock()
	wait := lookTime + patience
	if before != nil {
		wait = patience
	}
	enough := time.NewTimer(wait)
	defer enough.Stop()
	select {
	case <-pending:
	case <-ctx.Done():
	case <-enough.C:
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if known := h.known(outdated); known != nil {
		return known
	}
	return &report{Says: "the checks do not end"}
}

// known returns what is known and not older than that; nil: nothing is.
func (h *Health) known(age time.Duration) *report {
	switch {
	case h.draining:
		return &report{Says: "shutting down"}
	case h.last != nil && time.Since(h.last.at) < age:
		return h.last
	}
	return nil
}

// look does the checks, all at once.
func (h *Health) look(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	checks := h.opts.Checks()
	findings := make([]Finding, len(checks))
	var looking sync.WaitGroup
	for i, c := range checks {
		looking.Go(func() { findings[i] = c.Look(ctx) })
	}
	looking.Wait()
	found := &report{Ready: true, Checks: map[string]checked{}, at: time.Now()}
	for i, c := range checks {
		found.Checks[c.Name] = checked{findings[i].OK, findings[i].Says}
		found.Ready = found.Ready && findings[i].OK
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tell(checks, findings, found)
	h.last, h.pending = found, nil
	close(done)
}

// tell logs what has changed.
func (h *Health) tell(checks []Check, findings []Finding, found *report) {
	if !h.draining {
		h.opts.Changed(found.Ready)
	}
	for i, c := range checks {
		was := checked{OK: true}
		if h.last != nil {
			was = h.last.Checks[c.Name]
		}
		f := findings[i]
		switch {
		case f.OK == was.OK && f.Says == was.Says:
		case !f.OK:
			h.opts.Log.Error("not ready", "check", c.Name, "says", f.Says, "err", f.Err)
		case f.Err != nil:
			h.opts.Log.Warn("ready, but not as it should be", "check", c.Name, "says", f.Says, "err", f.Err)
		default:
			h.opts.Log.Info("ready again", "check", c.Name)
		}
	}
}
