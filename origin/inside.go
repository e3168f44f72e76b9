package origin

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// errLocal means that an origin on another machine refers its clients to this machine, or to this
// machine's local link. Clouds have their metadata services on the local link.
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
// host. The guard stops an origin on another machine from leading the client to this machine or
// to its local link. This applies to the addresses, redirects and DNS names that the origin
// sends. The origins themselves, and hosts for which named returns true, may have local
// addresses. Addresses in private networks are allowed.
//
// A proxy resolves host names itself. Behind a proxy, the guard can check only the text of host
// names.
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

// recordAsked records that the user requests providers of a host, or that the host is the user's
// mirror. A lenient guard then allows any address for the host.
func (g *Guard) recordAsked(host string) {
	if g != nil && g.lenient {
		g.asked.Store(canonical(host), true)
	}
}

// checkService checks the URL that the discovery document of a host gives for its services. It
// allows every URL with a host and port that the user named. It also calls [Guard.addService].
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

// checkLocalAddress returns an error if the address belongs to this machine or to its local link.
func checkLocalAddress(ip netip.Addr) error {
	if !isLocalAddress(ip) {
		return nil
	}
	return hint.Wrap(fmt.Errorf("%s: %w", ip, errLocal),
		"that is this machine, or what is next to it: ask the operator of the origin; if it is meant, a host block of the CLI configuration whose providers.v1 URL has that host says so")
}

// checkLocalReference checks a URL in a document or a redirect of an origin. It returns an error
// if the text of the URL's host shows that the host is this machine or is on its local link. An
// origin that is local itself may refer to local hosts. The addresses that host names resolve to
// are checked by a [Guard].
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
