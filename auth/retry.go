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

// Retry configures retries. A request is repeated if a registry answers 429, 502, 503
// or 504, or 500 to a GET or HEAD. It is also repeated if the connection is refused,
// or breaks before the answer, or breaks in the middle of a small answer that is not a
// blob.
//
// Only requests that are safe to repeat are repeated: GET, HEAD, PUT, DELETE, the POST
// that opens an upload, and the POST that requests a token. A request with a body is
// repeated only if the body can be read again. The maximum wait doubles from
// BaseDelay, and each wait is random between zero and that maximum ("full jitter"). No
// wait is shorter than Retry-After. If a wait would exceed the deadline of the
// request's context, the last answer is returned instead.
type Retry struct {
	Attempts      int           // the total number of requests; 0 means 4, 1 means no retry
	BaseDelay     time.Duration // the maximum of the first wait; 0 means 500 ms
	MaxDelay      time.Duration // the limit of the doubling; 0 means 10 s
	MaxRetryAfter time.Duration // if Retry-After is longer, the answer is returned; 0 means 60 s
}

func (r Retry) withDefaults() Retry {
	return Retry{
		Attempts:      cmp.Or(r.Attempts, 4),
		BaseDelay:     cmp.Or(r.BaseDelay, 500*time.Millisecond),
		MaxDelay:      cmp.Or(r.MaxDelay, 10*time.Second),
		MaxRetryAfter: cmp.Or(r.MaxRetryAfter, time.Minute),
	}
}

// retrier is the transport that implements [Retry]. The one in oras-go
// (registry/remote/retry) repeats requests of any method, supports Retry-After only
// for 429 and only in seconds, and waits until the deadline instead of returning the
// answer.
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
		if attempt >= t.retry.Attempts || !repeatable(req) || !isTransient(req, resp, err) {
			return resp, err
		}
		wait, ok := t.wait(ctx, attempt, resp)
		if !ok {
			return resp, err
		}
		if current, ok = cloneRequest(req); !ok {
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

// repeatable reports whether sending the request twice has the same effect as sending
// it once. The registry lets an unused upload session expire, and the credential in a
// token request can be used again.
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

// isTokenRequest recognises the POST that exchanges a refresh token or password for an
// access token.
func isTokenRequest(req *http.Request) bool {
	return req.Method == http.MethodPost && req.Header.Get("Content-Type") == "application/x-www-form-urlencoded"
}

// isTransient reports whether a failure is transient, so that the request may succeed the
// next time.
func isTransient(req *http.Request, resp *http.Response, err error) bool {
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

// wait returns how long to wait after the given attempt. It returns false if the wait
// would exceed MaxRetryAfter or the deadline of ctx.
func (t *retrier) wait(ctx context.Context, attempt int, resp *http.Response) (time.Duration, bool) {
	limit := t.retry.MaxDelay
	if doubled := t.retry.BaseDelay << (attempt - 1); doubled > 0 && doubled < limit {
		limit = doubled
	}
	d := t.jitter(limit)
	if resp != nil {
		after := outgoing.RetryAfter(resp.Header, t.now())
		if after > t.retry.MaxRetryAfter {
			return 0, false
		}
		d = max(d, after)
	}
	deadline, ok := ctx.Deadline()
	return d, !ok || t.now().Add(d).Before(deadline)
}

// cloneRequest returns a copy of the request with its body from the start. The caller's
// request stays unchanged.
func cloneRequest(req *http.Request) (*http.Request, bool) {
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

// maxDrain is how many bytes of a discarded answer are read, so that its connection
// can be reused.
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
