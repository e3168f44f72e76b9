package origin

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/hint"
)

// errInside means that an origin out there sends its clients to this machine or to
// the link that it is on, where clouds have their metadata.
var errInside = errors.New("an origin elsewhere leads there")

// metadata are where clouds have it, beside the link-local addresses.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),   // Amazon
	netip.MustParseAddr("fd20:ce::254"),    // Google
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("192.0.0.192"),     // Oracle
	netip.MustParseAddr("168.63.129.16"),   // Azure: a public address by its look
}

// NewLenientGuard returns a guard for what a user asks for, who may ask anything
// that is reached from here: it refuses this machine and what is on its link, where
// clouds have their metadata, to which origins elsewhere lead by addresses,
// redirects or what their names resolve to. Origins may be there themselves, as
// may what is named; those in private networks are asked like any other.
//
// Behind a proxy, which resolves names itself, hosts are looked at as they are
// written.
func NewLenientGuard(named func(host, port string) bool) *Guard {
	return &Guard{named: named, lenient: true}
}

// isNamed reports whether a host may have any address. What looks inside was judged
// by who leads there, since an origin that is there may do so.
func (g *Guard) isNamed(host, port string) bool {
	if g.named(host, port) || g.hasServices(host, port) {
		return true
	}
	if !g.lenient {
		return false
	}
	_, asked := g.asked.Load(canonical(host))
	return asked || isInside(host)
}

// asks is told of a host that a user asks for providers, or of a mirror.
func (g *Guard) asks(host string) {
	if g != nil && g.lenient {
		g.asked.Store(canonical(host), true)
	}
}

// leads judges where a host has its services, which the user may have named, and
// opens their port.
func (g *Guard) leads(from, to *url.URL) error {
	if g == nil {
		return nil
	}
	g.addService(from, to)
	if g.named(to.Hostname(), portOf(to)) {
		return nil
	}
	return leadsInside(from, to)
}

// throughProxy returns the proxy for a request, and knows it from then on: it may be
// anywhere.
func (g *Guard) throughProxy(proxy func(*http.Request) (*url.URL, error), req *http.Request) (*url.URL, error) {
	if proxy == nil {
		return nil, nil
	}
	through, err := proxy(req)
	if through != nil {
		g.proxies.Store(hostPort(through), true)
	}
	return through, err
}

// checkInside refuses an address that is about to be connected to.
func checkInside(ip netip.Addr) error {
	if !insideAddress(ip) {
		return nil
	}
	return hint.Wrap(fmt.Errorf("%s: %w", ip, errInside),
		"that is this machine, or what is next to it: ask whoever runs the origin; if it is meant, a host block of the CLI configuration whose providers.v1 URL has that host says so")
}

// leadsInside refuses a URL that an origin gives, or redirects to, whose host is
// this machine or on its link by the look of it, unless the origin's own is. What
// names resolve to, a [Guard] looks at.
func leadsInside(from, to *url.URL) error {
	if !isInside(to.Hostname()) || isInside(from.Hostname()) {
		return nil
	}
	return hint.Wrap(fmt.Errorf("%s: %w: %s", shown(to), errInside, from.Host), "that is this machine, or what is next to it: ask whoever runs the origin")
}

func isInside(host string) bool {
	host = canonical(host)
	if addr, err := netip.ParseAddr(host); err == nil {
		return insideAddress(addr)
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	// A number at the end is an address in a form that not all read alike.
	return last == "localhost" || last != "" && strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x")
}

func insideAddress(ip netip.Addr) bool {
	ip = ip.WithZone("").Unmap()
	if ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified() {
		return true
	}
	if slices.Contains(metadata, ip) {
		return true
	}
	v4, ok := embedded(ip)
	return ok && insideAddress(v4)
}

// canonical is a host as others may write it.
func canonical(host string) string { return strings.TrimSuffix(strings.ToLower(host), ".") }
