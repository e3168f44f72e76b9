package auth

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// gate keeps the requests to one registry within its bounds.
type gate struct {
	next   http.RoundTripper
	slots  chan struct{} // nil for any number at once
	bucket *bucket       // nil for any rate
}

// newGate returns next with the bounds before it, or next alone.
func newGate(next http.RoundTripper, host string, s Registry) http.RoundTripper {
	if s.MaxConcurrent <= 0 && s.RequestsPerSecond <= 0 {
		return next
	}
	g := &gate{next: next}
	if s.MaxConcurrent > 0 {
		g.slots = make(chan struct{}, s.MaxConcurrent)
	}
	if s.RequestsPerSecond > 0 {
		g.bucket = newBucket(host, s.RequestsPerSecond)
	}
	return g
}

// RoundTrip implements [http.RoundTripper]. A slot is held until the answer's
// body is closed.
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
	resp.Body = &releasingBody{ReadCloser: resp.Body, release: release}
	return resp, nil
}

// enter waits for a slot and then for the time to send.
func (g *gate) enter(ctx context.Context) (release func(), err error) {
	release = func() {}
	if g.slots != nil {
		select {
		case g.slots <- struct{}{}:
			release = sync.OnceFunc(func() { <-g.slots })
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if g.bucket != nil {
		if err := g.bucket.wait(ctx); err != nil {
			release()
			return nil, err
		}
	}
	return release, nil
}

type releasingBody struct {
	io.ReadCloser
	release func()
}

func (b *releasingBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// maxWait keeps the wait for a very low rate within what a Duration holds.
const maxWait = 24 * 365 * time.Hour

// bucket is a token bucket that holds one second's worth, at least one.
type bucket struct {
	host  string
	rate  float64 // a second
	now   func() time.Time
	sleep func(context.Context, time.Duration) error

	mu    sync.Mutex
	left  float64 // below zero by those who wait
	since time.Time
}

func newBucket(host string, rate float64) *bucket {
	return &bucket{host: host, rate: rate, now: time.Now, sleep: sleep, left: max(1, rate)}
}

// wait returns when a request may be sent. It fails at once where that is beyond
// the deadline of ctx.
func (b *bucket) wait(ctx context.Context) error {
	d := b.take()
	if d <= 0 {
		return ctx.Err()
	}
	var err error
	if deadline, ok := ctx.Deadline(); ok && !b.now().Add(d).Before(deadline) {
		err = fmt.Errorf("requests to %s would go beyond %v a second (requests_per_second): %w", b.host, b.rate, context.DeadlineExceeded)
	} else {
		err = b.sleep(ctx, d)
	}
	if err != nil {
		b.giveBack()
	}
	return err
}

// take takes a token and returns how long it is until it is there.
func (b *bucket) take() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if !b.since.IsZero() {
		b.left = min(max(1, b.rate), b.left+now.Sub(b.since).Seconds()*b.rate)
	}
	b.since = now
	b.left--
	return time.Duration(min(-b.left/b.rate, maxWait.Seconds()) * float64(time.Second))
}

func (b *bucket) giveBack() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left++
}
