package e2e

import (
	"crypto/x509"
	"io"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/usage"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// TestIdleConnections logs the memory of idle connections. It shows that the gateway releases the resources of
// closed connections. The same number of new connections then needs no more memory.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	for _, tc := range []struct {
		name string
		open func(string, *x509.CertPool, int) ([]io.Closer, error)
		n    int
	}{
		{"HTTP/1.1", usage.Idle, 2000},
		{"HTTP/2", usage.IdleHTTP2, 1000},
	} {
		gateway := s.serve("--data", s.data, "--metrics-listen", "localhost:0")
		watcher := watch(t, gateway)
		idle := func(n int) (end func()) {
			conns, err := tc.open(gateway.URL, s.CA.CertPool(), n)
			end = func() {
				for _, c := range conns {
					c.Close()
				}
			}
			t.Cleanup(end)
			clients.Must(t, err)
			return end
		}
		warm := idle(50) // makes the process allocate the memory that it allocates only once
		before, running := settled(t, gateway.PID()), watcher.goroutines()

		end := idle(tc.n)
		first := settled(t, gateway.PID())
		cost := first.Memory - before.Memory
		t.Logf("%s: %.1f KiB each; in all %d MiB before, %d MiB after", tc.name, float64(cost)/1024/float64(tc.n), before.Memory>>20, first.Memory>>20)
		if n := int(first.Files - before.Files); n < tc.n || n > tc.n+10 {
			t.Errorf("%s: %d more files are open", tc.name, n)
		}
		end()
		warm()
		for deadline := time.Now().Add(waitForLog); ; time.Sleep(50 * time.Millisecond) {
			left, err := usage.Of(gateway.PID())
			clients.Must(t, err)
			if left.Files <= before.Files && watcher.goroutines() <= running {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d files and %v goroutines are left, of %d and %v before", tc.name, left.Files, watcher.goroutines(), before.Files, running)
			}
		}

		idle(tc.n)
		if second := settled(t, gateway.PID()); second.Memory > first.Memory+cost/4 {
			t.Errorf("%s: as many again take %d MiB, after %d MiB", tc.name, second.Memory>>20, first.Memory>>20)
		}
		clients.Must(t, gateway.Stop()) // with all connections open
	}
}

// goroutines returns how many goroutines the gateway runs.
func (w *watcher) goroutines() float64 {
	w.t.Helper()
	_, body, _ := w.get(w.metrics + "/metrics")
	n, there := value(w.t, body, "go_goroutines")
	if !there {
		w.t.Fatalf("go_goroutines is missing in\n%s", body)
	}
	return n
}

// settled returns the lowest usage of a process after its memory has stopped decreasing. The process releases
// unused memory only after a delay, so settled waits longer than this delay.
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
