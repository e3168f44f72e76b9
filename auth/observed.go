package auth

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"oras.land/oras-go/v2/registry"

	"github.com/ocibridge/ocibridge/internal/observe"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// Sent is a request that was sent to a registry, or to a token server or storage that
// it sends its clients to: each attempt by itself.
type Sent struct {
	Host       string        // with its port, if any
	Authorized bool          // it had a credential
	Status     int           // 0 where there was no answer
	Err        error         // why not
	Took       time.Duration // until the answer began
}

// observed tells of each request that passes it.
type observed struct {
	next http.RoundTripper
	tell func(Sent)
}

// RoundTrip implements [http.RoundTripper].
func (t observed) RoundTrip(req *http.Request) (*http.Response, error) {
	start := time.Now()
	ctx, end := observe.Start(req.Context(), "registry request", slog.String("http.request.method", req.Method), slog.String("server.address", req.URL.Host), slog.String("url.path", tracedPath(req)))
	if ctx != req.Context() {
		req = req.WithContext(ctx)
	}
	resp, err := t.next.RoundTrip(req)
	sent := Sent{Host: req.URL.Host, Authorized: req.Header.Get("Authorization") != "", Err: err, Took: time.Since(start)}
	if resp != nil {
		sent.Status = resp.StatusCode
	}
	if t.tell != nil {
		t.tell(sent)
	}
	end(err, slog.Int("http.response.status_code", sent.Status))
	return resp, err
}

// tracedPath returns what traces and logs may say of a request's path: where a redirect
// leads to, storage may have put there what opens a blob.
func tracedPath(req *http.Request) string {
	if req.Response != nil {
		return "redirected"
	}
	return req.URL.Path
}

// HostOf returns the host, with its port if it has one, that requests to a registry
// go to: Docker Hub has another one for them.
func HostOf(r ociaddr.Registry) string { return registry.Reference{Registry: string(r)}.Host() }

// maxProbed is how much of an answer is read that nobody wants.
const maxProbed = 4 << 10

// Reachable asks a registry for the root of its API, once and without a credential.
// It fails where nothing answers there, or what answers is in trouble; that the
// registry wants a credential is none.
func (c *Client) Reachable(ctx context.Context, r ociaddr.Registry) error {
	plain, err := c.plainHTTP(ctx, r)
	if err != nil {
		return err
	}
	scheme := "https"
	if plain {
		scheme = "http"
	}
	host := HostOf(r)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+host+"/v2/", nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", c.opts.UserAgent)
	resp, err := c.conns.transport(req.URL.Host, string(r)).RoundTrip(req)
	if err != nil {
		return fmt.Errorf("ask %s: %w", r, err)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxProbed) // for the connection to be used again
	if resp.StatusCode >= 500 {
		return fmt.Errorf("ask %s: it answers %d %s", r, resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	return nil
}
