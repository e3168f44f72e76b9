package origin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// ErrPrivate means that an origin, or a host that the origin refers to, has no public
// address.
var ErrPrivate = errors.New("its address is not public")

// errDowngrade means that an origin redirects from https to http.
var errDowngrade = errors.New("the redirect leaves https")

// Guard restricts requests to public addresses. It is for requests whose hosts are
// chosen by other parties, such as the clients of a gateway or an origin. It checks the
// resolved address when a connection is opened, so neither a redirect nor a DNS name that
// changes its address can lead to a private one. It also refuses redirects from https to http.
//
// A proxy resolves host names itself. Behind a proxy, the guard can check only the text
// of host names, and the proxy must restrict the addresses.
type Guard struct {
	named    func(host, port string) bool
	lenient  bool     // see [NewLenientGuard]
	asked    sync.Map // the hosts of providers and mirrors that the user of a lenient guard requested
	proxies  sync.Map // the "host:port" of proxies in the environment
	services sync.Map // the "host:port" of each service in a named host's discovery document, by [hostService]
}

// NewGuard returns a guard. If named returns true for a host and port, requests to them may go to
// any address. The discovery document of that host may give another port of the host for its
// services. Requests to that port may go to any address, too. named gets the host as in a URL,
// without brackets.
func NewGuard(named func(host, port string) bool) *Guard { return &Guard{named: named} }

// Transport returns a copy of base that is restricted by the guard.
func (g *Guard) Transport(base *http.Transport) *http.Transport {
	t := base.Clone()
	proxy := t.Proxy
	// net/http calls Proxy once for each request, redirects included, before anything else.
	t.Proxy = func(req *http.Request) (*url.URL, error) {
		if from := req.Response; !g.lenient && from != nil && from.Request.URL.Scheme == "https" && req.URL.Scheme != "https" {
			return nil, hint.Wrap(errDowngrade, "the origin must redirect to https: pull-through does not leave https")
		}
		if proxy == nil {
			return nil, nil
		}
		through, err := proxy(req)
		if through != nil {
			g.proxies.Store(hostPort(through), true) // a proxy may have any address
		}
		if err != nil || g.lenient {
			return through, err
		}
		// The dialer allows every connection to the address of a proxy, so another host
		// with this address is refused here.
		if _, isProxy := g.proxies.Load(hostPort(req.URL)); through != nil || isProxy {
			return through, g.checkName(req.URL)
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

// checkName returns an error if the text of the URL's host shows that it is not public.
func (g *Guard) checkName(u *url.URL) error {
	host := u.Hostname()
	if g.isNamed(host, portOf(u)) {
		return nil
	}
	name := canonical(host)
	if ip, err := netip.ParseAddr(name); err == nil {
		if why := notPublic(ip); why != "" {
			return private(host, portOf(u), why)
		}
		return nil
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	switch {
	case last == name || last == "localhost" || last == "local" || last == "internal":
		return private(host, portOf(u), "a name in the local network")
	case last == "" || strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x"):
		return private(host, portOf(u), "an address in a notation that programs read differently")
	}
	if _, ok := g.proxies.Load(hostPort(u)); ok {
		return private(host, portOf(u), "the proxy")
	}
	return nil
}

// checkAddress returns an error if the guard does not allow connections to the address.
func (g *Guard) checkAddress(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return private(address, "443", "not an IP address")
	}
	if g.lenient {
		return checkLocalAddress(at.Addr())
	}
	if why := notPublic(at.Addr()); why != "" {
		return private(at.Addr().String(), strconv.Itoa(int(at.Port())), why)
	}
	return nil
}

func private(host, port, why string) error {
	err := fmt.Errorf("%w: %s is %s", ErrPrivate, host, why)
	if port == "443" {
		return hint.Wrap(err, "to allow it, name the host in the pull_through block of ocibridge.hcl, such as include = [\"registry.acme.internal/*/*\"]; other hosts then need patterns, too")
	}
	return hint.Wrap(err, "to allow port %[1]s of the host, name both in the pull_through block of ocibridge.hcl, such as include = [\"registry.acme.internal:%[1]s/*/*\"], or in the providers.v1 URL of a host block of the CLI configuration", port)
}

// hostService is a service of a host, such as providers.v1.
type hostService struct{ host, id string }

// addService allows the port that a named host's own discovery document gives for a service. It
// replaces the port from the previous document. If the service is on another host, addService
// allows no port.
func (g *Guard) addService(id string, host, base *url.URL) {
	if !g.named(host.Hostname(), portOf(host)) {
		return
	}
	key := hostService{canonical(host.Host), id}
	if canonical(base.Hostname()) != canonical(host.Hostname()) {
		g.services.Delete(key)
		return
	}
	g.services.Store(key, net.JoinHostPort(canonical(base.Hostname()), portOf(base)))
}

// hasServices reports whether [Guard.addService] allowed the port.
func (g *Guard) hasServices(host, port string) (found bool) {
	at := net.JoinHostPort(canonical(host), port)
	g.services.Range(func(_, service any) bool {
		found = service == at
		return !found
	})
	return found
}

// special lists the address ranges that are not public, but that no method of package
// netip recognizes. They come from IANA's registries of special-purpose addresses,
// except for one address that only looks public.
var special = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("100.64.0.0/10"), "shared by a carrier's customers"},
	{netip.MustParsePrefix("168.63.129.16/32"), "a cloud's metadata address"}, // Azure's, on every virtual network
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

// unicast contains all IPv6 addresses that are assigned for use on the internet.
var unicast = netip.MustParsePrefix("2000::/3")

// embedding lists the IPv6 ranges that embed an IPv4 address, and its offset in bytes.
var embedding = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("::/96"), 12},
	{netip.MustParsePrefix("64:ff9b::/96"), 12}, // NAT64
	{netip.MustParsePrefix("2002::/16"), 2},     // 6to4
}

// notPublic returns the reason why an address is not public, or "" if it is public.
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

// embedded returns the IPv4 address that an IPv6 address embeds.
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

// errLocal means that an origin on another machine refers its clients to this machine, or to its
// local link, where clouds have their metadata services.
var errLocal = errors.New("an origin on another machine refers to it")

// metadata lists the addresses of cloud metadata services that are not link-local.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),   // Amazon
	netip.MustParseAddr("fd20:ce::254"),    // Google
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("192.0.0.192"),     // Oracle
	netip.MustParseAddr("168.63.129.16"),   // Azure; it looks public
}

// NewLenientGuard returns a guard for requests on behalf of a local user, who may contact every
// host. It stops an origin on another machine from leading the client to this machine or to its
// local link, by an address, a redirect or a DNS name. The origins themselves, and hosts for which
// named returns true, may have local addresses. Addresses in private networks are allowed.
func NewLenientGuard(named func(host, port string) bool) *Guard {
	return &Guard{named: named, lenient: true}
}

// isNamed reports whether a host may have any address. A lenient guard also returns true for a
// host whose text shows that it is local. The URL of such a host has passed checkLocalReference,
// so the origin that refers to it is local, too.
func (g *Guard) isNamed(host, port string) bool {
	if g.named(host, port) || g.hasServices(host, port) {
		return true
	}
	if !g.lenient {
		return false
	}
	_, asked := g.asked.Load(canonical(host))
	return asked || isLocal(host)
}

// recordAsked makes a lenient guard allow any address for a host, because the user requests the
// host's providers, or because the host is the user's mirror.
func (g *Guard) recordAsked(host string) {
	if g != nil && g.lenient {
		g.asked.Store(canonical(host), true)
	}
}

// checkService checks the URL that the discovery document of a host gives for a service. It
// allows every URL with a host and port that the user named. It also calls [Guard.addService].
func (g *Guard) checkService(id string, from, to *url.URL) error {
	if g == nil {
		return nil
	}
	g.addService(id, from, to)
	if g.named(to.Hostname(), portOf(to)) {
		return nil
	}
	return checkLocalReference(from, to)
}

// checkLocalAddress returns an error if the address belongs to this machine or to its local link.
func checkLocalAddress(ip netip.Addr) error {
	if !isLocalAddress(ip) {
		return nil
	}
	return hint.Wrap(fmt.Errorf("%s: %w", ip, errLocal),
		"that is this machine, or what is next to it: ask the operator of the origin; if it is meant, a host block of the CLI configuration whose providers.v1 or modules.v1 URL has that host says so")
}

// checkLocalReference checks a URL in a document or a redirect of an origin. It returns an error
// if the text of the URL's host shows that the host is this machine or on its local link. Only an
// origin that is itself such a host may refer to one. A [Guard] checks the addresses that host
// names resolve to.
func checkLocalReference(from, to *url.URL) error {
	if !isLocal(to.Hostname()) || isLocal(from.Hostname()) {
		return nil
	}
	return hint.Wrap(fmt.Errorf("%s: %w: %s", redactedURL(to), errLocal, from.Host), "that is this machine, or what is next to it: ask the operator of the origin")
}

func isLocal(host string) bool {
	host = canonical(host)
	if addr, err := netip.ParseAddr(host); err == nil {
		return isLocalAddress(addr)
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	// If the last part is a number, the host is an IP address in a notation that programs parse
	// differently.
	return last == "localhost" || last != "" && strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x")
}

func isLocalAddress(ip netip.Addr) bool {
	ip = ip.WithZone("").Unmap()
	if ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified() || slices.Contains(metadata, ip) {
		return true
	}
	v4, ok := embedded(ip)
	return ok && isLocalAddress(v4)
}

// canonical returns the normal form of a host name.
func canonical(host string) string { return strings.TrimSuffix(strings.ToLower(host), ".") }
