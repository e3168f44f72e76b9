package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

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

// plain reports whether the registry speaks plain HTTP. It starts a TLS handshake, and does
// not verify the certificate, because it sends no data over the connection. plain returns
// false if the handshake is inconclusive, for example because no server listens at the
// address yet. The caller's next request then fails with a useful error. An inconclusive
// result is not cached, so the next call probes again. Concurrent first calls may each probe
// the registry.
func (s *schemes) plain(ctx context.Context, r ociaddr.Registry) (bool, error) {
	if plain, ok := s.known.Load(r); ok {
		return plain.(bool), nil
	}
	bounded, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := s.dial(bounded, "tcp", probeAddress(r))
	if err == nil {
		_ = conn.Close()
	}
	plain := errors.As(err, new(tls.RecordHeaderError))
	switch {
	case plain || err == nil:
		s.known.Store(r, plain)
	case ctx.Err() != nil:
		return false, ctx.Err()
	}
	return plain, nil
}

// probeAddress returns the HOST:PORT of a registry. The default port is 443.
func probeAddress(r ociaddr.Registry) string {
	if _, _, err := net.SplitHostPort(string(r)); err == nil {
		return string(r)
	}
	return net.JoinHostPort(strings.Trim(string(r), "[]"), "443")
}
