package origin_test

import (
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/opentofu/svchost/disco"

	"github.com/ocibridge/ocibridge/internal/test/testkit/dns"
	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
)

// resolved is a network whose host names resolve to addresses of this machine, so its
// clients can use the normal dialer. Each server has its own port.
type resolved struct {
	*network
	named sync.Map // the "host:port" of hosts that the user has named
}

func newResolved(t *testing.T) *resolved {
	t.Helper()
	dns.Default()
	return &resolved{network: newNetwork(t)}
}

// serve serves a host name, and returns "NAME:PORT".
func (n *resolved) serve(name string, h http.Handler) (string, *recorder.Recorder) {
	n.t.Helper()
	asked := n.network.serve(name, h)
	return net.JoinHostPort(name, n.port(name+":443")), asked
}

// client returns a registry client and a discovery client with a lenient guard, as in a
// push.
func (n *resolved) client() (*origin.Registry, *disco.Disco) {
	n.t.Helper()
	guard := origin.NewLenientGuard(func(host, port string) bool {
		_, named := n.named.Load(net.JoinHostPort(host, port))
		return named
	})
	base := n.ca.HTTPClient().Transport.(*http.Transport)
	base.Proxy = http.ProxyFromEnvironment
	transport := guard.Transport(base)
	n.t.Cleanup(transport.CloseIdleConnections)
	services := origin.NewDiscovery(transport)
	return origin.NewRegistry(origin.RegistryOptions{Transport: transport, Guard: guard, Services: services}), services
}

// TestOriginsLeadNowhereInside shows that the guard checks the resolved addresses of the
// host names that an origin refers to. The origin's own host may have any address.
func TestOriginsLeadNowhereInside(t *testing.T) {
	const refused = "an origin on another machine refers to it"
	for name, tc := range map[string]struct {
		// lead makes the origin refer to the host at the address inside. The parameter at
		// is the origin's own address.
		lead func(b *bench, at, inside string)
		name bool // the user names the host inside
		says string
	}{
		"package": {func(b *bench, _, inside string) {
			b.alter(func(m map[string]any) { m["download_url"] = "https://" + inside + "/x.zip" })
		}, false, refused},
		"package, named": {func(b *bench, _, inside string) {
			b.alter(func(m map[string]any) { m["download_url"] = "https://" + inside + "/x.zip" })
		}, true, ""},
		"package on the origin's own host": {func(*bench, string, string) {}, false, ""},
		"checksums": {func(b *bench, _, inside string) {
			b.alter(func(m map[string]any) { m["shasums_url"] = "https://" + inside + "/x" })
		}, false, refused},
		"redirect": {func(b *bench, _, inside string) { b.answer("/versions", redirect("https://"+inside+"/")) }, false, refused},
		"redirect of discovery": {func(b *bench, _, inside string) {
			b.answer("/.well-known/terraform.json", redirect("https://"+inside+"/"))
		}, false, refused},
		"services": {func(b *bench, _, inside string) {
			b.answer("/.well-known/terraform.json", doc(`{"providers.v1":"https://`+inside+`/v1/providers/"}`))
		}, false, refused},
		"services at an address": {func(b *bench, _, inside string) {
			_, port, _ := net.SplitHostPort(inside)
			b.answer("/.well-known/terraform.json", doc(`{"providers.v1":"https://127.0.0.1:`+port+`/v1/providers/"}`))
		}, false, refused},
		"services at cloud metadata": {func(b *bench, _, _ string) {
			b.answer("/.well-known/terraform.json", doc(`{"providers.v1":"http://169.254.169.254/latest/"}`))
		}, false, refused},
	} {
		t.Run(name, func(t *testing.T) {
			n := newResolved(t)
			rel := build(t, pgp.For(t, "Acme"), "1.0.0")
			b := &bench{network: n.network, release: rel, origin: testorigin.New(testorigin.Options{}, rel)}
			data := rel.Package("linux", "amd64").Data
			inside, reached := n.serve("files.acme.example", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(data) }))
			at, asked := n.serve(host, b.origin)
			b.asked = asked
			if tc.name {
				n.named.Store(inside, true)
			}
			tc.lead(b, at, inside)
			client, _ := n.client()
			err := install(t, client, provider.MustParseAddress(at+"/acme/widget"))
			if tc.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			checkError(t, err, tc.says, "this machine")
			if reached.Count() > 0 {
				t.Errorf("the host inside received the requests %+v", reached.Requests())
			}
		})
	}
}

// install reads the package of version 1.0.0 for linux_amd64.
func install(t *testing.T, source origin.Source, a provider.Address) error {
	t.Helper()
	l, err := source.Versions(t.Context(), a)
	if err != nil {
		return err
	}
	r, err := source.Release(t.Context(), a, l, v1, []provider.Platform{{OS: "linux", Arch: "amd64"}})
	if err != nil {
		return err
	}
	body, _, err := r.Packages[0].Open(t.Context())
	if err == nil {
		body.Close()
	}
	return err
}

// TestServicesThatTheUserNames shows that services and mirrors that the user names may have
// any address.
func TestServicesThatTheUserNames(t *testing.T) {
	n := newResolved(t)
	rel := build(t, pgp.For(t, "Acme"), "1.0.0")
	for _, inside := range []string{"gateway.acme.example", "127.0.0.1", "localhost"} {
		at, asked := n.serve(inside, testorigin.New(testorigin.Options{}, rel))
		n.named.Store(at, true)
		client, services := n.client()
		services.ForceHostServices(widget.ServiceHost(), map[string]any{"providers.v1": "https://" + at + testorigin.ServicePath})
		if err := install(t, client, widget); err != nil || asked.Count() == 0 {
			t.Errorf("%s: %v", inside, err)
		}
	}

	files, reached := n.serve("files.acme.example", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("x")) }))
	for where, refused := range map[string]bool{"https://" + files + "/x.zip": true, "x.zip": false} {
		at, _ := n.serve("mirror.acme.example", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case strings.HasSuffix(r.URL.Path, "/index.json"):
				doc(`{"versions":{"1.0.0":{}}}`)(w, r)
			case strings.HasSuffix(r.URL.Path, "/1.0.0.json"):
				doc(`{"archives":{"linux_amd64":{"url":"`+where+`","hashes":["zh:`+strings.Repeat("0", 64)+`"]}}}`)(w, r)
			}
		}))
		client, _ := n.client()
		mirror := client.NetworkMirror(&url.URL{Scheme: "https", Host: at, Path: "/"})
		if err := install(t, mirror, widget); (err != nil) != refused || refused && !strings.Contains(err.Error(), "an origin on another machine refers to it") {
			t.Errorf("a mirror's package at %s: %v", where, err)
		}
	}
	if reached.Count() > 0 {
		t.Errorf("the host inside received the requests %+v", reached.Requests())
	}
}

// TestOriginsBehindAProxyOnThisMachine shows that requests go through a proxy even if the
// proxy has a local address.
func TestOriginsBehindAProxyOnThisMachine(t *testing.T) {
	n := newResolved(t)
	proxy := recorder.New(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	n.servePlain("proxy.acme.example", proxy)
	base := n.ca.HTTPClient().Transport.(*http.Transport)
	base.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.acme.example:" + n.port("proxy.acme.example:80")})
	transport := origin.NewLenientGuard(func(string, string) bool { return false }).Transport(base)
	defer transport.CloseIdleConnections()
	for _, u := range []string{"http://registry.acme.internal/", "http://10.1.2.3/"} {
		resp, err := (&http.Client{Transport: transport}).Get(u)
		if err != nil {
			t.Errorf("%s: %v", u, err)
			continue
		}
		resp.Body.Close()
	}
	if proxy.Count() != 2 {
		t.Errorf("the proxy received the requests %+v", proxy.Requests())
	}
}
