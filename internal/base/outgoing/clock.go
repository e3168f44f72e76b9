package outgoing

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// Clock estimates the time of a server's clock from the Date header of the server's
// responses (RFC 9110, section 6.6.1). Until the first response, the clock shows the
// local time.
type Clock struct {
	local func() time.Time

	mu    sync.Mutex
	ahead time.Duration // how far the server's clock is ahead of the local clock
}

// NewClock returns a clock. local returns the local time; nil means [time.Now].
func NewClock(local func() time.Time) *Clock {
	if local == nil {
		local = time.Now
	}
	return &Clock{local: local}
}

// Now returns the estimated time of the server's clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.local().Add(c.ahead)
}

type clockKey struct{}

// WithClock returns a context for requests. The responses to these requests set the
// clock.
func WithClock(ctx context.Context, c *Clock) context.Context {
	return context.WithValue(ctx, clockKey{}, c)
}

// ReadClock sets the clock in the request's context to the time in the response. It
// does nothing if the context has no clock.
func ReadClock(req *http.Request, resp *http.Response) {
	c, ok := req.Context().Value(clockKey{}).(*Clock)
	if !ok {
		return
	}
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil || resp.Header.Get("Age") != "" { // the Date of a response from a cache is in the past
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead = date.Sub(c.local())
}
