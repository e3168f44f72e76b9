package wire

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/ocibridge/ocibridge/internal/base/outgoing"
)

// gate limits the concurrency and the rate of the requests to one registry.
type gate struct {
	next  http.RoundTripper
	host  string
	slots *semaphore.Weighted
	rate  *rate.Limiter
}

// newGate returns a transport that applies the limits in the settings.
func newGate(next http.RoundTripper, host string, s Settings) http.RoundTripper {
	perSecond := cmp.Or(s.RequestsPerSecond, float64(rate.Inf))
	burst := int(min(max(1, perSecond), math.MaxInt32)) // the requests of one second
	return &gate{
		next: next, host: host,
		slots: semaphore.NewWeighted(int64(cmp.Or(s.MaxConcurrent, math.MaxInt))),
		rate:  rate.NewLimiter(rate.Limit(perSecond), burst),
	}
}

// RoundTrip implements [http.RoundTripper]. It holds a slot until the body of the
// response is closed.
func (g *gate) RoundTrip(req *http.Request) (*http.Response, error) {
	release, err := g.enter(req.Context())
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	resp, err := g.next.RoundTrip(req)
	if err != nil || resp.Body == nil || resp.Body == http.NoBody {
		release()
		return resp, err
	}
	outgoing.OnClose(resp, release)
	return resp, nil
}

// enter waits for a free slot, and then for the rate limit. The caller must call release to free
// the slot.
func (g *gate) enter(ctx context.Context) (release func(), err error) {
	if err := g.slots.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	release = sync.OnceFunc(func() { g.slots.Release(1) })
	if err := g.waitForRate(ctx); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// waitForRate waits until the rate limit allows another request. It returns an error immediately
// if the wait would exceed the deadline of ctx.
func (g *gate) waitForRate(ctx context.Context) error {
	err := g.rate.Wait(ctx)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("requests to %s would go beyond %v a second (requests_per_second): %w", g.host, float64(g.rate.Limit()), context.DeadlineExceeded)
	}
	return err
}
