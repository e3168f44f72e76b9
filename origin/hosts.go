package origin

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/ocibridge/ocibridge/internal/base/outgoing"
)

// AskedHost is a host that a request contacts.
type AskedHost struct {
	Name string
	// Address is an IPv4 address, or the /64 network of an IPv6 address, because one machine
	// can have all addresses of such a network. It is the zero prefix in the first report of
	// a request.
	Address netip.Prefix
	// Connected reports whether the request has a connection to Address. If Connected is
	// false and Address is not zero, the request is trying to connect.
	Connected bool
}

// WatchHosts returns a context in which the download of a package reports the hosts that it
// contacts. A request calls the function asks when it begins, before it tries each address, and
// when it has a connection. Redirects and resumptions are requests too. A request that has a
// connection can still report the addresses of earlier attempts to connect.
//
// A request through a proxy reports no address, because the proxy resolves the host name.
//
// The function asks may be called concurrently, and even after the download has ended. A
// request waits until the function returns.
func WatchHosts(ctx context.Context, asks func(AskedHost)) context.Context {
	return context.WithValue(ctx, watchKey{}, asks)
}

// watchKey is the context key of the function given to [WatchHosts].
type watchKey struct{}

// hostWatcher is a transport that reports the hosts of requests to the function given to
// [WatchHosts].
type hostWatcher struct {
	next  http.RoundTripper
	proxy func(*http.Request) (*url.URL, error) // nil means no proxy
}

func watchHosts(next http.RoundTripper) http.RoundTripper {
	w := hostWatcher{next: next}
	if t, ok := next.(*http.Transport); ok {
		w.proxy = t.Proxy
	}
	return w
}

func (w hostWatcher) RoundTrip(req *http.Request) (*http.Response, error) {
	asks, ok := req.Context().Value(watchKey{}).(func(AskedHost))
	if !ok {
		return w.next.RoundTrip(req)
	}
	name := canonical(req.URL.Hostname())
	asks(AskedHost{Name: name})
	if w.proxied(req) {
		return w.next.RoundTrip(req)
	}
	report := func(address string, connected bool) {
		if at, err := netip.ParseAddrPort(address); err == nil {
			asks(AskedHost{name, networkOf(at.Addr()), connected})
		}
	}
	return w.next.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		ConnectStart: func(_, address string) { report(address, false) },
		GotConn:      func(c httptrace.GotConnInfo) { report(c.Conn.RemoteAddr().String(), true) },
	})))
}

// proxied reports whether a request goes through a proxy.
func (w hostWatcher) proxied(req *http.Request) bool {
	if w.proxy == nil {
		return false
	}
	through, err := w.proxy(req)
	return through != nil || err != nil // after an error, no connection is opened
}

// networkOf returns the value of [AskedHost.Address] for an address.
func networkOf(ip netip.Addr) netip.Prefix {
	ip = ip.WithZone("").Unmap()
	if v4, ok := embedded(ip); ok {
		ip = v4
	}
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits) // the bits are in range
	return p
}

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

// hostSlots holds the slots of hosts with active requests. It forgets other hosts, because clients and
// origins can name any number of hosts.
type hostSlots struct {
	limit int64
	mu    sync.Mutex
	hosts map[string]*slots
}

type slots struct {
	*semaphore.Weighted
	users int // requests that hold a slot or wait for one; guarded by hostSlots.mu
}

// enter returns the slots of a host. The caller must call leave when it no longer uses them.
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

// wait acquires a slot. It stops the [pace] of the download, because the origin does not cause the wait.
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
		if req.Body != nil {
			_ = req.Body.Close() // as the contract of a RoundTripper demands
		}
		return nil, err
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
