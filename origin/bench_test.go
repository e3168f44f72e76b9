package origin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/disco"
	"github.com/opentofu/svchost/svcauth"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
)

const host = "registry.acme.example"

var (
	widget = provider.MustParseAddress(host + "/acme/widget")
	v1     = provider.MustParseVersion("1.0.0")
)

// network maps host names to real servers on the loopback interface. Its clients can
// reach no other host.
type network struct {
	t     *testing.T
	ca    *tlsca.CA
	addrs sync.Map // from "HOST:PORT" to the server's address on this machine
}

func newNetwork(t *testing.T) *network {
	return &network{t: t, ca: tlsca.For(t)}
}

// serve serves a host name over HTTPS.
func (n *network) serve(name string, h http.Handler) *recorder.Recorder {
	n.t.Helper()
	rec := recorder.New(h)
	server := httptest.NewUnstartedServer(rec)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // some tests break handshakes on purpose
	var err error
	if server.TLS, err = n.ca.ServerConfig(name); err != nil {
		n.t.Fatal(err)
	}
	server.StartTLS()
	n.t.Cleanup(server.Close)
	n.addrs.Store(name+":443", server.Listener.Addr().String())
	return rec
}

// servePlain serves a host name over plain HTTP.
func (n *network) servePlain(name string, h http.Handler) *recorder.Recorder {
	n.t.Helper()
	rec := recorder.New(h)
	server := httptest.NewServer(rec)
	n.t.Cleanup(server.Close)
	n.addrs.Store(name+":80", server.Listener.Addr().String())
	return rec
}

// addr returns the address on this machine that serves "HOST:PORT".
func (n *network) addr(at string) string {
	addr, _ := n.addrs.Load(at)
	return addr.(string)
}

// port returns the port of the address that addr returns.
func (n *network) port(at string) string {
	n.t.Helper()
	_, port, err := net.SplitHostPort(n.addr(at))
	if err != nil {
		n.t.Fatal(err)
	}
	return port
}

// transport returns a transport that connects only to the servers of the network.
func (n *network) transport() http.RoundTripper {
	transport := n.ca.HTTPClient().Transport.(*http.Transport)
	transport.DialContext = func(ctx context.Context, _, addr string) (net.Conn, error) {
		at, ok := n.addrs.Load(addr)
		if !ok {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: addr, IsNotFound: true}}
		}
		return new(net.Dialer).DialContext(ctx, "tcp", at.(string))
	}
	n.t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// client returns a registry client and a discovery client of the network. They have the
// given token for the origin; "" means no token.
func (n *network) client(token string) (*origin.Registry, *disco.Disco) {
	transport := n.transport()
	var options []disco.DiscoOption
	if token != "" {
		options = append(options, disco.WithCredentials(svcauth.StaticCredentialsSource(map[svchost.Hostname]svcauth.HostCredentials{
			host: svcauth.HostCredentialsToken(token),
		})))
	}
	services := origin.NewDiscovery(transport, options...)
	return origin.NewRegistry(origin.RegistryOptions{Transport: transport, Services: services, UserAgent: "ocibridge/test", Via: "1.1 test"}), services
}

// bench is a network with one origin, which has one signed release of widget.
type bench struct {
	*network
	signer  *pgp.Signer
	release *release.Release
	origin  *testorigin.Origin
	asked   *recorder.Recorder // the requests to the origin
	client  *origin.Registry
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{network: newNetwork(t), signer: pgp.For(t, "Acme")}
	b.release = build(t, b.signer, "1.0.0")
	b.origin = testorigin.New(testorigin.Options{}, b.release)
	b.asked = b.serve(host, b.origin)
	b.client, _ = b.network.client("")
	return b
}

// build builds a release of widget for three platforms.
func build(t *testing.T, signer *pgp.Signer, version string) *release.Release {
	t.Helper()
	spec := release.Spec{Host: host, Namespace: "acme", Type: "widget", Version: version, Protocols: []string{"5.0", "6.0"}, Signer: signer}
	for _, p := range []string{"windows_amd64", "linux_amd64", "darwin_arm64"} {
		os, arch, _ := strings.Cut(p, "_")
		spec.Contents = append(spec.Contents, release.Content{OS: os, Arch: arch, Files: map[string][]byte{"terraform-provider-widget_v" + version: []byte(p + version)}})
	}
	return release.For(t, spec)
}

// get reads version 1.0.0 of widget with the given platforms, or with all platforms if
// none is given.
func (b *bench) get(want ...string) (*origin.Release, error) {
	l, err := b.client.Versions(b.t.Context(), widget)
	if err != nil {
		return nil, err
	}
	return b.client.Release(b.t.Context(), widget, l, v1, platforms(want...))
}

// mustGet is get, but fails the test if the release cannot be read.
func (b *bench) mustGet(want ...string) *origin.Release {
	b.t.Helper()
	r, err := b.get(want...)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// answer makes h handle all requests to the origin whose path ends in suffix.
func (b *bench) answer(suffix string, h http.HandlerFunc) {
	b.asked.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, suffix) {
			return false
		}
		h(w, r)
		return true
	})
}

// alter changes the origin's documents about packages before they are sent.
func (b *bench) alter(change func(map[string]any)) { b.alterWith("", change) }

// alterWith is like alter. If list is not "", the origin also sends list as its list of
// versions.
func (b *bench) alterWith(list string, change func(map[string]any)) {
	honest := testorigin.New(testorigin.Options{}, b.release)
	b.asked.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if list != "" && strings.HasSuffix(r.URL.Path, "/versions") {
			doc(list)(w, r)
			return true
		}
		if !strings.Contains(r.URL.Path, "/download/") {
			return false
		}
		rec := httptest.NewRecorder()
		honest.ServeHTTP(rec, r)
		var body map[string]any
		if err := json.Unmarshal(rec.Body.Bytes(), &body); err != nil {
			b.t.Error(err)
		}
		change(body)
		sendJSON(w, body)
		return true
	})
}

func sendJSON(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(body)
}

// text returns a handler that sends the body with the given media type.
func text(mediaType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", mediaType)
		io.WriteString(w, body)
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func platforms(names ...string) (out []provider.Platform) {
	for _, n := range names {
		out = append(out, provider.MustParsePlatform(n))
	}
	return out
}

// names returns the platforms of a release's packages.
func names(r *origin.Release) string {
	var out []string
	for _, p := range r.Packages {
		out = append(out, p.Platform.String())
	}
	return strings.Join(out, " ")
}

const allPlatforms = "darwin_arm64 linux_amd64 windows_amd64"

// read returns the content of a package, and the size that Open returned.
func read(t *testing.T, p origin.Package) (string, int64) {
	t.Helper()
	body, size, err := p.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data), size
}

// checkError checks that an error has the properties that every error must have, and that
// the error and its hint contain the given texts.
func checkError(t *testing.T, err error, says, hintSays string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %q", says)
	}
	if !strings.Contains(err.Error(), says) {
		t.Errorf("error %q does not say %q", err, says)
	}
	if h := hint.Of(err); h == "" || !strings.Contains(h, hintSays) {
		t.Errorf("hint %q does not say %q (of %v)", h, hintSays, err)
	}
	if all := fmt.Sprint(err, hint.Of(err)); strings.ContainsAny(all, "\n\x1b") {
		t.Errorf("not fit for a line: %q", all)
	}
}
