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

// realmAliases allows a registry in a private network to name a token server in a
// private network under another host name. Self-hosted GitLab does that:
// registry.gitlab.example.com refers its clients to gitlab.example.com.
//
// oras-go refuses every token server at a private address, unless it has the registry's
// own host name. That rule stops a registry on the internet from sending credentials to
// a server that only the client can reach. It protects nothing if the registry itself is
// in the private network. Therefore realmAliases replaces the realm in the registry's
// challenge with an alias on the registry's host, and sends the request for the alias to
// the real token server.
//
// It leaves the other special addresses to oras-go, which refuses them: loopback,
// link-local (with the metadata services of clouds), unspecified and shared ones
// (RFC 6598).
type realmAliases struct {
	next    http.RoundTripper
	lookup  func(ctx context.Context, network, host string) ([]netip.Addr, error)
	aliases *lru.Cache[string, *url.URL] // from the URL of an alias, without its query, to the realm
}

// maxAliases is the maximum number of aliases. A registry has one or two realms. Evicting an
// alias does no harm: a token request through it gets a 404 from the registry, and the next
// challenge creates a new alias.
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

// requestToken sends a request for an alias to the real token server.
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
		resp.Header.Set("Location", loc.String()) // absolute, because the caller would resolve it against the alias
	}
	return resp, nil
}

var bearerRealm = regexp.MustCompile(`(?i)^(\s*bearer\s.*?\brealm=")([^"]+)(".*)$`)

// rewriteChallenge replaces the realm in a challenge with an alias, if oras-go would
// refuse the realm and the registry may use it.
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

// private reports whether the host has a private address, and only private and public
// addresses.
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

// aliasFor returns a URL on the registry's host as an alias of the realm. Its path
// contains a hash of the realm, so an alias never stands for another realm.
func (t *realmAliases) aliasFor(registry, realm *url.URL) string {
	path := fmt.Sprintf("%s%x", aliasPath, sha256.Sum256([]byte(realm.String())))
	alias := url.URL{Scheme: registry.Scheme, Host: registry.Host, Path: path}
	t.aliases.Add(alias.String(), realm)
	alias.RawQuery = realm.RawQuery // the caller appends to it
	return alias.String()
}

// aliasPath begins the path of every alias.
const aliasPath = "/.token-server/"

// realOf returns a copy of the realm that the alias u represents, or nil.
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
