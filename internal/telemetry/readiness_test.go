package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/internal/telemetry"
)

// patient is a health with one check, which takes its time.
type patient struct {
	*telemetry.Readiness
	metrics *telemetry.Metrics
	t       *testing.T
	finding atomic.Pointer[telemetry.Finding]
	takes   atomic.Int64 // nanoseconds
	looks   atomic.Int32
	log     bytes.Buffer
}

func newPatient(t *testing.T) *patient {
	p := &patient{t: t, metrics: telemetry.NewMetrics("")}
	p.finding.Store(&telemetry.Finding{OK: true})
	look := func(ctx context.Context) telemetry.Finding {
		p.looks.Add(1)
		select {
		case <-time.After(time.Duration(p.takes.Load())):
		case <-ctx.Done():
			return telemetry.Finding{Message: "it takes too long", Err: ctx.Err()}
		}
		return *p.finding.Load()
	}
	p.Readiness = telemetry.NewReadiness(p.metrics, slog.New(slog.NewTextHandler(&p.log, nil)), telemetry.Check{Name: "registry", Run: look})
	return p
}

// want asks, and returns how long the answer took.
func (p *patient) want(status int, body string) time.Duration {
	p.t.Helper()
	start := time.Now()
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequestWithContext(p.t.Context(), http.MethodGet, "/readyz", nil))
	if got := strings.TrimSpace(w.Body.String()); w.Code != status || got != body || !json.Valid(w.Body.Bytes()) {
		p.t.Errorf("%d %s, want %d %s", w.Code, got, status, body)
	}
	want(p.t, p.metrics, map[int]string{200: "ocibridge_ready 1", 503: "ocibridge_ready 0"}[status])
	if w.Header().Get("Cache-Control") != "no-store" {
		p.t.Errorf("headers %v", w.Header())
	}
	return time.Since(start)
}

const fine = `{"ready":true,"checks":{"registry":{"ok":true}}}`

func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		p.want(200, fine)
		p.finding.Store(&telemetry.Finding{Message: "unreachable", Err: errors.New("dial secret.example: refused")})
		p.want(200, fine) // it is remembered
		if n := p.looks.Load(); n != 1 {
			t.Errorf("%d looks", n)
		}
		time.Sleep(6 * time.Second)
		p.want(503, `{"ready":false,"checks":{"registry":{"ok":false,"says":"unreachable"}}}`)
		if log := p.log.String(); !strings.Contains(log, `level=ERROR msg="not ready" check=registry says=unreachable err="dial secret.example: refused"`) {
			t.Errorf("log:\n%s", log)
		}
		time.Sleep(6 * time.Second)
		p.finding.Store(&telemetry.Finding{OK: true, Message: "stale answers stand in", Err: errors.New("refused")})
		p.want(200, `{"ready":true,"checks":{"registry":{"ok":true,"says":"stale answers stand in"}}}`)
		time.Sleep(6 * time.Second)
		p.finding.Store(&telemetry.Finding{OK: true})
		p.want(200, fine)
		p.Drain()
		p.want(503, `{"ready":false,"says":"shutting down"}`)
		if log := p.log.String(); strings.Count(log, "\n") != 3 || !strings.Contains(log, `level=WARN msg="ready, but not as it should be"`) || !strings.Contains(log, `level=INFO msg="ready again" check=registry`) {
			t.Errorf("log:\n%s", log)
		}
	})
}

// TestOneCheckAtATime has many ask at once, with a check that takes a second.
func TestOneCheckAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		p.takes.Store(int64(time.Second))
		var asking sync.WaitGroup
		for range 20 {
			asking.Go(func() { p.want(200, fine) })
		}
		asking.Wait()
		if n := p.looks.Load(); n != 1 {
			t.Errorf("%d looks", n)
		}
		// With findings from before, nobody waits for long.
		time.Sleep(10 * time.Second)
		p.finding.Store(&telemetry.Finding{})
		if took := p.want(200, fine); took != 500*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		time.Sleep(time.Second)
		p.want(503, `{"ready":false,"checks":{"registry":{"ok":false}}}`)
		if n := p.looks.Load(); n != 2 {
			t.Errorf("%d looks", n)
		}
	})
}

// TestCheckThatHangs has the check end with its context, long after anybody wants to
// know.
func TestCheckThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		p.takes.Store(int64(time.Hour))
		if took := p.want(503, `{"ready":false,"checks":{"registry":{"ok":false,"says":"it takes too long"}}}`); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
