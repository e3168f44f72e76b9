package main

import (
	"fmt"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/usage"
)

// connections is the number of connections that idle opens.
const connections = 10_000

// settles is how long the gateway may take to release the resources of earlier requests.
const settles = 7 * time.Second

// idle prints how much memory the gateway needs for idle HTTP/1.1 connections. It returns an error if the
// gateway closes the connections. For HTTP/2, see e2e.TestIdleConnections.
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
	if open := after.Files - before.Files; open < connections-connections/100 { // allow 1%, because the gateway can have closed connections to the registry
		return fmt.Errorf("of %d idle connections, %d are open", connections, open)
	}
	more := after.Memory - before.Memory
	fmt.Printf("%d idle connections cost %d MiB, %.1f KiB each\n", connections, more>>20, float64(more)/1024/connections)
	return nil
}
