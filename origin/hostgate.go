package origin

import (
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
	return &hostGate{next, &hostSlots{limit: limit, hosts: map[string]chan struct{}{}}}
}

// over returns a gate with the same bound, of both together.
func (g *hostGate) over(next http.RoundTripper) *hostGate { return &hostGate{next, g.hosts} }

type hostSlots struct {
	limit int

	mu    sync.Mutex
	hosts map[string]chan struct{}
}

func (g *hostSlots) slots(host string) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hosts[host] == nil {
		g.hosts[host] = make(chan struct{}, g.limit)
	}
	return g.hosts[host]
}

// RoundTrip implements [http.RoundTripper].
func (g *hostGate) RoundTrip(req *http.Request) (*http.Response, error) {
	slots := g.hosts.slots(req.URL.Host)
	select {
	case slots <- struct{}{}:
	case <-req.Context().Done():
		return nil, req.Context().Err() // no request to an origin has a body to close
	}
	release := sync.OnceFunc(func() { <-slots })
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
