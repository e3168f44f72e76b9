package origin

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/ocibridge/ocibridge/internal/test/testkit/memnet"
)

// TestWatchHosts shows that each request reports the name of its host and the addresses
// that it connects to. A request through a proxy reports only the name.
func TestWatchHosts(t *testing.T) {
	addresses := map[string]string{
		"a.example:80": "198.51.100.1:80", "b.example:80": "[2001:db8:1:2:3::4]:80", "c.example:80": "198.51.100.1:80", "d.example:80": "198.51.100.1:80", "proxy.example:80": "198.51.100.9:80",
	}
	for name, tc := range map[string]struct {
		proxied bool
		urls    []string
		want    []string
	}{
		"an address of IPv4":                    {urls: []string{"http://A.Example./"}, want: []string{"a.example", "a.example 198.51.100.1/32"}},
		"a network of IPv6":                     {urls: []string{"http://b.example/"}, want: []string{"b.example", "b.example 2001:db8:1:2::/64"}},
		"a connection used again":               {urls: []string{"http://a.example/", "http://a.example/"}, want: []string{"a.example", "a.example 198.51.100.1/32", "a.example", "a.example 198.51.100.1/32"}},
		"two names of one address":              {urls: []string{"http://a.example/", "http://c.example/"}, want: []string{"a.example", "a.example 198.51.100.1/32", "c.example", "c.example 198.51.100.1/32"}},
		"an address that is tried":              {urls: []string{"http://d.example/"}, want: []string{"d.example", "d.example 198.51.100.7/32 is tried", "d.example 198.51.100.1/32"}},
		"a redirect":                            {urls: []string{"http://a.example/to-b"}, want: []string{"a.example", "a.example 198.51.100.1/32", "b.example", "b.example 2001:db8:1:2::/64"}},
		"a proxy, whose address is no origin's": {proxied: true, urls: []string{"http://a.example/to-b"}, want: []string{"a.example", "b.example"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := memnet.New()
				handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/to-b" {
						http.Redirect(w, r, "http://b.example/", http.StatusFound)
					}
				})
				var servers []*http.Server
				for _, at := range []string{"198.51.100.1:80", "[2001:db8:1:2:3::4]:80", "198.51.100.9:80"} {
					l, err := n.Listen(at)
					if err != nil {
						t.Fatal(err)
					}
					s := &http.Server{Handler: handler}
					servers = append(servers, s)
					go s.Serve(l)
				}
				transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
					if address == "d.example:80" { // its first address refuses connections
						httptrace.ContextClientTrace(ctx).ConnectStart(network, "198.51.100.7:80")
					}
					if at, ok := addresses[address]; ok {
						address = at
					}
					return n.Dial(ctx, network, address)
				}}
				if tc.proxied {
					transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.example"})
				}
				var mu sync.Mutex
				var got []string
				ctx := WatchHosts(t.Context(), func(host AskedHost) {
					mu.Lock()
					defer mu.Unlock()
					report := host.Name
					if host.Address.IsValid() {
						report += " " + host.Address.String()
					}
					if host.Address.IsValid() && !host.Connected {
						report += " is tried"
					}
					got = append(got, report)
				})
				client := &http.Client{Transport: watchHosts(transport)}
				for _, u := range tc.urls {
					if u == "http://A.Example./" {
						addresses["A.Example.:80"] = addresses["a.example:80"]
					}
					req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
					if err != nil {
						t.Fatal(err)
					}
					resp, err := client.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				transport.CloseIdleConnections()
				for _, s := range servers {
					s.Close()
				}
				if !slices.Equal(got, tc.want) {
					t.Errorf("reported are %q, want %q", got, tc.want)
				}
			})
		})
	}
}

// TestNetworks shows that networkOf returns the same network for every notation of an IPv4
// address. For an IPv6 address, it returns the network that might belong to one machine.
func TestNetworks(t *testing.T) {
	for address, want := range map[string]string{
		"198.51.100.1":          "198.51.100.1/32",
		"::ffff:198.51.100.1":   "198.51.100.1/32",
		"64:ff9b::198.51.100.1": "198.51.100.1/32",
		"2002:c633:6401::7":     "198.51.100.1/32",
		"2001:db8:1:2::1":       "2001:db8:1:2::/64",
		"2001:db8:1:2:ff::":     "2001:db8:1:2::/64",
		"2001:db8:1:3::1":       "2001:db8:1:3::/64",
		"fe80::1%eth0":          "fe80::/64",
	} {
		if got := networkOf(netip.MustParseAddr(address)).String(); got != want {
			t.Errorf("%s counts as %s, want %s", address, got, want)
		}
	}
}
