package auth

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
	dial  func(ctx context.Context, network, addr string) (net.Conn, error) // with a TLS handshake
	known sync.Map                                                          // from ociaddr.Registry to whether it speaks plain HTTP
}

func newSchemes() *schemes {
	return &schemes{dial: (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext}
}

// plain reports whether the registry speaks plain HTTP. If the probe is inconclusive, for
// example because nothing listens yet, plain returns false, so the next request fails
// with a useful error. The next call probes again. Concurrent first calls may each probe
// the registry.
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

// probe starts a TLS handshake with the registry; ok reports whether the result is
// conclusive. It does not verify the certificate, since it sends nothing.
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

// probeAddress returns the address of a registry, with a port.
func probeAddress(r ociaddr.Registry) string {
	if _, _, err := net.SplitHostPort(string(r)); err == nil {
		return string(r)
	}
	return net.JoinHostPort(strings.Trim(string(r), "[]"), "443")
}
