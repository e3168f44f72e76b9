package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/ocibridge/ocibridge/internal/testkit/usage"
)

// connections is how many are left open by idle, and maxMemory what they may cost.
const connections, maxMemory = 10_000, 200 << 20

// settles is the time in which the gateway gives back what was done before.
const settles = 7 * time.Second

// idle measures what connections of HTTP/1.1 cost on which nothing is asked; for those
// of HTTP/2 see e2e.TestIdleConnections.
func (s *soak) idle() error {
	time.Sleep(settles)
	before, err := usage.Of(s.gateway.PID())
	if err != nil {
		return err
	}
	conns, err := usage.Idle(s.gateway.URL, s.CA.CertPool(), connections)
	for _, c := range conns {
		defer c.Close()
	}
	if err != nil {
		return err
	}
	time.Sleep(settles)
	after, err := usage.Of(s.gateway.PID())
	if err != nil {
		return err
	}
	if open := after.Files - before.Files; open < connections-connections/100 { // some to the registry were closed meanwhile
		return fmt.Errorf("of %d connections that idle, %d are open", connections, open)
	}
	more := after.Memory - before.Memory
	fmt.Printf("%d connections that idle cost %d MiB, %.1f KiB each\n", connections, more>>20, float64(more)/1024/connections)
	if more > maxMemory {
		return errors.New("connections that idle cost too much")
	}
	return nil
}
