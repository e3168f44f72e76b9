package e2e

import (
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/testkit/usage"
	"github.com/ocibridge/ocibridge/internal/testkit/world"
)

// TestIdleConnections measures what connections cost on which nothing is asked: about
// 17 KiB of buffers and state of net/http and crypto/tls, and 8 KiB of stack.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	const connections, allowed = 1000, 28 << 10 // bytes each
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	gateway := s.serve("--data", s.data, "--log-level", "warn")
	idle := func(n int) usage.Usage {
		conns, err := usage.Idle(gateway.URL, s.CA.CertPool(), n)
		for _, c := range conns {
			t.Cleanup(func() { c.Close() })
		}
		clients.Must(t, err)
		return settled(t, gateway.PID())
	}
	before := idle(50) // that come with what the process needs once
	after := idle(connections)
	each := (after.Memory - before.Memory) / connections
	t.Logf("%d KiB each; in all %d MiB before, %d MiB after", each>>10, before.Memory>>20, after.Memory>>20)
	if each > allowed {
		t.Error("that is too much")
	}
	if n := after.Files - before.Files; n < connections || n > connections+10 {
		t.Errorf("%d open files more", n)
	}
}

// settled returns what a process uses when that no longer shrinks.
func settled(t *testing.T, pid int) usage.Usage {
	t.Helper()
	var least usage.Usage
	for i, unchanged := 0, 0; i < 50 && unchanged < 5; i++ {
		now, err := usage.Of(pid)
		clients.Must(t, err)
		if i == 0 || now.Memory < least.Memory {
			least, unchanged = now, 0
		} else {
			unchanged++
		}
		time.Sleep(100 * time.Millisecond)
	}
	return least
}
