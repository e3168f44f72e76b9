package wire

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"oras.land/oras-go/v2/registry/remote/auth"
)

// realmRule decides which addresses the token server of a registry may have. oras-go refuses
// a token server at a blocked address, unless the token server has the registry's own host
// name. It looks up the host names of token servers, and follows no redirect of a token
// request to a blocked address.
//
// Private addresses are blocked, because a registry on the internet must not make the client send
// a credential to a server that only the client can reach. But a registry at private addresses
// may name a token server at a private address of the same IP version, as self-hosted GitLab does:
// registry.gitlab.example.com refers its clients to gitlab.example.com.
//
// All other special addresses are always blocked: loopback, link-local, unspecified and shared
// addresses (RFC 6598), and the metadata services of clouds. Some of these have private IPv6
// addresses.
type realmRule struct{ lookup lookupFunc }

// lookupFunc is the type of [net.Resolver.LookupNetIP].
type lookupFunc = func(ctx context.Context, network, host string) ([]netip.Addr, error)

// blockedRealmsKey is the context key of a *[]netip.Prefix: the list of blocked addresses that the
// [auth.Client] of the request reads.
type blockedRealmsKey struct{}

// bearerRealm matches a bearer challenge, and finds its realm.
var bearerRealm = regexp.MustCompile(`(?i)^\s*bearer\s(?:.*?\brealm="([^"]+))?`)

// lookupTimeout limits the lookup of the registry's addresses. Behind a proxy, the client's DNS
// may not know the registry.
const lookupTimeout = 5 * time.Second

// choose implements [check]. When a registry asks for a token, choose replaces the list of blocked
// addresses in the request's context, before oras-go reads the list. It makes no lookup if the
// token server has the registry's own host name.
func (r realmRule) choose(req *http.Request, resp *http.Response) error {
	blocked, ok := req.Context().Value(blockedRealmsKey{}).(*[]netip.Prefix)
	m := bearerRealm.FindStringSubmatch(resp.Header.Get("Www-Authenticate"))
	if !ok || m == nil || resp.StatusCode != http.StatusUnauthorized || wantsToken(req) {
		return nil
	}
	host := firstOf(req).URL.Hostname()
	if realm, err := url.Parse(m[1]); err == nil && strings.EqualFold(realm.Hostname(), host) {
		return nil
	}
	*blocked = blockedRealms(r.addresses(req.Context(), host))
	return nil
}

// addresses returns the addresses of a host, or nil if they are unknown.
func (r realmRule) addresses(ctx context.Context, host string) []netip.Addr {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	addrs, err := r.lookup(ctx, "ip", host)
	if err != nil {
		return nil
	}
	return addrs
}

// alwaysBlocked lists the addresses that no token server may have.
var alwaysBlocked = append(auth.DefaultBlockedRealmPrefixes(),
	netip.MustParsePrefix("100.64.0.0/10"),  // shared (RFC 6598); Alibaba Cloud has its metadata service there
	netip.MustParsePrefix("192.0.0.0/24"),   // IETF protocol assignments; Oracle Cloud has its metadata service there
	netip.MustParsePrefix("::/96"),          // IPv4-compatible, deprecated
	netip.MustParsePrefix("64:ff9b:1::/48"), // translated locally (RFC 8215), to any IPv4 address
	netip.MustParsePrefix("fec0::/10"),      // site-local, deprecated
)

// blockedRealms returns the addresses that the token server of a registry with the given addresses
// must not have. If an address of the registry is always blocked, or if the registry has no
// address, it also blocks all private addresses.
func blockedRealms(registry []netip.Addr) []netip.Prefix {
	blocked := slices.Clone(alwaysBlocked)
	private4, private6 := false, false
	for _, addr := range registry {
		addr = translated(addr)
		if slices.ContainsFunc(alwaysBlocked, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			return append(blocked, auth.PrivateRealmPrefixes()...)
		}
		private4 = private4 || addr.IsPrivate() && addr.Is4()
		private6 = private6 || addr.IsPrivate() && addr.Is6()
	}
	return append(blocked, slices.DeleteFunc(auth.PrivateRealmPrefixes(), func(p netip.Prefix) bool {
		return p.Addr().Is4() && private4 || p.Addr().Is6() && private6
	})...)
}

// nat64 contains the addresses that DNS64 makes of IPv4 addresses in networks with IPv6 only.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// translated returns the IPv4 address in an IPv4-mapped address or a NAT64 address. oras-go
// does the same with the addresses of token servers. translated returns other addresses without
// their zone.
func translated(addr netip.Addr) netip.Addr {
	addr = addr.WithZone("").Unmap()
	if !nat64.Contains(addr) {
		return addr
	}
	b := addr.As16()
	v4, _ := netip.AddrFromSlice(b[12:]) // fails only for other lengths
	return v4
}
