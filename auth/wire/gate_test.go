package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/ports"
	"github.com/ocibridge/ocibridge/ociaddr"
)

func TestMaxConcurrent(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }))
	defer srv.Close()
	g := newGate(http.DefaultTransport, "h", Settings{MaxConcurrent: 2})
	get := func(ctx context.Context) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, srv.URL, strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		return g.RoundTrip(req)
	}
	var open []*http.Response
	for range 2 {
		resp, err := get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body) // the body is read to its end, but stays open
		open = append(open, resp)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := get(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("a third: %v", err)
		}
	})
	cancel()
	wg.Wait()
	for range 2 { // closing a body twice frees one slot
		_ = open[0].Body.Close()
	}
	resp, err := get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := freeSlots(g.(*gate)); n != 0 {
		t.Errorf("%d slots are free", n)
	}
	_, _ = resp.Body.Close(), open[1].Body.Close()
	srv.Close()
	var held ports.Held
	held.Hold(srv.Listener.Addr().String())
	defer held.Release()
	if _, err := get(t.Context()); err == nil {
		t.Error("no error, although the server is gone")
	}
	if n := freeSlots(g.(*gate)); n != 2 {
		t.Errorf("%d slots are free at the end", n)
	}
}

// freeSlots takes up to 100 free slots of the gate, frees them again, and returns their
// number.
func freeSlots(g *gate) (n int) {
	for n < 100 && g.slots.TryAcquire(1) {
		n++
	}
	g.slots.Release(int64(n))
	return n
}

// TestRequestsPerSecond shows at which time the gate lets each request pass if the caller
// sends requests without pauses.
func TestRequestsPerSecond(t *testing.T) {
	for _, tt := range []struct {
		rate float64
		want []time.Duration // the time from the start until each request is sent
	}{
		{4, []time.Duration{0, 0, 0, 0, 250 * time.Millisecond, 500 * time.Millisecond}},
		{1, []time.Duration{0, time.Second, 2 * time.Second}},
		{0.5, []time.Duration{0, 2 * time.Second, 4 * time.Second}},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(nil, "h", Settings{RequestsPerSecond: tt.rate}).(*gate)
			for range 2 { // after a long pause, a burst has at most the requests of one second
				start := time.Now()
				for i, want := range tt.want {
					if err := g.waitForRate(t.Context()); err != nil {
						t.Fatal(err)
					}
					if got := time.Since(start); got.Round(time.Millisecond) != want {
						t.Errorf("%v a second, request %d: sent after %s, want %s", tt.rate, i, got, want)
					}
				}
				<-time.After(24 * time.Hour)
			}
		})
	}
}

// TestRateWaitWatchesItsContext shows that waitForRate returns when its context is
// cancelled. It also shows that waitForRate fails immediately if the wait would exceed the
// deadline of the context.
func TestRateWaitWatchesItsContext(t *testing.T) {
	for _, rate := range []float64{1, 1e-300} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(nil, "registry.test", Settings{RequestsPerSecond: rate}).(*gate)
			if err := g.waitForRate(t.Context()); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(500*time.Millisecond, cancel)
			if err := g.waitForRate(ctx); !errors.Is(err, context.Canceled) || time.Since(start) != 500*time.Millisecond {
				t.Errorf("%v after %s", err, time.Since(start))
			}
			ctx, cancel = context.WithTimeout(t.Context(), 400*time.Millisecond)
			defer cancel()
			err := g.waitForRate(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 500*time.Millisecond || !strings.Contains(err.Error(), fmt.Sprintf("registry.test would go beyond %v a second", rate)) {
				t.Errorf("%v after %s", err, time.Since(start))
			}
			if rate < 1 {
				return
			}
			// The cancelled waits do not delay the next request.
			if err := g.waitForRate(t.Context()); err != nil || time.Since(start).Round(time.Millisecond) != time.Second {
				t.Errorf("%v, sent after %s", err, time.Since(start))
			}
		})
	}
}

// TestBoundsInAClient shows that a client applies the limits in the settings of a
// registry.
func TestBoundsInAClient(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"tags": []}`) }))
	defer srv.Close()
	host := srv.Listener.Addr().String()
	c := newClient(Options{Registries: map[ociaddr.Registry]Settings{ociaddr.Registry(host): {MaxConcurrent: 1, RequestsPerSecond: 1}}}, account{})
	r := mustRepository(t, host+"/a/x")
	repo := mustOpen(t, c, r)
	g, ok := c.transport(host, "").(*gate)
	if !ok || g.rate.Limit() != 1 || freeSlots(g) != 1 {
		t.Fatalf("%+v", g)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	var err error
	for range 2 {
		err = repo.Tags(ctx, "", func([]string) error { return nil })
	}
	if err == nil || !strings.Contains(err.Error(), "would go beyond 1 a second") {
		t.Errorf("%v", err)
	}
}
