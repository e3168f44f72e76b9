package auth

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// FuzzChallenge rewrites challenges from a registry on the internet or in a private
// network. It checks that the realm is unchanged, so that oras-go judges it, or is on
// the registry's own host. Aliases may exist only for a registry in a private network,
// and must lead to private addresses.
func FuzzChallenge(f *testing.F) {
	for _, s := range []string{
		`Bearer realm="https://10.0.0.6/token",service="s",scope="repository:a/x:pull,push registry:catalog:*"`, `Bearer realm="https://169.254.169.254/token"`, `Bearer realm="https://[fd00::6]/t?a=b"`,
		`Bearer realm="http://10.0.0.6/token"`, `bearer  x=y, REALM="https://10.0.0.5@10.0.0.6/"`, `Basic realm="x"`, `Bearer realm="https://[::ffff:127.0.0.1]/t"`, `Bearer scope="",realm=""`, `Bearer realm="https://100.100.100.200/"`,
	} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, challenge string, inside bool) {
		aliases := newRealmAliases(nil)
		aliases.lookup = func(_ context.Context, _, host string) ([]netip.Addr, error) {
			if host != "registry.test" {
				return nil, &net.DNSError{Name: host, IsNotFound: true}
			}
			if inside {
				return []netip.Addr{netip.MustParseAddr("10.0.0.5")}, nil
			}
			return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
		}
		req := &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "https", Host: "registry.test", Path: "/v2/a/x/tags/list"}}
		resp := &http.Response{StatusCode: http.StatusUnauthorized, Header: http.Header{"Www-Authenticate": {challenge}}, Request: req}
		aliases.rewriteChallenge(req, resp)
		if !inside && (aliases.aliases.Len() > 0 || resp.Header.Get("Www-Authenticate") != challenge) {
			t.Errorf("a registry outside has an alias for %q", challenge)
		}
		for _, real := range aliases.aliases.Values() {
			addr, err := netip.ParseAddr(real.Hostname())
			if err != nil || !addr.Unmap().IsPrivate() || real.Scheme != "https" {
				t.Errorf("%q is an alias of %s", challenge, real)
			}
		}
	})
}

// FuzzLink shows that a registry's link never makes the client request anything other
// than the next page of the same list.
func FuzzLink(f *testing.F) {
	for _, s := range []string{
		`</v2/a/x/tags/list?n=2&last=b>; rel="next"`, `<https://other.example/v2/a/x/tags/list?last=b>; rel="next"`, `<?last=b>`, `</x?last=b>`, `<http://[>`, `<//other.example?x>`, `</v2/p>`, `https://other.example/?x`, `<>`, `<https://u:p@registry.test/v2/a/x/tags/list?x>`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, link string) {
		at := &url.URL{Scheme: "https", Host: "registry.test", Path: "/v2/a/x/tags/list"}
		resp := &http.Response{Header: http.Header{"Link": {link}}, Request: &http.Request{URL: at}}
		if correctLink(resp) != nil {
			return
		}
		target, _, ok := strings.Cut(strings.TrimPrefix(resp.Header.Get("Link"), "<"), ">")
		next, err := at.Parse(target)
		if !ok || err != nil {
			return // oras-go refuses the link
		}
		if next.Scheme != at.Scheme || next.Host != at.Host || next.Path != at.Path {
			t.Errorf("%q leads to %s", link, next)
		}
	})
}
