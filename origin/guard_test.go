package origin_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
)

// guarded returns a client with a guard that allows any address for the named hosts, each
// of the form "HOST:PORT".
func guarded(t *testing.T, proxy string, named ...string) *http.Client {
	t.Helper()
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.Proxy = nil
	if proxy != "" {
		u, err := url.Parse(proxy)
		if err != nil {
			t.Fatal(err)
		}
		base.Proxy = http.ProxyURL(u)
	}
	transport := origin.NewGuard(func(host, port string) bool {
		for _, n := range named {
			if n == net.JoinHostPort(host, port) {
				return true
			}
		}
		return false
	}).Transport(base)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// refused is a list of hosts that a guard must refuse. They are in the notation of URLs.
var refused = []string{
	"127.0.0.1", "127.9.8.7", "[::1]", "0.0.0.0", "0.1.2.3", "[::]",
	"10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "[fc00::1]", "[fd00:ec2::254]", "[fec0::1]",
	"169.254.169.254", "169.254.0.1", "[fe80::1]",
	"100.64.0.1", "100.127.255.254", "100.100.100.200", "168.63.129.16", // the networks of carriers, and cloud metadata services
	"192.0.0.192", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
	"224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "[ff02::1]",
	"[::ffff:127.0.0.1]", "[::ffff:a9fe:a9fe]", "[::7f00:1]", // IPv4 in IPv6
	"[64:ff9b::a9fe:a9fe]", "[64:ff9b::10.0.0.1]", "[64:ff9b:1::8.8.8.8]", // NAT64
	"[2002:a9fe:a9fe::1]", "[2002:7f00:1::]", // 6to4
	"[2001::1]", "[2001:db8::1]", "[100::1]", "[3fff::1]", "[5f00::1]", "[::ffff:0:127.0.0.1]", "[4000::1]", "[200::1]",
}

func TestGuardRefusesAddresses(t *testing.T) {
	client := guarded(t, "")
	for _, host := range refused {
		_, err := client.Get("https://" + host + ":1/")
		if !errors.Is(err, origin.ErrPrivate) || !strings.Contains(hint.Of(err), "the pull_through block of ocibridge.hcl") {
			t.Errorf("%s: %v (%s)", host, err, hint.Of(err))
		}
	}
}

// TestGuardLooksAtWhatNamesMean shows that the guard checks the resolved address of a host
// name when it opens a connection.
func TestGuardLooksAtWhatNamesMean(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	if _, err := guarded(t, "").Get("http://localhost:" + port); !errors.Is(err, origin.ErrPrivate) {
		t.Errorf("localhost: %v", err)
	}
	for named, reached := range map[string]bool{"localhost:" + port: true, "localhost:1": false, "127.0.0.1:" + port: false} {
		resp, err := guarded(t, "", named).Get("http://localhost:" + port)
		if err == nil {
			resp.Body.Close()
		}
		if (err == nil) != reached {
			t.Errorf("with %s named: %v", named, err)
		}
	}
}

func TestGuardFollowsNoRedirectElsewhere(t *testing.T) {
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the private address is reached") }))
	defer inside.Close()
	var to string
	outside := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, to, http.StatusFound)
		}
	}))
	defer outside.Close()
	at := outside.Listener.Addr().String()
	for where, want := range map[string]error{
		strings.Replace(inside.URL, "http:", "https:", 1): origin.ErrPrivate,
		"https://169.254.169.254/latest/meta-data/":       origin.ErrPrivate,
		"http://" + at + "/there":                         nil, // see below
		"https://" + at + "/there":                        nil,
	} {
		client := guarded(t, "", at)
		transport := client.Transport.(*http.Transport)
		transport.TLSClientConfig = outside.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		to = where
		resp, err := client.Get(outside.URL)
		switch {
		case err == nil:
			resp.Body.Close()
			if !strings.HasPrefix(where, "https://"+at) {
				t.Errorf("redirected to %s: followed", where)
			}
		case strings.HasPrefix(where, "http://"):
			if !strings.Contains(err.Error(), "leaves https") {
				t.Errorf("redirected to %s: %v", where, err)
			}
		case want == nil || !errors.Is(err, want):
			t.Errorf("redirected to %s: %v", where, err)
		}
	}
}

// TestGuardBehindAProxy shows that the proxy itself may have any address, and that host
// names are checked as text, because the proxy resolves them.
func TestGuardBehindAProxy(t *testing.T) {
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked = append(asked, r.URL.Hostname()) }))
	defer proxy.Close()
	client := guarded(t, proxy.URL, "artifactory.internal:80")
	hosts := append([]string{"localhost", "a.localhost", "LOCALHOST.", "intranet", "printer.local", "metadata.google.internal", "127.1", "0x7f.0x1", "2130706433",
		proxy.Listener.Addr().String()}, refused...)
	for _, host := range hosts {
		if _, err := client.Get("http://" + host + "/"); !errors.Is(err, origin.ErrPrivate) {
			t.Errorf("%s: %v", host, err)
		}
	}
	if len(asked) > 0 {
		t.Fatalf("the proxy received requests for %q", asked)
	}
	for _, host := range []string{"registry.opentofu.org", "artifactory.internal", "8.8.8.8", "[2606:4700::1111]"} {
		resp, err := client.Get("http://" + host + "/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	if strings.Join(asked, " ") != "registry.opentofu.org artifactory.internal 8.8.8.8 2606:4700::1111" {
		t.Errorf("the proxy received requests for %q", asked)
	}
}

// TestGuardKeepsToTheProxysName shows that the guard refuses requests to the proxy's own
// address as an origin, even if these requests do not go through the proxy.
func TestGuardKeepsToTheProxysName(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer proxy.Close()
	through, _ := url.Parse(proxy.URL)
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.Proxy = func(r *http.Request) (*url.URL, error) {
		if r.URL.Host == through.Host {
			return nil, nil
		}
		return through, nil
	}
	transport := origin.NewGuard(func(string, string) bool { return false }).Transport(base)
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	resp, err := client.Get("http://registry.opentofu.org/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if _, err := client.Get(proxy.URL); !errors.Is(err, origin.ErrPrivate) {
		t.Errorf("the proxy as an origin: %v", err)
	}
}

// TestGuardOpensPorts shows which ports of a named host on this machine can be reached if
// the host's documents refer to them. They are the port that the user named, and the port
// that the discovery document gives for the services.
func TestGuardOpensPorts(t *testing.T) {
	for name, tc := range map[string]struct {
		// lead makes the origin refer to the address other, which is another port of the
		// origin's host in most cases. The parameter at is the origin's own address, and
		// the user names its port.
		lead    func(b *bench, at, other string)
		unnamed bool // the user names no host; the discovery document came from a public address
		also    bool // the user also names the other port
		reached bool // the other port is reached
	}{
		"services": {lead: func(b *bench, _, other string) {
			b.answer("/.well-known/terraform.json", doc(`{"providers.v1":"https://`+other+testorigin.ServicePath+`"}`))
		}, reached: true},
		"services of a host that is not named": {lead: func(*bench, string, string) {}, unnamed: true},
		"services on another host": {lead: func(b *bench, _, other string) {
			_, port, _ := net.SplitHostPort(other)
			b.answer("/.well-known/terraform.json", doc(`{"providers.v1":"https://files.acme.example:`+port+testorigin.ServicePath+`"}`))
		}},
		"discovery": {lead: func(b *bench, _, other string) {
			b.answer("/.well-known/terraform.json", redirect("https://"+other+"/.well-known/terraform.json"))
		}},
		"versions": {lead: func(b *bench, _, other string) {
			b.answer("/versions", redirect("https://"+other+testorigin.ServicePath+"acme/widget/versions"))
		}},
		"package": {lead: func(b *bench, _, other string) {
			b.alter(func(m map[string]any) { m["download_url"] = "https://" + other + "/x.zip" })
		}},
		"package, by plain HTTP": {lead: func(b *bench, _, other string) {
			b.alter(func(m map[string]any) { m["download_url"] = "http://" + other + "/x.zip" })
		}},
		"redirect of a package": {lead: func(b *bench, _, other string) {
			b.answer(".zip", redirect("https://"+other+"/x.zip"))
		}},
		"checksums": {lead: func(b *bench, _, other string) {
			b.alter(func(m map[string]any) { m["shasums_url"] = "https://" + other + "/x" })
		}},
		"signature": {lead: func(b *bench, _, other string) {
			b.alter(func(m map[string]any) { m["shasums_signature_url"] = "https://" + other + "/x" })
		}},
		"package on a port that is named": {lead: func(b *bench, _, other string) {
			b.alter(func(m map[string]any) {
				m["download_url"] = "https://" + other + "/files/acme/widget/1.0.0/" + m["filename"].(string)
			})
		}, also: true, reached: true},
		"nowhere else": {lead: func(*bench, string, string) {}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newResolved(t)
			rel := build(t, pgp.For(t, "Acme"), "1.0.0")
			b := &bench{network: n.network, release: rel, origin: testorigin.New(testorigin.Options{}, rel)}
			other, reached := n.serve(host, testorigin.New(testorigin.Options{}, rel))
			at, asked := n.serve(host, b.origin)
			b.asked = asked
			tc.lead(b, at, other)
			named := map[string]bool{at: !tc.unnamed, other: tc.also}
			guard := origin.NewGuard(func(host, port string) bool { return named[net.JoinHostPort(host, port)] })
			transport := guard.Transport(n.ca.HTTPClient().Transport.(*http.Transport))
			defer transport.CloseIdleConnections()
			services, a := origin.NewDiscovery(transport), provider.MustParseAddress(at+"/acme/widget")
			if tc.unnamed {
				services.ForceHostServices(a.ServiceHost(), map[string]any{"providers.v1": "https://" + other + testorigin.ServicePath})
			}
			err := install(t, origin.NewRegistry(origin.RegistryOptions{Transport: transport, Guard: guard, Services: services}), a)
			if name == "nowhere else" || tc.reached {
				if err != nil {
					t.Error(err)
				}
			} else if !errors.Is(err, origin.ErrPrivate) || !strings.Contains(hint.Of(err), "host block") {
				t.Errorf("%v (%s)", err, hint.Of(err))
			}
			if (reached.Count() > 0) != tc.reached {
				t.Errorf("the other port received the requests %+v", reached.Requests())
			}
		})
	}
}

// TestGuardForgetsPorts shows that a host's port is no longer allowed when its discovery
// document names a different port or host.
func TestGuardForgetsPorts(t *testing.T) {
	n := newResolved(t)
	rel := build(t, pgp.For(t, "Acme"), "1.0.0")
	first, _ := n.serve(host, testorigin.New(testorigin.Options{}, rel))
	second, _ := n.serve(host, testorigin.New(testorigin.Options{}, rel))
	b := &bench{network: n.network, release: rel, origin: testorigin.New(testorigin.Options{}, rel)}
	at, asked := n.serve(host, b.origin)
	b.asked = asked
	guard := origin.NewGuard(func(host, port string) bool { return net.JoinHostPort(host, port) == at })
	transport := guard.Transport(n.ca.HTTPClient().Transport.(*http.Transport))
	transport.DisableKeepAlives = true // an open connection would remain usable
	for _, services := range []string{first, second, "files.acme.example"} {
		b.answer("/.well-known/terraform.json", doc(`{"providers.v1":"https://`+services+testorigin.ServicePath+`"}`))
		client := origin.NewRegistry(origin.RegistryOptions{Transport: transport, Guard: guard, Services: origin.NewDiscovery(transport)})
		err := install(t, client, provider.MustParseAddress(at+"/acme/widget"))
		if (err == nil) != (services != "files.acme.example") {
			t.Errorf("services at %s: %v", services, err)
		}
		for _, to := range []string{first, second} {
			resp, err := (&http.Client{Transport: transport}).Get("https://" + to + "/")
			if err == nil {
				resp.Body.Close()
			}
			if (err == nil) != (to == services) {
				t.Errorf("with services at %s, %s: %v", services, to, err)
			}
		}
	}
}
