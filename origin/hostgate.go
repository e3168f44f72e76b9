package origin

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// hostGate bounds how many answers of one host are awaited or read at once. A
// place is held until the answer's body is closed.
type hostGate struct {
	next  http.RoundTripper
	hosts *hostSlots
}

func newHostGate(next http.RoundTripper, limit int) *hostGate {
	return &hostGate{next, &hostSlots{limit: limit, hosts: map[string]*slots{}}}
}

// over returns a gate with the same bound, of both together.
func (g *hostGate) over(next http.RoundTripper) *hostGate { return &hostGate{next, g.hosts} }

// hostSlots are those of the hosts that are asked now: others may make up as many
// names of hosts as they like.
type hostSlots struct {
	limit int

	mu    sync.Mutex
	hosts map[string]*slots
}

type slots struct {
	places chan struct{}
	users  int // that have a place, or wait for one; guarded by hostSlots.mu
}

// enter returns the slots of a host; leave ends their use.
func (h *hostSlots) enter(host string) *slots {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.hosts[host]
	if s == nil {
		s = &slots{places: make(chan struct{}, h.limit)}
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

// wait takes a place. The origin's clock stands still meanwhile: the bound is ours.
func (s *slots) wait(ctx context.Context) error {
	select {
	case s.places <- struct{}{}:
		return nil
	default:
	}
	origin := paceOf(ctx)
	origin.stop()
	defer origin.start()
	select {
	case s.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// RoundTrip implements [http.RoundTripper].
func (g *hostGate) RoundTrip(req *http.Request) (*http.Response, error) {
	host := req.URL.Host
	s := g.hosts.enter(host)
	if err := s.wait(req.Context()); err != nil {
		g.hosts.leave(host, s)
		return nil, err // no request to an origin has a body to close
	}
	release := sync.OnceFunc(func() {
		<-s.places
		g.hosts.leave(host, s)
	})
	resp, err := g.next.RoundTrip(req)
	if err != nil {
		release()
		return nil, err
	}
	resp.Body = &gatedBody{resp.Body, release}
	return resp, nil
}

type gatedBody struct {
	io.ReadCloser
	release func()
}

func (b *gatedBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}
