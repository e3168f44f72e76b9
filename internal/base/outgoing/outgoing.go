// Package outgoing creates the HTTP transports for the program's requests, and returns hints for the failures of
// proxies. It reads the proxy variables as net/http does. A test in internal/test/depcheck ensures that no other package of
// the product creates transports.
package outgoing

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// FirstByte is the value of the Range header in a GET that checks whether a blob exists.
const FirstByte = "bytes=0-0"

// maxHeader is the maximum size in bytes of the headers of one response. The default of net/http is 10 MiB. The longest
// headers of registries contain the URL of a redirect and have less than 16 KiB.
const maxHeader = 64 << 10

// Transport returns a copy of [http.DefaultTransport] with its own connections. A request fails if the headers of its
// response have more than 64 KiB, in HTTP/1 and in HTTP/2, or if the variable that names its proxy is invalid.
// If a proxy refuses a connection, the error is a [ProxyError] with a hint. Clones of the transport behave in the same way.
// The caller may change the transport before the first request.
func Transport() *http.Transport {
	t, ok := http.DefaultTransport.(*http.Transport)
	if ok {
		t = t.Clone()
	} else {
		t = &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	}
	if t.Proxy != nil {
		t.Proxy = checkVariable(t.Proxy)
	}
	t.OnProxyConnectResponse = connected
	t.MaxResponseHeaderBytes = maxHeader
	return t
}

// Trust makes the transport t trust the certificates in a PEM bundle. t continues to trust its other authorities or, if
// it has none, those of the system. Trust reports whether pem contains a certificate. If pem is nil, it does nothing,
// and returns true. It must be called before the first request.
func Trust(t *http.Transport, pem []byte) bool {
	if pem == nil {
		return true
	}
	if t.TLSClientConfig == nil {
		t.TLSClientConfig = &tls.Config{}
	}
	pool := t.TLSClientConfig.RootCAs
	if pool != nil {
		pool = pool.Clone()
	} else if system, err := x509.SystemCertPool(); err == nil {
		pool = system
	} else {
		pool = x509.NewCertPool() // the system has no trust store
	}
	t.TLSClientConfig.RootCAs = pool
	return pool.AppendCertsFromPEM(pem)
}

// Clock estimates the time of a server's clock from the Date header of the server's responses (RFC 9110, section 6.6.1).
// Until the first response, the clock shows the local time.
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

// WithClock returns a context for requests whose responses set the clock.
func WithClock(ctx context.Context, c *Clock) context.Context {
	return context.WithValue(ctx, clockKey{}, c)
}

// ReadClock sets the clock in the request's context, if there is one, to the time in the response.
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

// RetryAfter returns the time from now until the retry that the Retry-After header allows (RFC 9110, section 10.2.3). It
// returns 0 if the header is missing or malformed, or if its date has passed.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// LaterError means that a server sent status 429 or 503, and may accept the same request later.
type LaterError struct {
	Until time.Time // when the server accepts a retry; zero if the server states no time
	Err   error     // describes the server's response
}

// NewLaterError returns the error for a response that has just arrived, with the given header. err describes the response.
func NewLaterError(h http.Header, err error) *LaterError {
	e := &LaterError{Err: err}
	now := time.Now()
	if after := RetryAfter(h, now); after > 0 {
		e.Until = now.Add(after)
	}
	return e
}

// Bare returns a copy of the error without Err. The copy is small, so it can be cached.
func (e *LaterError) Bare() *LaterError { return &LaterError{Until: e.Until} }

// Error implements error.
func (e *LaterError) Error() string {
	if e.Err == nil {
		return "the other party cannot answer now"
	}
	return e.Err.Error()
}

// Unwrap returns e.Err.
func (e *LaterError) Unwrap() error { return e.Err }

// Is reports whether target is a LaterError with the same Until. It ignores Err, so that [errors.Is] finds the result of
// [LaterError.Bare] equal to the original error.
func (e *LaterError) Is(target error) bool {
	other, ok := target.(*LaterError)
	return ok && e.Until.Equal(other.Until)
}

// IsLater reports whether a response with the given status should become a [LaterError].
func IsLater(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// OnClose makes each Close of the response's body call done, which must tolerate a second call.
func OnClose(resp *http.Response, done func()) { resp.Body = &closer{resp.Body, done} }

type closer struct {
	io.ReadCloser
	done func()
}

func (c *closer) Close() error {
	defer c.done()
	return c.ReadCloser.Close()
}
