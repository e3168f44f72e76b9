package e2e

import (
	"crypto/x509"
	"io"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/testkit/usage"
	"github.com/ocibridge/ocibridge/internal/testkit/world"
)

// Ten thousand connections that idle are to cost less than 200 MiB. Those of HTTP/2
// cannot be parked (internal/parking): they cost a third more than that.
const (
	maxIdle      = 200 << 20 / 10_000
	maxIdleHTTP2 = 32 << 10
)

// TestIdleConnections measures what connections cost on which nothing is asked, and
// makes sure that something can be.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	for _, tc := range []struct {
		name    string
		open    func(string, *x509.CertPool, int) ([]io.Closer, error)
		n       int
		allowed int64 // bytes each
	}{
		{"HTTP/1.1", usage.Idle, 1000, maxIdle},
		{"HTTP/2", usage.IdleHTTP2, 500, maxIdleHTTP2},
	} {
		gateway := s.serve("--data", s.data, "--log-level", "warn")
		idle := func(n int) usage.Usage {
			conns, err := tc.open(gateway.URL, s.CA.CertPool(), n)
			for _, c := range conns {
				t.Cleanup(func() { c.Close() })
			}
			clients.Must(t, err)
			return settled(t, gateway.PID())
		}
		before := idle(50) // that come with what the process needs once
		after := idle(tc.n)
		each := (after.Memory - before.Memory) / int64(tc.n)
		t.Logf("%s: %.1f KiB each; in all %d MiB before, %d MiB after", tc.name, float64(each)/1024, before.Memory>>20, after.Memory>>20)
		if each > tc.allowed {
			t.Errorf("%s: that is too much", tc.name)
		}
		if n := int(after.Files - before.Files); n < tc.n || n > tc.n+10 {
			t.Errorf("%s: %d open files more", tc.name, n)
		}
		clients.Must(t, gateway.Stop()) // with all of them open
	}
}

// settled returns what a process uses when that has not shrunk for longer than it waits before it gives memory back.
func settled(t *testing.T, pid int) usage.Usage {
	t.Helper()
	var least usage.Usage
	for i, unchanged := 0, 0; i < 120 && unchanged < 45; i++ {
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
