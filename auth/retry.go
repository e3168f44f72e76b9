package auth

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/internal/neterr"
	"github.com/ocibridge/ocibridge/internal/outgoing"
)

// Retry says how often and how soon a request is sent again when a registry
// answers 429, 502, 503 or 504 (or 500 to a GET or HEAD), or when the connection
// is refused, reset or closed before an answer, or before the end of a small one
// that is no blob.
//
// Requests are repeated only where that does no harm: GET, HEAD, PUT, DELETE,
// the POST that opens an upload, and the POST that asks for a token; with a body
// only where it can be had again. Waits double from BaseDelay, each of random
// length up to that ("full jitter"), and are at least what Retry-After says.
// Where a wait would pass the deadline of the request's context, the last answer
// is returned instead.
type Retry struct {
	Attempts      int           // requests in all; 0 means 4, 1 none again
	BaseDelay     time.Duration // longest wait after the first request; 0 means 500 ms
	MaxDelay      time.Duration // bound of the doubling; 0 means 10 s
	MaxRetryAfter time.Duration // a longer Retry-After is not waited for: the answer is returned; 0 means 60 s
}

func (r Retry) withDefaults() Retry {
	return Retry{
		Attempts:      cmp.Or(r.Attempts, 4),
		BaseDelay:     cmp.Or(r.BaseDelay, 500*time.Millisecond),
		MaxDelay:      cmp.Or(r.MaxDelay, 10*time.Second),
		MaxRetryAfter: cmp.Or(r.MaxRetryAfter, time.Minute),
	}
}

// retrier is the transport that keeps [Retry]'s promises. oras-go's own
// (registry/remote/retry) repeats any method, heeds Retry-After only for 429 and
// only in seconds, and waits into the deadline instead of returning the answer.
type retrier struct {
	next  http.RoundTripper
	retry Retry
	log   *slog.Logger

	now    func() time.Time
	sleep  func(context.Context, time.Duration) error
	jitter func(limit time.Duration) time.Duration // in [0, limit)
}

func newRetrier(next http.RoundTripper, retry Retry, log *slog.Logger) *retrier {
	return &retrier{
		next: next, retry: retry.withDefaults(), log: log,
		now: time.Now, sleep: sleep, jitter: rand.N[time.Duration],
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// RoundTrip implements [http.RoundTripper].
func (t *retrier) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	current := req
	for attempt := 1; ; attempt++ {
		resp, err := t.next.RoundTrip(current)
		if attempt >= t.retry.Attempts || !repeatable(req) || !passing(req, resp, err) {
			return resp, err
		}
		wait, ok := t.wait(ctx, attempt, resp)
		if !ok {
			return resp, err
		}
		if current, ok = again(req); !ok {
			return resp, err
		}
		t.logRetry(ctx, req, resp, err, wait)
		drain(resp)
		if err := t.sleep(ctx, wait); err != nil {
			if current.Body != nil {
				_ = current.Body.Close()
			}
			return nil, err
		}
	}
}

// repeatable reports whether sending the request twice is no more than sending
// it once. A second upload session is left to expire by the registry, and a
// token is asked for with what stays valid.
func repeatable(req *http.Request) bool {
	if req.Body != nil && req.Body != http.NoBody && req.GetBody == nil {
		return false
	}
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete:
		return true
	case http.MethodPost:
		return strings.HasSuffix(req.URL.Path, "/blobs/uploads/") || isTokenRequest(req)
	}
	return false
}

// isTokenRequest knows the POST by which a refresh token or password becomes an
// access token.
func isTokenRequest(req *http.Request) bool {
	return req.Method == http.MethodPost && req.Header.Get("Content-Type") == "application/x-www-form-urlencoded"
}

// passing reports whether what came of the request may be otherwise the next
// time.
func passing(req *http.Request, resp *http.Response, err error) bool {
	if err != nil {
		return req.Context().Err() == nil && neterr.Lost(err)
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case http.StatusInternalServerError:
		return req.Method == http.MethodGet || req.Method == http.MethodHead
	}
	return false
}

// wait returns how long to wait after the given attempt, and false where that is
// longer than anybody wants to.
func (t *retrier) wait(ctx context.Context, attempt int, resp *http.Response) (time.Duration, bool) {
	limit := t.retry.MaxDelay
	if doubled := t.retry.BaseDelay << (attempt - 1); doubled > 0 && doubled < limit {
		limit = doubled
	}
	d := t.jitter(limit)
	if after := t.retryAfter(resp); after > t.retry.MaxRetryAfter {
		return 0, false
	} else if after > d {
		d = after
	}
	deadline, ok := ctx.Deadline()
	return d, !ok || t.now().Add(d).Before(deadline)
}

// retryAfter returns how long an answer asks to wait; 0 if it does not say.
func (t *retrier) retryAfter(resp *http.Response) time.Duration {
	if resp == nil {
		return 0
	}
	return outgoing.RetryAfter(resp.Header, t.now())
}

// again returns the request to send another time, with its body from the start.
// The request that the caller holds stays as it is.
func again(req *http.Request) (*http.Request, bool) {
	next := req.Clone(req.Context())
	if req.Body == nil || req.Body == http.NoBody {
		return next, true
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, false
	}
	next.Body = body
	return next, true
}

// maxDrain is how much of a refused answer is read so that its connection can be
// used again.
const maxDrain = 64 << 10

func drain(resp *http.Response) {
	if resp == nil {
		return
	}
	_, _ = io.CopyN(io.Discard, resp.Body, maxDrain)
	_ = resp.Body.Close()
}

func (t *retrier) logRetry(ctx context.Context, req *http.Request, resp *http.Response, err error, wait time.Duration) {
	attrs := []slog.Attr{
		slog.String("method", req.Method), slog.String("host", req.URL.Host), slog.String("path", tracedPath(req)),
		slog.Duration("wait", wait),
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	} else {
		attrs = append(attrs, slog.Int("status", resp.StatusCode))
	}
	t.log.LogAttrs(ctx, slog.LevelInfo, "request to registry is repeated", attrs...)
}
