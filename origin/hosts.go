package origin

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
)

// WatchHosts returns a context in which the download of a package reports the hosts
// that it asks. For each request, redirects and resumptions included, asks is called
// with the host's name, and then with the address of each connection that is tried or
// used. An IPv4 address is reported by itself. An IPv6 address is reported as its
// network of 64 bits, because one machine may have all of its addresses.
//
// Behind a proxy, which resolves names itself, no address is reported.
//
// asks may be called by several goroutines at once, and after the download has ended.
// The request waits for it.
func WatchHosts(ctx context.Context, asks func(name string, address netip.Prefix)) context.Context {
	return context.WithValue(ctx, watchKey{}, asks)
}

// watchKey is the key of the context value that holds the function of [WatchHosts].
type watchKey struct{}

// hostWatcher reports what [WatchHosts] wants to know.
type hostWatcher struct {
	next  http.RoundTripper
	proxy func(*http.Request) (*url.URL, error) // nil: there is none
}

// watchHosts returns a transport that reports the hosts of its requests.
func watchHosts(next http.RoundTripper) http.RoundTripper {
	t, ok := next.(*http.Transport)
	if !ok {
		return hostWatcher{next: next}
	}
	return hostWatcher{next, t.Proxy}
}

// RoundTrip implements [http.RoundTripper].
func (w hostWatcher) RoundTrip(req *http.Request) (*http.Response, error) {
	asks, ok := req.Context().Value(watchKey{}).(func(string, netip.Prefix))
	if !ok {
		return w.next.RoundTrip(req)
	}
	name := canonical(req.URL.Hostname())
	asks(name, netip.Prefix{})
	if w.proxied(req) {
		return w.next.RoundTrip(req)
	}
	report := func(address string) {
		if at, err := netip.ParseAddrPort(address); err == nil {
			asks(name, networkOf(at.Addr()))
		}
	}
	return w.next.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		ConnectStart: func(_, address string) { report(address) },
		GotConn:      func(c httptrace.GotConnInfo) { report(c.Conn.RemoteAddr().String()) },
	})))
}

// proxied reports whether a request goes through a proxy.
func (w hostWatcher) proxied(req *http.Request) bool {
	if w.proxy == nil {
		return false
	}
	through, err := w.proxy(req)
	return through != nil || err != nil // with an error, nothing is connected to
}

// networkOf returns what [WatchHosts] reports of an address.
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
