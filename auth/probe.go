package auth

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// probeTimeout bounds the probe that finds out whether a loopback registry speaks TLS.
const probeTimeout = 5 * time.Second

// schemes caches which loopback registries speak plain HTTP.
type schemes struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu    sync.Mutex
	known map[ociaddr.Registry]*scheme
}

type scheme struct {
	slot  // held during the probe, and while the fields are read
	known bool
	plain bool
}

func newSchemes() *schemes {
	return &schemes{dial: (&net.Dialer{}).DialContext, known: map[ociaddr.Registry]*scheme{}}
}

// plain reports whether the registry speaks plain HTTP. If the probe is inconclusive, for
// example because nothing listens yet, plain returns false, so that the next request
// fails with a useful error. The next call probes again.
func (s *schemes) plain(ctx context.Context, r ociaddr.Registry) (bool, error) {
	s.mu.Lock()
	sch, ok := s.known[r]
	if !ok {
		sch = &scheme{slot: newSlot()}
		s.known[r] = sch
	}
	s.mu.Unlock()

	if err := sch.lock(ctx); err != nil {
		return false, err
	}
	defer sch.unlock()
	if !sch.known {
		sch.plain, sch.known = s.probe(ctx, r)
	}
	if err := ctx.Err(); err != nil && !sch.known {
		return false, err
	}
	return sch.plain, nil
}

// probe starts a TLS handshake with the registry; ok reports whether the result is
// conclusive. It does not verify the certificate, since it sends nothing.
func (s *schemes) probe(ctx context.Context, r ociaddr.Registry) (plain, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	host, addr := string(r), string(r)
	if h, _, err := net.SplitHostPort(addr); err == nil {
		host = h
	} else {
		addr = net.JoinHostPort(trimBrackets(host), "443")
	}
	conn, err := s.dial(ctx, "tcp", addr)
	if err != nil {
		return false, false
	}
	defer conn.Close()
	err = tls.Client(conn, &tls.Config{ServerName: trimBrackets(host), InsecureSkipVerify: true}).HandshakeContext(ctx)
	var record tls.RecordHeaderError
	if errors.As(err, &record) {
		return true, true
	}
	return false, err == nil
}

func trimBrackets(host string) string {
	if len(host) > 1 && host[0] == '[' && host[len(host)-1] == ']' {
		return host[1 : len(host)-1]
	}
	return host
}
