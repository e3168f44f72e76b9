package auth

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"oras.land/oras-go/v2/registry"

	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// observed is a transport that traces each request and passes a record of it to report.
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

// tracedPath returns the path of a request for traces and logs. It omits the path of a
// redirected request, because storage may put a signature into that path.
func tracedPath(req *http.Request) string {
	if req.Response != nil {
		return "redirected"
	}
	return req.URL.Path
}

// HostOf returns the HOST or HOST:PORT that serves the registry. The host of Docker Hub
// differs from its name.
func HostOf(r ociaddr.Registry) string { return registry.Reference{Registry: string(r)}.Host() }

// apiURL returns the URL of the root of a registry's API. The URL ends with a slash.
func apiURL(host string, plainHTTP bool) string {
	if plainHTTP {
		return "http://" + host + "/v2/"
	}
	return "https://" + host + "/v2/"
}

// Reachable sends a request without a credential to the root of the registry's API. It
// returns an error if no response arrives, or if the status is 500 or higher. A response
// that asks for a credential is not an error.
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
