package auth

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"oras.land/oras-go/v2/registry/remote/retry"

	"github.com/ocibridge/ocibridge/internal/neterr"
	"github.com/ocibridge/ocibridge/internal/outgoing"
)

const (
	// maxAttempts is how often a request is sent in total.
	maxAttempts = 4
	// maxDelay limits the doubling of the waits.
	maxDelay = 10 * time.Second
	// maxRetryAfter is the longest Retry-After that is honoured. If a registry asks for a
	// longer wait, its answer is returned.
	maxRetryAfter = time.Minute
)

// retrier is a transport that repeats requests. A request is repeated if a registry
// answers 429, 502, 503 or 504, or 500 to a GET or HEAD. It is also repeated if the
// connection is refused, or breaks before the answer, or breaks in the middle of a small
// answer that is not a blob.
//
// Only requests that are safe to repeat are repeated: GET, HEAD, PUT, DELETE, the POST
// that opens an upload, and the POST that requests a token. A request with a body is
// repeated only if the body can be read again. The maximum wait doubles from delay, and
// each wait is random between zero and that maximum ("full jitter"). No wait is shorter
// than Retry-After. If a wait would exceed the deadline of the request's context, the
// last answer is returned instead.
type retrier struct {
	next   http.RoundTripper
	delay  time.Duration // the maximum of the first wait
	log    *slog.Logger
	jitter func(limit time.Duration) time.Duration // in [0, limit)
}

func newRetrier(next http.RoundTripper, delay time.Duration, log *slog.Logger) *retrier {
	return &retrier{next: next, delay: delay, log: log, jitter: rand.N[time.Duration]}
}

// RoundTrip implements [http.RoundTripper]. The transport of oras-go repeats a copy,
// because it changes the body of the request that it is given.
func (t *retrier) RoundTrip(req *http.Request) (*http.Response, error) {
	if !repeatable(req) {
		return t.next.RoundTrip(req)
	}
	repeat := retry.Transport{Base: t.next, Policy: func() retry.Policy { return retryPolicy{t, req} }}
	return repeat.RoundTrip(req.Clone(req.Context()))
}

// retryPolicy decides whether a request is repeated. Unlike the policies of oras-go, it
// supports Retry-After with every status and as a date, and returns the last answer
// instead of waiting until the deadline.
type retryPolicy struct {
	*retrier
	req *http.Request
}

// Retry implements [retry.Policy]. It discards the answer if the request is repeated.
func (p retryPolicy) Retry(attempt int, resp *http.Response, err error) (time.Duration, error) {
	const no = -1
	ctx := p.req.Context()
	if attempt+1 >= maxAttempts || !isTransient(p.req, resp, err) {
		return no, nil
	}
	wait := p.jitter(min(p.delay<<attempt, maxDelay))
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
	p.logRetry(ctx, p.req, resp, err, wait)
	drain(resp)
	return wait, nil
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

// isTransient reports whether a failure is transient: the request may succeed if it is
// repeated.
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

// maxDrain is how many bytes of a discarded answer are read, so that its connection
// can be reused.
const maxDrain = 64 << 10

func drain(resp *http.Response) {
	if resp != nil {
		_, _ = io.CopyN(io.Discard, resp.Body, maxDrain)
		_ = resp.Body.Close()
	}
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
