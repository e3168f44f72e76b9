package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// chain returns the chain of transports that every request for the registry passes through.
func (c *Connections) chain(registry ociaddr.Registry) http.RoundTripper {
	var t http.RoundTripper = stallGuard{router{c, string(registry)}, stallTimeout}
	t = newRetrier(checked{t, []check{readWhole}}, c.opts.RetryDelay, c.opts.Log)
	t = checked{t, []check{readClock, boundChallenge, refuseHTML, refuseForeign, c.sent.scrubRefusal, readTokenLife, narrowScopes, realmRule{c.lookup}.choose}}
	t = plainHTTPGuard{t, c.AllowsPlainHTTP}
	return redirectRedactor{t}
}

// check inspects a response, and may change it. The request fails with the error of a check.
type check func(*http.Request, *http.Response) error

// checked is a transport that applies its checks to each response in order.
type checked struct {
	next   http.RoundTripper
	checks []check
}

func (t checked) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	for _, check := range t.checks {
		if err := check(req, resp); err != nil {
			_ = resp.Body.Close()
			return nil, err
		}
	}
	return resp, nil
}

// readClock sets the clock in the request's context to the time in the response.
func readClock(req *http.Request, resp *http.Response) error {
	outgoing.ReadClock(req, resp)
	return nil
}

// redirectRedactor is a transport that keeps secret queries out of errors. net/http and oras-go
// quote the URL of a failed request in their errors. The query of a redirected request may
// contain a signature that lets anyone read a blob. The query of an upload contains the state
// of the upload.
type redirectRedactor struct{ next http.RoundTripper }

// RoundTrip sends a copy of the request, and removes the query from the original. A transport
// should not modify the caller's request. Here, the change does no harm. http.Client, which
// sends redirected requests, and the code for uploads use the original only for errors. The
// next part of an upload is sent to the URL in the response.
func (t redirectRedactor) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.RawQuery == "" || req.Response == nil && !isUpload(req) {
		return t.next.RoundTrip(req)
	}
	resp, err := t.next.RoundTrip(req.Clone(req.Context()))
	req.URL.RawQuery = ""
	if resp != nil {
		resp.Request = req
	}
	return resp, err
}

// PlainHTTPError means that a request was not sent, because its credential would have crossed a
// network unencrypted.
type PlainHTTPError struct{ Host string }

func (e *PlainHTTPError) Error() string {
	return fmt.Sprintf("refused to send a credential to %s over plain HTTP", e.Host)
}

// plainHTTPGuard is a transport that refuses to send credentials over plain HTTP, unless
// the host is on loopback or allow returns true. It also checks requests to token
// servers, which may be on a different host than the registry.
type plainHTTPGuard struct {
	next  http.RoundTripper
	allow func(host ociaddr.Registry) bool
}

func (t plainHTTPGuard) RoundTrip(req *http.Request) (*http.Response, error) {
	secret := req.Header.Get("Authorization") != "" || isTokenRequest(req)
	host := ociaddr.Registry(req.URL.Host)
	if secret && req.URL.Scheme == "http" && !host.IsLoopback() && !t.allow(host) {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, &PlainHTTPError{req.URL.Host}
	}
	return t.next.RoundTrip(req)
}

// maxWhole is the maximum number of bytes of a response that are read before the caller
// gets the response. Lists of tags, tokens and most manifests are smaller.
const maxWhole = 64 << 10

// readWhole reads the whole body of a small response that is not a blob. If the connection breaks
// meanwhile, it returns an error, and retrier then retries the request.
func readWhole(req *http.Request, resp *http.Response) error {
	if req.Method != http.MethodGet || resp.ContentLength > maxWhole || !wantsJSON(req) && !wantsToken(req) {
		return nil
	}
	_, err := peek(resp, maxWhole+1)
	return err
}

// observed is a transport that traces each request and passes a record of it to report.
type observed struct {
	next   http.RoundTripper
	report func(telemetry.RegistryRequest)
}

func (t observed) RoundTrip(req *http.Request) (*http.Response, error) {
	start := time.Now()
	ctx, end := telemetry.Start(req.Context(), "registry request", slog.String("http.request.method", req.Method), slog.String("server.address", req.URL.Host), slog.String("url.path", tracedPath(req)))
	if ctx != req.Context() {
		req = req.WithContext(ctx)
	}
	resp, err := t.next.RoundTrip(req)
	sent := telemetry.RegistryRequest{Host: req.URL.Host, Authorized: req.Header.Get("Authorization") != "", Err: err, Took: time.Since(start)}
	if resp != nil {
		sent.Status = resp.StatusCode
	}
	if t.report != nil {
		t.report(sent)
	}
	end(err, slog.Int("http.response.status_code", sent.Status))
	return resp, err
}

// stallTimeout is the maximum time that one read from the body of a response may take.
const stallTimeout = 60 * time.Second

// ErrStalled means that a registry stopped in the middle of a response.
var ErrStalled = errors.New("the registry stopped in the middle of its answer")

// stallGuard is a transport that aborts a response if a read from its body takes longer
// than limit. The timeout of the next transport applies until a response begins.
type stallGuard struct {
	next  http.RoundTripper
	limit time.Duration
}

func (t stallGuard) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	resp.Body = &guardedBody{resp.Body, t.limit, ctx, cancel}
	return resp, nil
}

// guardedBody limits the time of each read from a body, but not the time between two reads.
type guardedBody struct {
	io.ReadCloser
	limit  time.Duration
	ctx    context.Context // the context of the request
	cancel context.CancelCauseFunc
}

func (b *guardedBody) Read(p []byte) (int, error) {
	timer := time.AfterFunc(b.limit, func() { b.cancel(ErrStalled) })
	defer timer.Stop()
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && errors.Is(context.Cause(b.ctx), ErrStalled) {
		err = ErrStalled
	}
	return n, err
}

func (b *guardedBody) Close() error {
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}
