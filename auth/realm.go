package auth

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"
)

// realmAliases is a transport that lets a registry in a private network use a token server
// in a private network that has another host name. Self-hosted GitLab needs this:
// registry.gitlab.example.com refers its clients to gitlab.example.com.
//
// oras-go refuses every token server at a private address, unless the token server has the
// registry's own host name. Without this rule, a registry on the internet could make the
// client send credentials to a server that only the client can reach. The rule protects
// nothing if the registry itself is in a private network. In this case, realmAliases
// replaces the realm in the registry's challenge with an alias on the registry's host. It
// sends a request for the alias to the real token server.
//
// realmAliases creates no alias for other special addresses, so oras-go refuses them. These
// are loopback addresses, link-local addresses (where clouds have their metadata services),
// unspecified addresses and shared addresses (RFC 6598).
type realmAliases struct {
	next    http.RoundTripper
	lookup  func(ctx context.Context, network, host string) ([]netip.Addr, error)
	aliases *lru.Cache[string, *url.URL] // from the URL of an alias, without the query, to the realm
}

// maxAliases is the maximum number of aliases. A registry has one or two realms. Evicting an
// alias does little harm: a token request for the alias goes to the registry, which returns
// 404, and the next challenge creates the alias again.
const maxAliases = 64

func newRealmAliases(next http.RoundTripper) *realmAliases {
	aliases, _ := lru.New[string, *url.URL](maxAliases) // fails only for sizes below 1
	return &realmAliases{next: next, lookup: net.DefaultResolver.LookupNetIP, aliases: aliases}
}

// RoundTrip implements [http.RoundTripper].
func (t *realmAliases) RoundTrip(req *http.Request) (*http.Response, error) {
	if real := t.realOf(req.URL); real != nil {
		return t.requestToken(req, real)
	}
	resp, err := t.next.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		t.rewriteChallenge(req, resp)
	}
	return resp, err
}

// requestToken sends a request for an alias to the real token server, and returns the
// response.
func (t *realmAliases) requestToken(req *http.Request, real *url.URL) (*http.Response, error) {
	req = req.Clone(req.Context())
	query := req.URL.RawQuery
	req.URL, req.Host = real, real.Host
	req.URL.RawQuery = query
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("token server %s: %w", real.Host, err)
	}
	if loc, err := resp.Location(); err == nil {
		resp.Header.Set("Location", loc.String()) // the caller would resolve a relative URL against the alias
	}
	return resp, nil
}

var bearerRealm = regexp.MustCompile(`(?i)^(\s*bearer\s.*?\brealm=")([^"]+)(".*)$`)

// rewriteChallenge replaces the realm in the challenge of resp with an alias if both the
// realm and the registry are in a private network. It changes nothing if the realm is on
// the registry's own host.
func (t *realmAliases) rewriteChallenge(req *http.Request, resp *http.Response) {
	m := bearerRealm.FindStringSubmatch(resp.Header.Get("Www-Authenticate"))
	if m == nil {
		return
	}
	realm, err := url.Parse(m[2])
	if err != nil || realm.Scheme != req.URL.Scheme && realm.Scheme != "https" ||
		strings.EqualFold(realm.Hostname(), req.URL.Hostname()) {
		return
	}
	ctx := req.Context()
	if !t.private(ctx, realm.Hostname()) || !t.private(ctx, req.URL.Hostname()) {
		return
	}
	resp.Header.Set("Www-Authenticate", m[1]+t.aliasFor(req.URL, realm)+m[3])
}

// private reports whether the host has at least one private address, and no special address
// such as a loopback or link-local address.
func (t *realmAliases) private(ctx context.Context, host string) bool {
	addrs := []netip.Addr{}
	if addr, err := netip.ParseAddr(host); err == nil {
		addrs = append(addrs, addr)
	} else if addrs, err = t.lookup(ctx, "ip", host); err != nil {
		return false
	}
	private := false
	for _, addr := range addrs {
		addr = addr.Unmap()
		if !addr.IsGlobalUnicast() || sharedSpace.Contains(addr) {
			return false
		}
		private = private || addr.IsPrivate()
	}
	return private
}

// sharedSpace is the shared address space of RFC 6598. Alibaba Cloud has its metadata
// service there.
var sharedSpace = netip.MustParsePrefix("100.64.0.0/10")

// aliasFor returns an alias of the realm: a URL on the registry's host. The path of the
// alias contains a hash of the realm, so an alias never means another realm.
func (t *realmAliases) aliasFor(registry, realm *url.URL) string {
	path := fmt.Sprintf("%s%x", aliasPath, sha256.Sum256([]byte(realm.String())))
	alias := url.URL{Scheme: registry.Scheme, Host: registry.Host, Path: path}
	t.aliases.Add(alias.String(), realm)
	alias.RawQuery = realm.RawQuery // the caller appends parameters to this query
	return alias.String()
}

// aliasPath begins the path of every alias.
const aliasPath = "/.token-server/"

// realOf returns a copy of the realm if u is the URL of an alias. Otherwise it returns nil.
func (t *realmAliases) realOf(u *url.URL) *url.URL {
	if !strings.HasPrefix(u.Path, aliasPath) {
		return nil
	}
	alias := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	realm, ok := t.aliases.Get(alias.String())
	if !ok {
		return nil
	}
	c := *realm
	return &c
}
