package outgoing

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// Clock shows the time of a server, which it takes from the Date header of the
// server's answers (RFC 9110, section 6.6.1). Until the first answer, it shows
// the local time.
type Clock struct {
	local func() time.Time

	mu    sync.Mutex
	ahead time.Duration // how far the server is ahead of the local clock
}

// NewClock returns a clock. local returns the local time; nil means [time.Now].
func NewClock(local func() time.Time) *Clock {
	if local == nil {
		local = time.Now
	}
	return &Clock{local: local}
}

// Now returns the server's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.local().Add(c.ahead)
}

type clockKey struct{}

// WithClock returns a context for requests whose answers set the clock.
func WithClock(ctx context.Context, c *Clock) context.Context {
	return context.WithValue(ctx, clockKey{}, c)
}

// ReadClock sets the clock in the request's context from an answer.
func ReadClock(req *http.Request, resp *http.Response) {
	c, ok := req.Context().Value(clockKey{}).(*Clock)
	if !ok {
		return
	}
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil || resp.Header.Get("Age") != "" { // a cached answer has the time when its origin sent it
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead = date.Sub(c.local())
}
