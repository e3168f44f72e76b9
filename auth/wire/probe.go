package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"oras.land/oras-go/v2/registry"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// probeTimeout is the time limit of the probe that finds out whether a loopback registry
// speaks TLS.
const probeTimeout = 5 * time.Second

// schemes caches which loopback registries speak plain HTTP.
type schemes struct {
	dial  func(ctx context.Context, network, addr string) (net.Conn, error) // connects and does a TLS handshake
	known sync.Map                                                          // from ociaddr.Registry to a bool: whether the registry speaks plain HTTP
}

func newSchemes() *schemes {
	return &schemes{dial: (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext}
}

// plain reports whether the registry speaks plain HTTP. It returns false if the probe is
// inconclusive, for example because no server listens at the address yet. The caller's
// next request then fails with a useful error. An inconclusive result is not cached, so
// the next call probes again. Concurrent first calls may each probe the registry.
func (s *schemes) plain(ctx context.Context, r ociaddr.Registry) (bool, error) {
	if plain, ok := s.known.Load(r); ok {
		return plain.(bool), nil
	}
	plain, ok := s.probe(ctx, r)
	switch {
	case ok:
		s.known.Store(r, plain)
	case ctx.Err() != nil:
		return false, ctx.Err()
	}
	return plain, nil
}

// probe starts a TLS handshake with the registry. plain reports whether the registry
// speaks plain HTTP, and ok reports whether that is certain. probe does not verify the
// certificate, because it sends no data over the connection.
func (s *schemes) probe(ctx context.Context, r ociaddr.Registry) (plain, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := s.dial(ctx, "tcp", probeAddress(r))
	if err == nil {
		_ = conn.Close()
	}
	var record tls.RecordHeaderError
	plain = errors.As(err, &record)
	return plain, plain || err == nil
}

// probeAddress returns the HOST:PORT of a registry. The default port is 443.
func probeAddress(r ociaddr.Registry) string {
	if _, _, err := net.SplitHostPort(string(r)); err == nil {
		return string(r)
	}
	return net.JoinHostPort(strings.Trim(string(r), "[]"), "443")
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
func (c *Connections) Reachable(ctx context.Context, r ociaddr.Registry) error {
	plain, err := c.PlainHTTP(ctx, r)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, apiURL(HostOf(r), plain), nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", c.opts.UserAgent)
	resp, err := c.transport(req.URL.Host, string(r)).RoundTrip(req)
	if err != nil {
		return fmt.Errorf("ask %s: %w", r, err)
	}
	drain(resp)
	if resp.StatusCode >= 500 {
		return fmt.Errorf("ask %s: it answers %d %s", r, resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	return nil
}
