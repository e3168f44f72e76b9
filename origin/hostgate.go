package origin

import (
	"context"
	"net/http"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/ocibridge/ocibridge/internal/base/outgoing"
)

// hostGate is a transport that limits the number of concurrent requests to one host. A
// request holds its slot until the body of its response is closed.
type hostGate struct {
	next http.RoundTripper
	*hostSlots
}

func newHostGate(next http.RoundTripper, limit int64) *hostGate {
	return &hostGate{next, &hostSlots{limit: limit, hosts: map[string]*slots{}}}
}

// over returns a gate for another transport. Both gates share one limit per host.
func (g *hostGate) over(next http.RoundTripper) *hostGate { return &hostGate{next, g.hostSlots} }

// hostSlots holds the slots of the hosts with active requests only, because clients and origins
// can name any number of hosts.
type hostSlots struct {
	limit int64
	mu    sync.Mutex
	hosts map[string]*slots
}

type slots struct {
	*semaphore.Weighted
	users int // requests that hold a slot or wait for one; guarded by hostSlots.mu
}

// enter returns the slots of a host. The caller calls leave when it no longer uses them.
func (h *hostSlots) enter(host string) *slots {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.hosts[host]
	if s == nil {
		s = &slots{Weighted: semaphore.NewWeighted(h.limit)}
		h.hosts[host] = s
	}
	s.users++
	return s
}

func (h *hostSlots) leave(host string, s *slots) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(h.hosts, host)
	}
}

// wait acquires a slot. The [pace] of the download stops, because the wait is not the origin's.
func (s *slots) wait(ctx context.Context) error {
	if s.TryAcquire(1) {
		return nil
	}
	origin := paceOf(ctx)
	origin.stop()
	defer origin.start()
	return s.Acquire(ctx, 1)
}

func (g *hostGate) RoundTrip(req *http.Request) (*http.Response, error) {
	host := req.URL.Host
	s := g.enter(host)
	if err := s.wait(req.Context()); err != nil {
		g.leave(host, s)
		return nil, err // requests to origins have no body that must be closed
	}
	release := sync.OnceFunc(func() {
		s.Release(1)
		g.leave(host, s)
	})
	resp, err := g.next.RoundTrip(req)
	if err != nil {
		release()
		return nil, err
	}
	outgoing.OnClose(resp, release)
	return resp, nil
}
