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

	"github.com/ocibridge/ocibridge/internal/base/telemetry"
)

// slowReadiness is a readiness with one check. A test sets the check's duration and finding.
type slowReadiness struct {
	*telemetry.Readiness
	metrics *telemetry.Metrics
	t       *testing.T
	finding atomic.Pointer[telemetry.Finding]
	takes   atomic.Int64 // the duration of the check in nanoseconds
	checks  atomic.Int32
	log     bytes.Buffer
}

func newSlowReadiness(t *testing.T) *slowReadiness {
	p := &slowReadiness{t: t, metrics: telemetry.NewMetrics("")}
	p.finding.Store(&telemetry.Finding{OK: true})
	check := func(ctx context.Context) telemetry.Finding {
		p.checks.Add(1)
		if takes := time.Duration(p.takes.Load()); takes > 0 {
			select {
			case <-time.After(takes):
			case <-ctx.Done():
				return telemetry.Finding{Message: "it takes too long", Err: ctx.Err()}
			}
		}
		return *p.finding.Load()
	}
	p.Readiness = telemetry.NewReadiness(p.metrics, slog.New(slog.NewTextHandler(&p.log, nil)), telemetry.Check{Name: "registry", Run: check})
	return p
}

// want requests the readiness. It fails the test unless the response has the given status
// and body. It returns the duration of the request.
func (p *slowReadiness) want(status int, body string) time.Duration {
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
		p := newSlowReadiness(t)
		p.want(200, fine)
		p.finding.Store(&telemetry.Finding{Message: "unreachable", Err: errors.New("dial secret.example: refused")})
		p.want(200, fine) // the finding is still current
		if n := p.checks.Load(); n != 1 {
			t.Errorf("%d checks", n)
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

// TestOneCheckAtATime shows that many concurrent requests run a check only once.
func TestOneCheckAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSlowReadiness(t)
		p.takes.Store(int64(time.Second))
		var asking sync.WaitGroup
		for range 20 {
			asking.Go(func() { p.want(200, fine) })
		}
		asking.Wait()
		if n := p.checks.Load(); n != 1 {
			t.Errorf("%d checks", n)
		}
		// If there are stale findings, a request waits only half a second for new findings.
		time.Sleep(10 * time.Second)
		p.finding.Store(&telemetry.Finding{})
		if took := p.want(200, fine); took != 500*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		time.Sleep(time.Second)
		p.want(503, `{"ready":false,"checks":{"registry":{"ok":false}}}`)
		if n := p.checks.Load(); n != 2 {
			t.Errorf("%d checks", n)
		}
	})
}

// TestCheckThatHangs shows that the context of a check ends after 3 seconds.
func TestCheckThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSlowReadiness(t)
		p.takes.Store(int64(time.Hour))
		if took := p.want(503, `{"ready":false,"checks":{"registry":{"ok":false,"says":"it takes too long"}}}`); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestDrainDuringACheck shows that if a check succeeds after Drain, the gateway still
// reports that it is not ready.
func TestDrainDuringACheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSlowReadiness(t)
		p.takes.Store(int64(time.Second))
		go p.Refresh(t.Context())
		synctest.Wait()
		p.Drain()
		time.Sleep(2 * time.Second)
		p.want(503, `{"ready":false,"says":"shutting down"}`)
	})
}
