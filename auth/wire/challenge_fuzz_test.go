package wire

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// FuzzChallenge sends challenges from a registry on the internet or in a private network. No
// challenge may open more addresses to the token server than the registry's own addresses do.
func FuzzChallenge(f *testing.F) {
	for _, s := range []string{
		`Bearer realm="https://10.0.0.6/token",service="s",scope="repository:a/x:pull,push registry:catalog:*"`, `Bearer realm="https://169.254.169.254/token"`, `Bearer realm="https://[fd00::6]/t?a=b"`,
		`Bearer realm="http://10.0.0.6/token"`, `bearer  x=y, REALM="https://10.0.0.5@10.0.0.6/"`, `Basic realm="x"`, `Bearer realm="https://[::ffff:127.0.0.1]/t"`, `Bearer scope="",realm=""`, `Bearer realm="https://100.100.100.200/"`,
	} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, challenge string, inside bool) {
		registry, open := "93.184.216.34", []string{"93.184.216.35", "2606:2800::5"}
		if inside {
			registry, open = "10.0.0.5", append(open, "10.0.0.6", "192.168.0.6")
		}
		blocked := blockedRealms(nil)
		ctx := context.WithValue(t.Context(), blockedRealmsKey{}, &blocked)
		req := (&http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "https", Host: "registry.test", Path: "/v2/a/x/tags/list"}}).WithContext(ctx)
		resp := &http.Response{StatusCode: http.StatusUnauthorized, Header: http.Header{"Www-Authenticate": {challenge}}, Request: req}
		if err := (realmRule{addressesOf(registry)}).choose(req, resp); err != nil || resp.Header.Get("Www-Authenticate") != challenge {
			t.Errorf("%q becomes %q, %v", challenge, resp.Header, err)
		}
		for _, addr := range []string{"10.0.0.6", "192.168.0.6", "fd00::6", "fd00:ec2::254", "169.254.169.254", "100.64.0.6", "127.0.0.1", "93.184.216.35", "2606:2800::5"} {
			ip := netip.MustParseAddr(addr)
			if !slices.ContainsFunc(blocked, func(p netip.Prefix) bool { return p.Contains(ip) }) && !slices.Contains(open, addr) {
				t.Errorf("%q opens %s to a registry at %s", challenge, addr, registry)
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
