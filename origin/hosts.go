package origin

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
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
// contacts. A request calls asks when it begins, before it tries each address, and when it
// has a connection. Redirects and resumptions are requests too. A request that has a
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
