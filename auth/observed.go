package auth

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"oras.land/oras-go/v2/registry"

	"github.com/ocibridge/ocibridge/internal/telemetry"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// observed traces and reports each request.
type observed struct {
	next   http.RoundTripper
	report func(telemetry.RegistryRequest)
}

// RoundTrip implements [http.RoundTripper].
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

// tracedPath returns the path of a request for traces and logs. The path of a redirect's
// target is omitted, because storage may put a signature into it.
func tracedPath(req *http.Request) string {
	if req.Response != nil {
		return "redirected"
	}
	return req.URL.Path
}

// HostOf returns the host, with its port if any, that serves a registry. Docker Hub is
// served by a different host.
func HostOf(r ociaddr.Registry) string { return registry.Reference{Registry: string(r)}.Host() }

// apiURL returns the root of a registry's API, with a trailing slash.
func apiURL(host string, plainHTTP bool) string {
	if plainHTTP {
		return "http://" + host + "/v2/"
	}
	return "https://" + host + "/v2/"
}

// Reachable sends one request without a credential to the root of a registry's API. It
// returns an error if nothing answers, or if the answer is a server error. It accepts
// an answer that asks for a credential.
func (c *Client) Reachable(ctx context.Context, r ociaddr.Registry) error {
	plain, err := c.PlainHTTP(ctx, r)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, apiURL(HostOf(r), plain), nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", c.opts.UserAgent)
	resp, err := c.conns.transport(req.URL.Host, string(r)).RoundTrip(req)
	if err != nil {
		return fmt.Errorf("ask %s: %w", r, err)
	}
	drain(resp)
	if resp.StatusCode >= 500 {
		return fmt.Errorf("ask %s: it answers %d %s", r, resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	return nil
}
