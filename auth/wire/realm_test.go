package wire

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/challenger"
)

// addressesOf returns a lookup that knows the addresses of registry.test, separated by spaces.
// With none, the name is unknown.
func addressesOf(registry string) lookupFunc {
	return func(_ context.Context, _, host string) (addrs []netip.Addr, _ error) {
		for _, addr := range strings.Fields(registry) {
			addrs = append(addrs, netip.MustParseAddr(addr))
		}
		if host != "registry.test" || len(addrs) == 0 {
			return nil, &net.DNSError{Name: host, IsNotFound: true}
		}
		return addrs, nil
	}
}

func TestTokenServerInAPrivateNetwork(t *testing.T) {
	const nat64Outside = "64:ff9b::93.184.216.34"
	tests := []struct {
		name            string
		registry, realm string // the IP addresses of the registry's host, and the realm in the challenge
		allowed         bool
	}{
		{"both inside", "10.0.0.5", "https://10.0.0.6/token", true},
		{"both inside, in other ranges", "192.168.0.5", "https://172.16.0.6/token", true},
		{"both inside, IPv6", "fd00::5", "https://[fd00::6]/token", true},
		{"both inside, IPv4-mapped", "::ffff:10.0.0.5", "https://[::ffff:10.0.0.6]/token", true},
		{"both inside, NAT64", "64:ff9b::10.0.0.5", "https://[64:ff9b::10.0.0.6]/token", true},
		{"both inside, and a public IPv6 address", "10.0.0.5 2606:2800::5", "https://10.0.0.6/token", true},
		{"both versions inside, IPv4", "10.0.0.5 fd00::5", "https://10.0.0.6/token", true},
		{"both versions inside, IPv6", "10.0.0.5 fd00::5", "https://[fd00::6]/token", true},
		{"token server outside", "10.0.0.5", "https://93.184.216.34/token", true},
		{"both outside", "93.184.216.34", "https://93.184.216.35/token", true},
		{"both outside, NAT64", nat64Outside, "https://[64:ff9b::93.184.216.35]/token", true},
		{"registry outside", "93.184.216.34", "https://10.0.0.6/token", false},
		{"registry outside, IPv6", "2606:2800::5", "https://[fd00::6]/token", false},
		{"registry outside, IPv4-mapped", "93.184.216.34", "https://[::ffff:10.0.0.6]/token", false},
		{"registry outside, NAT64", nat64Outside, "https://[64:ff9b::10.0.0.6]/token", false},
		{"inside by IPv4 only", "10.0.0.5", "https://[fd00::6]/token", false},
		{"inside by IPv6 only", "fd00::5", "https://10.0.0.6/token", false},
		{"inside by NAT64 only", "64:ff9b::10.0.0.5", "https://[fd00::6]/token", false},
		{"metadata service", "10.0.0.5", "https://169.254.169.254/token", false},
		{"metadata service, IPv4-mapped", "10.0.0.5", "https://[::ffff:169.254.169.254]/token", false},
		{"metadata service, NAT64", "10.0.0.5", "https://[64:ff9b::169.254.169.254]/token", false},
		{"metadata service, NAT64 of this network", "10.0.0.5", "https://[64:ff9b:1::169.254.169.254]/token", false},
		{"metadata service of Amazon, from IPv4", "10.0.0.5", "https://[fd00:ec2::254]/token", false},
		{"metadata service of Amazon, from IPv6", "fd00::5", "https://[fd00:ec2::254]/token", false},
		{"metadata service of Google", "fd00::5", "https://[fd20:ce::254]/token", false},
		{"metadata service of Oracle", "10.0.0.5", "https://192.0.0.192/token", false},
		{"metadata service of Azure", "10.0.0.5", "https://168.63.129.16/token", false},
		{"metadata service in shared space", "10.0.0.5", "https://100.100.100.200/token", false},
		{"shared space", "10.0.0.5", "https://100.64.0.6/token", false},
		{"site-local", "fd00::5", "https://[fec0::6]/token", false},
		{"this machine", "10.0.0.5", "https://127.0.0.1/token", false},
		{"this machine, IPv6", "fd00::5", "https://[::1]/token", false},
		{"this machine, IPv4-compatible", "10.0.0.5", "https://[::127.0.0.1]/token", false},
		{"inside, and on the link of this machine", "10.0.0.5 169.254.0.5", "https://10.0.0.6/token", false},
		{"inside, and on the link of this machine, NAT64", "10.0.0.5 64:ff9b::169.254.0.5", "https://10.0.0.6/token", false},
		{"inside, and on the link of this machine, IPv6", "10.0.0.5 fe80::5%1", "https://10.0.0.6/token", false},
		{"inside, and in shared space", "10.0.0.5 100.100.100.200", "https://10.0.0.6/token", false},
		{"plain HTTP", "10.0.0.5", "http://10.0.0.6/token", false},
		{"registry that is not in the DNS", "", "https://10.0.0.6/token", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := challenger.New(t, true)
			f.Realm = tt.realm
			c := newClient(Options{Transport: challenger.DialTo(f.Server)}, account{Username: "u", Password: "p"})
			c.lookup = addressesOf(tt.registry)
			r := mustRepository(t, "registry.test/a/x")
			for range 2 {
				err := listTags(t, c, r)
				if (err == nil) != tt.allowed || err != nil && !strings.Contains(hint.Of(err), "token server") {
					t.Fatalf("%v, hint %q", err, hint.Of(err))
				}
			}
			if tt.allowed {
				f.Want(t, "GET /v2/a/x/tags/list", "GET token repository:a/x:pull up", "GET /v2/a/x/tags/list", "GET /v2/a/x/tags/list")
			} else {
				f.Want(t, "GET /v2/a/x/tags/list", "GET /v2/a/x/tags/list")
			}
		})
	}
}

// TestTokenServerThatRedirects shows that a token server may redirect to the same addresses
// that the registry may name as its token server.
func TestTokenServerThatRedirects(t *testing.T) {
	for to, allowed := range map[string]bool{"10.0.0.7": true, "93.184.216.34": true, "[fd00:ec2::254]": false, "169.254.169.254": false} {
		var asked []string
		c := newClient(Options{Transport: roundTripper(func(req *http.Request) *http.Response {
			asked = append(asked, req.URL.Host)
			switch {
			case req.URL.Host == "10.0.0.6":
				return answer(http.StatusTemporaryRedirect, http.Header{"Location": {"https://" + to + "/token"}}, "")
			case req.URL.Path == "/token":
				return tokenOf(8)()
			case req.Header.Get("Authorization") == "":
				return answer(http.StatusUnauthorized, http.Header{"Www-Authenticate": {`Bearer realm="https://10.0.0.6/token"`}}, "")
			}
			return answer(http.StatusOK, http.Header{"Content-Type": {"application/json"}}, `{"name":"a/x","tags":[]}`)
		})}, account{})
		c.lookup = addressesOf("10.0.0.5")
		r := mustRepository(t, "registry.test/a/x")
		err := listTags(t, c, r)
		if (err == nil) != allowed || slices.Contains(asked, to) != allowed || err != nil && !strings.Contains(hint.Of(err), "token server") {
			t.Errorf("to %s: %v (hint %q), after requests to %q", to, err, hint.Of(err), asked)
		}
	}
}

// TestRegistryIsLookedUp shows that the registry's addresses are looked up for another
// host's token server only, and within the request's context.
func TestRegistryIsLookedUp(t *testing.T) {
	for realm, want := range map[string]int{"https://registry.test/token": 0, "https://10.0.0.6/token": 1} {
		f := challenger.New(t, true)
		f.Realm = realm
		c := newClient(Options{Transport: challenger.DialTo(f.Server)}, account{})
		looked := 0
		ctx, cancel := context.WithCancel(t.Context())
		c.lookup = func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
			looked++
			if _, ok := ctx.Deadline(); !ok {
				t.Error("a lookup has no deadline")
			}
			cancel()
			<-ctx.Done()
			return nil, ctx.Err()
		}
		repo := mustOpen(t, c, mustRepository(t, "registry.test/a/x"))
		err := repo.Tags(ctx, "", func([]string) error { return nil })
		if cancel(); looked != want || (err == nil) != (want == 0) {
			t.Errorf("%s: %v after %d lookups", realm, err, looked)
		}
	}
}
