package origin

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/hint"
)

// errLocal means that an origin on another machine refers its clients to this machine,
// or to its local link, where clouds have their metadata services.
var errLocal = errors.New("an origin on another machine refers to it")

// metadata lists the addresses of cloud metadata services that are not link-local.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),   // Amazon
	netip.MustParseAddr("fd20:ce::254"),    // Google
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("192.0.0.192"),     // Oracle
	netip.MustParseAddr("168.63.129.16"),   // Azure; it looks public
}

// NewLenientGuard returns a guard for requests on behalf of a local user, who may contact
// every host. The guard prevents origins elsewhere from leading the client to this machine
// or to its local link, where clouds have their metadata services, whether by addresses,
// redirects or DNS names. The origins themselves, and hosts for which named returns true,
// are allowed there. Private networks are allowed.
//
// A proxy resolves names itself. Behind a proxy, the guard checks host names only as
// text.
func NewLenientGuard(named func(host, port string) bool) *Guard {
	return &Guard{named: named, lenient: true}
}

// isNamed reports whether a host may have any address. Addresses on this machine are
// allowed here, because checkLocalReference has checked the URL before: an origin that is on this
// machine may refer to it.
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

// recordAsked records a host whose providers the user requests, or the host of a mirror.
func (g *Guard) recordAsked(host string) {
	if g != nil && g.lenient {
		g.asked.Store(canonical(host), true)
	}
}

// checkService checks the URL of a host's services, which the user may have named, and
// allows its port.
func (g *Guard) checkService(from, to *url.URL) error {
	if g == nil {
		return nil
	}
	g.addService(from, to)
	if g.named(to.Hostname(), portOf(to)) {
		return nil
	}
	return checkLocalReference(from, to)
}

// checkLocalAddress refuses to open a connection to an address of this machine or its link.
func checkLocalAddress(ip netip.Addr) error {
	if !isLocalAddress(ip) {
		return nil
	}
	return hint.Wrap(fmt.Errorf("%s: %w", ip, errLocal),
		"that is this machine, or what is next to it: ask the operator of the origin; if it is meant, a host block of the CLI configuration whose providers.v1 URL has that host says so")
}

// checkLocalReference refuses a URL from an origin, in a document or a redirect, if the
// text of its host shows that it is on this machine or its link. An origin that is there
// itself may use such URLs. A [Guard] checks the addresses that names resolve to.
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
	// A number in the last part is an address in a form that programs read differently.
	return last == "localhost" || last != "" && strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x")
}

func isLocalAddress(ip netip.Addr) bool {
	ip = ip.WithZone("").Unmap()
	if ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified() {
		return true
	}
	if slices.Contains(metadata, ip) {
		return true
	}
	v4, ok := embedded(ip)
	return ok && isLocalAddress(v4)
}

// canonical returns the normal form of a host name.
func canonical(host string) string { return strings.TrimSuffix(strings.ToLower(host), ".") }
