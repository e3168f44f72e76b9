package wire

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"oras.land/oras-go/v2/registry/remote/retry"

	"github.com/ocibridge/ocibridge/internal/base/neterr"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
)

const (
	maxAttempts = 4                // how often a request is sent, including the first time
	maxDelay    = 10 * time.Second // the upper limit of the maximum wait, which doubles with each retry
	// maxRetryAfter is the longest Retry-After for which the client waits. If a registry
	// asks for a longer wait, the registry's response is returned to the caller.
	maxRetryAfter = time.Minute
)

// retrier is a transport that retries the requests that [repeatable] allows. It retries after
// status 429, 502, 503 or 504, and a GET or HEAD also after status 500. It retries if the
// connection is refused, or breaks before the response. If the check readWhole is below it in
// the chain, it also retries if the connection breaks in the middle of a small response that is
// not a blob.
//
// The maximum wait starts at delay and doubles with each retry. Each wait is random between half
// the maximum and the maximum ("equal jitter"): with waits down to zero, all retries could end
// before a registry that restarts is back. No wait is shorter than Retry-After. If a wait would
// exceed the deadline of the request's context, the last response is returned instead.
type retrier struct {
	next   http.RoundTripper
	delay  time.Duration // the maximum wait before the first retry
	log    *slog.Logger
	jitter func(limit time.Duration) time.Duration // returns a random wait in [0, limit)
}

func newRetrier(next http.RoundTripper, delay time.Duration, log *slog.Logger) *retrier {
	return &retrier{next: next, delay: delay, log: log, jitter: rand.N[time.Duration]}
}

// RoundTrip implements [http.RoundTripper]. It gives oras-go's retry transport a copy of
// the request, because that transport changes the body of its request.
func (t *retrier) RoundTrip(req *http.Request) (*http.Response, error) {
	if !repeatable(req) {
		return t.next.RoundTrip(req)
	}
	repeat := retry.Transport{Base: t.next, Policy: func() retry.Policy { return retryPolicy{t, req} }}
	return repeat.RoundTrip(req.Clone(req.Context()))
}

// retryPolicy decides whether a request is retried. Unlike the policies of oras-go, it
// reads Retry-After for every status, and also accepts a date there.
type retryPolicy struct {
	*retrier
	req *http.Request
}

// Retry implements [retry.Policy]. It discards the response if the request is retried.
func (p retryPolicy) Retry(attempt int, resp *http.Response, err error) (time.Duration, error) {
	const no = -1
	ctx := p.req.Context()
	if attempt+1 >= maxAttempts || !isTransient(p.req, resp, err) {
		return no, nil
	}
	longest := min(p.delay<<attempt, maxDelay)
	wait := longest/2 + p.jitter(longest-longest/2)
	if resp != nil {
		after := outgoing.RetryAfter(resp.Header, time.Now())
		if after > maxRetryAfter {
			return no, nil
		}
		wait = max(wait, after)
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Add(wait).Before(deadline) {
		return no, nil
	}
	p.logRetry(ctx, resp, err, wait)
	drain(resp)
	return wait, nil
}

// repeatable reports whether sending the request twice has the same effect as sending it once.
// This is true of a POST that opens an upload, because unused upload sessions expire, and of a
// token request.
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

// isTransient reports whether a retry may succeed after the response or err.
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

func (p retryPolicy) logRetry(ctx context.Context, resp *http.Response, err error, wait time.Duration) {
	var cause slog.Attr
	if err != nil {
		cause = slog.String("error", err.Error())
	} else {
		cause = slog.Int("status", resp.StatusCode)
	}
	p.log.LogAttrs(ctx, slog.LevelInfo, "request to registry is repeated", slog.String("method", p.req.Method),
		slog.String("host", p.req.URL.Host), slog.String("path", tracedPath(p.req)), slog.Duration("wait", wait), cause)
}
