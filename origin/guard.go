package origin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ocibridge/ocibridge/internal/hint"
)

// ErrPrivate means that an origin, or where it sends its clients, is at an address
// that is not for everybody on the internet.
var ErrPrivate = errors.New("its address is not a public one")

// errDowngrade means that an origin redirects from https to something else.
var errDowngrade = errors.New("the redirect leaves https")

// Guard keeps requests whose hosts others choose, such as a user of a gateway or
// an origin's answers, on public addresses: what a name resolves to is looked at
// when it is connected to, so that neither redirects nor names that change what
// they resolve to lead elsewhere. Redirects from https to http are refused.
//
// Where a proxy is in between, which resolves names itself, hosts are looked at as
// they are written, and the proxy must look after the rest.
type Guard struct {
	named    func(host, port string) bool
	lenient  bool     // see [NewLenientGuard]
	asked    sync.Map // hosts whose providers a lenient guard's user asked for
	proxies  sync.Map // "host:port" of those that the environment names
	services sync.Map // "host:port" of named hosts' services, by that of their discovery documents
}

// NewGuard returns a guard. A named host may have any address at the named port, and
// at the port that its own discovery document names. The host is written as in a URL,
// without brackets.
func NewGuard(named func(host, port string) bool) *Guard { return &Guard{named: named} }

// Transport returns a copy of a transport that keeps to the guard.
func (g *Guard) Transport(base *http.Transport) *http.Transport {
	t := base.Clone()
	proxy := t.Proxy
	// It is asked once for each request, redirects included, before anything else is
	// done about it.
	t.Proxy = func(req *http.Request) (*url.URL, error) {
		if g.lenient {
			return g.throughProxy(proxy, req)
		}
		if from := req.Response; from != nil && from.Request.URL.Scheme == "https" && req.URL.Scheme != "https" {
			return nil, hint.Wrap(errDowngrade, "the origin must redirect to https: what is fetched for others goes no other way")
		}
		if proxy == nil {
			return nil, nil
		}
		through, err := proxy(req)
		switch {
		case err != nil:
			return nil, err
		case through != nil:
			g.proxies.Store(hostPort(through), true)
			return through, g.checkName(req.URL)
		}
		if _, ok := g.proxies.Load(hostPort(req.URL)); ok {
			return nil, g.checkName(req.URL) // it would be connected to as the proxy
		}
		return nil, nil
	}
	plain := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	guarded := *plain
	guarded.Control = func(_, address string, _ syscall.RawConn) error { return g.checkAddress(address) }
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		if _, ok := g.proxies.Load(addr); ok || g.isNamed(host, port) {
			return plain.DialContext(ctx, network, addr)
		}
		return guarded.DialContext(ctx, network, addr)
	}
	t.DialTLSContext = nil
	return t
}

// checkName refuses a host that is not public by the look of it.
func (g *Guard) checkName(u *url.URL) error {
	host := u.Hostname()
	if g.isNamed(host, portOf(u)) {
		return nil
	}
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	if ip, err := netip.ParseAddr(name); err == nil {
		if why := notPublic(ip); why != "" {
			return private(host, portOf(u), why)
		}
		return nil
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	switch {
	case last == name || last == "localhost" || last == "local" || last == "internal":
		return private(host, portOf(u), "a name of the own network")
	case last == "" || strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x"):
		return private(host, portOf(u), "an address in a form that not all read alike")
	}
	if _, ok := g.proxies.Load(hostPort(u)); ok {
		return private(host, portOf(u), "the proxy")
	}
	return nil
}

// checkAddress refuses an address that is about to be connected to.
func (g *Guard) checkAddress(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return private(address, "443", "not an IP address")
	}
	if g.lenient {
		return checkInside(at.Addr())
	}
	if why := notPublic(at.Addr()); why != "" {
		return private(at.Addr().String(), strconv.Itoa(int(at.Port())), why)
	}
	return nil
}

func private(host, port, why string) error {
	err := fmt.Errorf("%w: %s is %s", ErrPrivate, host, why)
	if port == "443" {
		return hint.Wrap(err, "if that is meant, name the host in an include pattern of the pull_through block, such as \"registry.acme.internal/*/*\"")
	}
	return hint.Wrap(err, "if port %[1]s of the host is meant, name both in an include pattern of the pull_through block, such as \"registry.acme.internal:%[1]s/*/*\", or in the providers.v1 URL of a host block of the CLI configuration", port)
}

// addService opens the port that a named host's own discovery document names for its
// services. Each document opens one port: the next document replaces it.
func (g *Guard) addService(host, base *url.URL) {
	if !g.named(host.Hostname(), portOf(host)) {
		return
	}
	if canonical(base.Hostname()) != canonical(host.Hostname()) {
		g.services.Delete(canonical(host.Host))
		return
	}
	g.services.Store(canonical(host.Host), net.JoinHostPort(canonical(base.Hostname()), portOf(base)))
}

// hasServices reports whether a named host has its services at a port.
func (g *Guard) hasServices(host, port string) (found bool) {
	at := net.JoinHostPort(canonical(host), port)
	g.services.Range(func(_, service any) bool {
		found = service == at
		return !found
	})
	return found
}

// special are the ranges that are not for everybody, beside those that package
// netip knows: IANA's registries of special-purpose addresses, and one that only looks
// as others do.
var special = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("100.64.0.0/10"), "shared by a carrier's customers"},
	{netip.MustParsePrefix("168.63.129.16/32"), "what a cloud tells its machines"}, // Azure's, on every virtual network
	{netip.MustParsePrefix("192.0.0.0/24"), "reserved"},
	{netip.MustParsePrefix("192.0.2.0/24"), "for documentation"},
	{netip.MustParsePrefix("198.18.0.0/15"), "for benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "for documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "for documentation"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "translated locally"},
	{netip.MustParsePrefix("100::/64"), "for discarding"},
	{netip.MustParsePrefix("2001::/23"), "reserved or a tunnel"},
	{netip.MustParsePrefix("2001:db8::/32"), "for documentation"},
	{netip.MustParsePrefix("3fff::/20"), "for documentation"},
	{netip.MustParsePrefix("5f00::/16"), "reserved"},
	{netip.MustParsePrefix("fec0::/10"), "private"},
}

// unicast is all of IPv6 that is given to anybody on the internet.
var unicast = netip.MustParsePrefix("2000::/3")

// Addresses that hold one of IPv4, with where it begins.
var embedding = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("::/96"), 12},
	{netip.MustParsePrefix("64:ff9b::/96"), 12}, // NAT64
	{netip.MustParsePrefix("2002::/16"), 2},     // 6to4
}

// notPublic says why an address is not for everybody; "" if it is.
func notPublic(ip netip.Addr) string {
	ip = ip.WithZone("").Unmap()
	switch {
	case ip.IsUnspecified():
		return "unspecified"
	case ip.IsLoopback():
		return "this machine itself"
	case ip.IsPrivate():
		return "private"
	case ip.IsLinkLocalUnicast():
		return "link-local, as cloud metadata is"
	case ip.IsMulticast():
		return "multicast"
	}
	for _, s := range special {
		if s.prefix.Contains(ip) {
			return s.what
		}
	}
	if v4, ok := embedded(ip); ok {
		if notPublic(v4) != "" {
			return "another form of " + v4.String()
		}
		return ""
	}
	if ip.Is6() && !unicast.Contains(ip) {
		return "reserved"
	}
	return ""
}

// embedded returns the address of IPv4 that one of IPv6 holds.
func embedded(ip netip.Addr) (v4 netip.Addr, ok bool) {
	for _, e := range embedding {
		if e.prefix.Contains(ip) {
			b := ip.AsSlice()
			return netip.AddrFromSlice(b[e.at : e.at+4])
		}
	}
	return netip.Addr{}, false
}

func hostPort(u *url.URL) string { return net.JoinHostPort(u.Hostname(), portOf(u)) }

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "http":
		return "80"
	case u.Scheme == "socks5", u.Scheme == "socks5h":
		return "1080"
	}
	return "443"
}
