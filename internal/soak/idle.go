package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ocibridge/ocibridge/internal/testkit/usage"
)

// connections is how many are left open by idle, and maxMemory what they may cost.
const connections, maxMemory = 10_000, 200 << 20

// idle measures what connections cost on which nothing is asked. Those of HTTP/2,
// of which there are fewer because this process pays for them, too, cost more.
func (s *soak) idle() error {
	more, err := s.cost("HTTP/1.1", usage.Idle, connections)
	if err == nil && more > maxMemory {
		err = errors.New("connections that idle cost too much")
	}
	if err != nil {
		return err
	}
	_, err = s.cost("HTTP/2", usage.IdleHTTP2, connections/10)
	return err
}

// settles is the time in which the gateway gives back what was done before.
const settles = 7 * time.Second

func (s *soak) cost(protocol string, open func(string, *x509.CertPool, int) ([]io.Closer, error), n int) (int64, error) {
	time.Sleep(settles)
	before, err := usage.Of(s.gateway.PID())
	if err != nil {
		return 0, err
	}
	conns, err := open(s.gateway.URL, s.CA.CertPool(), n)
	for _, c := range conns {
		defer c.Close()
	}
	if err != nil {
		return 0, err
	}
	time.Sleep(settles)
	after, err := usage.Of(s.gateway.PID())
	if err != nil {
		return 0, err
	}
	if open := after.Files - before.Files; open < int64(n-n/100) { // some to the registry were closed meanwhile
		return 0, fmt.Errorf("of %d connections of %s that idle, %d are open", n, protocol, open)
	}
	more := after.Memory - before.Memory
	fmt.Printf("%d connections of %s that idle cost %d MiB, %.1f KiB each\n", n, protocol, more>>20, float64(more)/1024/float64(n))
	return more, nil
}
