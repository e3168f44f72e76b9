package auth

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/test/testkit/ports"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// tlsServer starts a TLS server whose certificate is issued by ca, for localhost and the
// given names. change may modify the server's TLS configuration.
func tlsServer(t *testing.T, ca *tlsca.CA, handler http.HandlerFunc, change func(*tls.Config), names ...string) *httptest.Server {
	t.Helper()
	config, err := ca.ServerConfig(names...)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(config)
	}
	srv := httptest.NewUnstartedServer(handler)
	srv.TLS = config
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv
}

func noTags(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"tags": []}`) }

// dialAll returns a transport that connects to the server that the map has for a
// HOST:PORT.
func dialAll(servers map[string]*httptest.Server) *http.Transport {
	return &http.Transport{
		ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if srv, ok := servers[addr]; ok {
				addr = srv.Listener.Addr().String()
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		},
	}
}

func TestRegistryCAs(t *testing.T) {
	ca := tlsca.For(t)
	servers := map[string]*httptest.Server{
		"registry.test:443":  tlsServer(t, ca, noTags, nil, "registry.test"),
		"registry.test:8443": tlsServer(t, ca, noTags, nil, "registry.test"),
	}
	for _, tt := range []struct {
		name       string
		registries map[ociaddr.Registry]Registry
		host       string
		ok         bool
		cas        []byte // for all registries
	}{
		{name: "no settings", host: "registry.test"},
		{name: "the CA of all registries", host: "registry.test", ok: true, cas: ca.CertPEM()},
		{name: "the CA of all registries, and another of its own", registries: map[ociaddr.Registry]Registry{"registry.test": {CAs: tlsca.For(t).CertPEM()}}, host: "registry.test", ok: true, cas: ca.CertPEM()},
		{name: "its CA, and another of all registries", registries: map[ociaddr.Registry]Registry{"registry.test": {CAs: ca.CertPEM()}}, host: "registry.test", ok: true, cas: tlsca.For(t).CertPEM()},
		{name: "its CA", registries: map[ociaddr.Registry]Registry{"registry.test": {CAs: ca.CertPEM()}}, host: "registry.test", ok: true},
		{name: "its CA, by capitals and default port", registries: map[ociaddr.Registry]Registry{"Registry.test:443": {CAs: ca.CertPEM()}}, host: "registry.test", ok: true},
		{name: "another port's CA", registries: map[ociaddr.Registry]Registry{"registry.test": {CAs: ca.CertPEM()}}, host: "registry.test:8443", ok: false},
		{name: "another CA", registries: map[ociaddr.Registry]Registry{"registry.test": {CAs: tlsca.For(t).CertPEM()}}, host: "registry.test", ok: false},
		{name: "another registry's CA", registries: map[ociaddr.Registry]Registry{"other.test": {CAs: ca.CertPEM()}}, host: "registry.test", ok: false},
		{name: "no verification", registries: map[ociaddr.Registry]Registry{"registry.test": {InsecureSkipVerify: true}}, host: "registry.test", ok: true},
		{name: "no verification of another", registries: map[ociaddr.Registry]Registry{"other.test": {InsecureSkipVerify: true}}, host: "registry.test", ok: false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := New(Options{CAs: tt.cas, Registries: tt.registries, Transport: dialAll(servers), Environment: Environment{GOOS: "linux"}})
			r := mustRepository(t, tt.host+"/a/x")
			err := c.Explain(listTags(t, c, r), r)
			if (err == nil) != tt.ok || err != nil && !strings.Contains(hint.Of(err), "ca_file") {
				t.Errorf("%v (hint %q)", err, hint.Of(err))
			}
		})
	}
}

// TestSystemCAsStayTrusted shows that the CAs of a registry are added to the CAs of the
// system. The test uses a test CA instead of the system's CAs, because a process reads
// those only once.
func TestSystemCAsStayTrusted(t *testing.T) {
	system, own := tlsca.For(t), tlsca.For(t)
	a, b := tlsServer(t, system, noTags, nil), tlsServer(t, own, noTags, nil)
	pool := system.CertPool()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	if !outgoing.Trust(transport, own.CertPEM()) || outgoing.Trust(&http.Transport{}, []byte("no certificate")) {
		t.Error("wrong report of whether there is a certificate")
	}
	client := &http.Client{Transport: transport}
	for _, srv := range []*httptest.Server{a, b} {
		resp, err := client.Get(srv.URL)
		if err != nil {
			t.Error(err)
			continue
		}
		resp.Body.Close()
	}
	if !pool.Equal(system.CertPool()) {
		t.Error("the CAs were added to the system's pool itself")
	}
}

func TestInsecureSkipVerifyWarnsOnce(t *testing.T) {
	srv := tlsServer(t, tlsca.For(t), noTags, nil)
	host := ociaddr.Registry(srv.Listener.Addr().String())
	var out bytes.Buffer
	c := New(Options{
		Registries: map[ociaddr.Registry]Registry{host: {InsecureSkipVerify: true, Origin: "/f.hcl:3"}},
		Log:        slog.New(slog.NewTextHandler(&out, nil)),
	})
	if out.Len() > 0 {
		t.Errorf("warned before it matters: %s", &out)
	}
	for _, name := range []string{"a/x", "b/x", "a/x"} {
		if err := listTags(t, c, mustRepository(t, string(host)+"/"+name)); err != nil {
			t.Fatal(err)
		}
	}
	if s := out.String(); strings.Count(s, "level=WARN") != 1 || !strings.Contains(s, string(host)) || !strings.Contains(s, "/f.hcl:3") {
		t.Errorf("log: %s", s)
	}
}

func TestClientCertificate(t *testing.T) {
	ca := tlsca.For(t)
	clientCert := func(ca *tlsca.CA) *tls.Certificate {
		issued, err := ca.IssueClient("ocibridge")
		if err != nil {
			t.Fatal(err)
		}
		config, err := issued.Config()
		if err != nil {
			t.Fatal(err)
		}
		return &config.Certificates[0]
	}
	good := clientCert(ca)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, tt := range []struct {
			name     string
			settings Registry
			ok       bool
			hint     string
		}{
			{"right", Registry{CAs: ca.CertPEM(), ClientCert: good}, true, ""},
			{"none", Registry{CAs: ca.CertPEM()}, false, "wants a client certificate"},
			{"of another authority", Registry{CAs: ca.CertPEM(), ClientCert: clientCert(tlsca.For(t)), Origin: "/f:1"}, false, "find out which authority it accepts"},
		} {
			t.Run(tls.VersionName(version)+" "+tt.name, func(t *testing.T) {
				srv := tlsServer(t, ca, func(w http.ResponseWriter, r *http.Request) {
					fmt.Fprintf(w, `{"tags": [%q]}`, r.TLS.PeerCertificates[0].Subject.CommonName)
				}, func(config *tls.Config) {
					config.ClientAuth, config.ClientCAs, config.MaxVersion = tls.RequireAndVerifyClientCert, ca.CertPool(), version
				})
				host := ociaddr.Registry(srv.Listener.Addr().String())
				c := New(Options{Registries: map[ociaddr.Registry]Registry{host: tt.settings}, RetryDelay: time.Millisecond})
				r := mustRepository(t, string(host)+"/a/x")
				var tags []string
				err := mustOpen(t, c, r).Tags(t.Context(), "", func(page []string) error { tags = page; return nil })
				err = c.Explain(err, r)
				if (err == nil) != tt.ok || !strings.Contains(hint.Of(err), tt.hint) {
					t.Errorf("%v (hint %q)", err, hint.Of(err))
				}
				if tt.ok && !slices.Equal(tags, []string{"ocibridge"}) {
					t.Errorf("tags %q", tags)
				}
			})
		}
	}
}

// TestSettingsReachNoOtherHost shows which settings of a registry apply to its token
// server and its storage. Only the CAs apply.
func TestSettingsReachNoOtherHost(t *testing.T) {
	ca := tlsca.For(t)
	issued, err := ca.IssueClient("ocibridge")
	if err != nil {
		t.Fatal(err)
	}
	config, err := issued.Config()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{} // from a host to whether the client sent a certificate
	askForCertificate := func(config *tls.Config) { config.ClientAuth = tls.RequestClientCert }
	handler := func(w http.ResponseWriter, r *http.Request) {
		seen[r.Host] = len(r.TLS.PeerCertificates) > 0
		switch {
		case r.Host == "auth.test":
			_, _ = io.WriteString(w, `{"token": "t"}`)
		case r.Host == "storage.test":
			_, _ = io.WriteString(w, "hello")
		case r.Header.Get("Authorization") == "":
			w.Header().Set("Www-Authenticate", `Bearer realm="https://auth.test/token"`)
			w.WriteHeader(http.StatusUnauthorized)
		default:
			http.Redirect(w, r, "https://storage.test/blob", http.StatusTemporaryRedirect)
		}
	}
	servers := map[string]*httptest.Server{}
	for _, host := range []string{"registry.test", "auth.test", "storage.test"} {
		servers[host+":443"] = tlsServer(t, ca, handler, askForCertificate, host)
	}
	fetch := func(registries map[ociaddr.Registry]Registry) error {
		c := New(Options{Registries: registries, Transport: dialAll(servers)})
		body, err := mustOpen(t, c, mustRepository(t, "registry.test/a/x")).Blobs().Fetch(t.Context(), ocispec.Descriptor{Digest: digest.FromString("hello"), Size: 5})
		if err == nil {
			_ = body.Close()
		}
		return err
	}
	if err := fetch(map[ociaddr.Registry]Registry{"registry.test": {CAs: ca.CertPEM(), ClientCert: &config.Certificates[0], MaxConcurrent: 1}}); err != nil {
		t.Error(err)
	}
	if !seen["registry.test"] || seen["auth.test"] || seen["storage.test"] || len(seen) != 3 {
		t.Errorf("shown a certificate: %v", seen)
	}
	if err := fetch(map[ociaddr.Registry]Registry{"registry.test": {InsecureSkipVerify: true}}); err == nil {
		t.Error("the token server's certificate was not verified")
	}
	if err := fetch(map[ociaddr.Registry]Registry{
		"registry.test": {InsecureSkipVerify: true}, "auth.test": {CAs: ca.CertPEM()}, "storage.test": {InsecureSkipVerify: true},
	}); err != nil {
		t.Errorf("with settings of their own: %v", err)
	}
}

func TestPlainHTTPOfOneRegistry(t *testing.T) {
	f := newFakeRegistry(t, false)
	f.basic = map[string]string{"a": "u:p"}
	c := New(Options{
		Registries: map[ociaddr.Registry]Registry{"plain.test:5000": {PlainHTTP: true}},
		Explicit:   []Login{block("plain.test:5000", "u:p"), block("other.test:5000", "u:p")},
		Transport:  dialTo(f.Server),
	})
	if err := listTags(t, c, mustRepository(t, "plain.test:5000/a/x")); err != nil {
		t.Error(err)
	}
	wantRequests(t, f, "GET /v2/a/x/tags/list", "GET /v2/a/x/tags/list")
	if repo := mustOpen(t, c, mustRepository(t, "other.test:5000/a/x")); repo.PlainHTTP {
		t.Error("plain HTTP is used for another registry")
	}
	// The registry's setting does not allow plain HTTP to the token server that the
	// registry names.
	f.basic, f.realm = nil, "http://other.test:5000/token"
	r := mustRepository(t, "plain.test:5000/b/x")
	err := c.Explain(listTags(t, c, r), r)
	if refused := (*PlainHTTPError)(nil); !errors.As(err, &refused) || refused.Host != "other.test:5000" {
		t.Errorf("%v (hint %q)", err, hint.Of(err))
	}
}

func TestTimeout(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer srv.Close() // Close waits for the request that is in progress
	host := ociaddr.Registry(srv.Listener.Addr().String())
	c := New(Options{Registries: map[ociaddr.Registry]Registry{host: {Timeout: 20 * time.Millisecond}}})
	r := mustRepository(t, string(host)+"/a/x")
	err := c.Explain(listTags(t, c, r), r)
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() || !strings.Contains(hint.Of(err), "did not answer in time") {
		t.Errorf("%v (hint %q)", err, hint.Of(err))
	}
}

func TestDerivedTransport(t *testing.T) {
	conns := newConnections(Options{})
	derive := func(s Registry) *http.Transport {
		tr, ok := conns.derive(s).(*http.Transport)
		if !ok || tr.Proxy == nil || !tr.ForceAttemptHTTP2 {
			t.Fatalf("%+v: %+v", s, tr)
		}
		return tr
	}
	if derive(Registry{RequestsPerSecond: 1, MaxConcurrent: 1}) != conns.base {
		t.Error("limits alone must not create a separate transport")
	}
	if tr := derive(Registry{Timeout: 3 * time.Second}); tr.ResponseHeaderTimeout != 3*time.Second || tr.TLSHandshakeTimeout != 3*time.Second {
		t.Errorf("short: %+v", tr)
	}
	if tr := derive(Registry{Timeout: 5 * time.Minute}); tr.ResponseHeaderTimeout != 5*time.Minute || tr.TLSHandshakeTimeout != 10*time.Second {
		t.Errorf("long: %+v", tr)
	}
	if tr := derive(Registry{InsecureSkipVerify: true}); tr.ResponseHeaderTimeout != 60*time.Second || conns.base.(*http.Transport).TLSClientConfig != nil && conns.base.(*http.Transport).TLSClientConfig.InsecureSkipVerify {
		t.Errorf("insecure: %+v", tr)
	}
}

// TestProxyOfTheEnvironment shows that requests to a registry with settings go through the
// proxy in the environment. The test runs itself again in a separate process, because
// net/http reads the proxy variables only once. Without the proxy, the request would fail,
// because the registry's host name does not resolve.
func TestProxyOfTheEnvironment(t *testing.T) {
	if os.Getenv("OCIBRIDGE_TEST_PROXY") != "" {
		c := New(Options{Registries: map[ociaddr.Registry]Registry{"registry.invalid:5000": {PlainHTTP: true, Timeout: 10 * time.Second, MaxConcurrent: 2}}})
		if err := listTags(t, c, mustRepository(t, "registry.invalid:5000/a/x")); err != nil {
			t.Error(err)
		}
		return
	}
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.String())
		w.Header().Set("Connection", "close") // otherwise the other process would keep the connection open
		noTags(w, r)
	}))
	defer proxy.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProxyOfTheEnvironment$")
	cmd.Env = append(os.Environ(), "OCIBRIDGE_TEST_PROXY=1", "HTTP_PROXY="+proxy.URL, "http_proxy="+proxy.URL, "NO_PROXY=", "no_proxy=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if want := []string{"GET http://registry.invalid:5000/v2/a/x/tags/list"}; !slices.Equal(asked, want) {
		t.Errorf("the proxy was asked %q, want %q", asked, want)
	}
}

func TestRegistryValidation(t *testing.T) {
	tests := []struct {
		name     string
		registry ociaddr.Registry
		settings Registry
		want     string
	}{
		{"zero", "ghcr.io", Registry{}, ""},
		{"everything", "harbor.test:8443", Registry{PlainHTTP: true, RequestsPerSecond: 0.5, MaxConcurrent: 3, Timeout: time.Second, CAs: tlsca.For(t).CertPEM()}, ""},
		{"URL", "https://ghcr.io", Registry{}, "invalid registry"},
		{"repository", "ghcr.io/acme", Registry{}, "invalid registry"},
		{"CA file without a certificate", "ghcr.io", Registry{CAs: []byte("hello")}, "ca_file holds no certificate"},
		{"empty CA file", "ghcr.io", Registry{CAs: []byte{}}, "ca_file holds no certificate"},
		{"empty certificate", "ghcr.io", Registry{ClientCert: &tls.Certificate{}}, "client_cert_file holds no certificate"},
		{"negative rate", "ghcr.io", Registry{RequestsPerSecond: -1}, "negative"},
		{"rate that is no number", "ghcr.io", Registry{RequestsPerSecond: math.NaN()}, "no number"},
		{"infinite rate", "ghcr.io", Registry{RequestsPerSecond: math.Inf(1)}, "no number"},
		{"negative concurrency", "ghcr.io", Registry{MaxConcurrent: -1}, "negative"},
		{"negative timeout", "ghcr.io", Registry{Timeout: -1}, "negative"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.settings.Origin = "/f.hcl:9"
			opts := Options{Registries: map[ociaddr.Registry]Registry{tt.registry: tt.settings}}
			err := opts.Validate()
			if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "at /f.hcl:9") || hint.Of(err) == "") {
				t.Errorf("%v (hint %q), want %q", err, hint.Of(err), tt.want)
			}
			if _, cerr := New(opts).Repository(t.Context(), mustRepository(t, "elsewhere.test/a/b")); (cerr == nil) != (err == nil) {
				t.Errorf("a client with it: %v", cerr)
			}
		})
	}
	twice := Options{Registries: map[ociaddr.Registry]Registry{"docker.io": {}, "index.docker.io": {}}}
	if err := twice.Validate(); err == nil || !strings.Contains(err.Error(), "docker.io and index.docker.io, which are one registry") {
		t.Errorf("two for one: %v", err)
	}
	foreign := Options{Transport: &script{}, Registries: map[ociaddr.Registry]Registry{"ghcr.io": {Timeout: 1}}}
	if err := foreign.Validate(); err == nil || !strings.Contains(err.Error(), "*http.Transport") {
		t.Errorf("a transport that cannot be changed: %v", err)
	}
}

func TestDeniedMeansAbsent(t *testing.T) {
	c := New(Options{Registries: map[ociaddr.Registry]Registry{"ghcr.io": {DeniedMeansAbsent: true}, "quay.io": {}}})
	for repository, want := range map[string]bool{"ghcr.io/a/b": true, "GHCR.io/a/b": true, "quay.io/a/b": false, "docker.io/a/b": false} {
		if got := c.Settings(mustRepository(t, repository).Registry).DeniedMeansAbsent; got != want {
			t.Errorf("%s: %t", repository, got)
		}
	}
}

func TestMaxConcurrent(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }))
	defer srv.Close()
	g := newGate(http.DefaultTransport, "h", Registry{MaxConcurrent: 2})
	get := func(ctx context.Context) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, srv.URL, strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		return g.RoundTrip(req)
	}
	var open []*http.Response
	for range 2 {
		resp, err := get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body) // the body is read to its end, but stays open
		open = append(open, resp)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := get(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("a third: %v", err)
		}
	})
	cancel()
	wg.Wait()
	for range 2 { // closing a body twice frees one slot
		_ = open[0].Body.Close()
	}
	resp, err := get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := freeSlots(g.(*gate)); n != 0 {
		t.Errorf("%d slots are free", n)
	}
	_, _ = resp.Body.Close(), open[1].Body.Close()
	srv.Close()
	var held ports.Held
	held.Hold(srv.Listener.Addr().String())
	defer held.Release()
	if _, err := get(t.Context()); err == nil {
		t.Error("no error, although the server is gone")
	}
	if n := freeSlots(g.(*gate)); n != 2 {
		t.Errorf("%d slots are free at the end", n)
	}
}

// freeSlots takes up to 100 free slots of the gate, frees them again, and returns their
// number.
func freeSlots(g *gate) (n int) {
	for n < 100 && g.slots.TryAcquire(1) {
		n++
	}
	g.slots.Release(int64(n))
	return n
}

// TestRequestsPerSecond shows at which time the gate lets each request pass if the caller
// sends requests without pauses.
func TestRequestsPerSecond(t *testing.T) {
	for _, tt := range []struct {
		rate float64
		want []time.Duration // the time from the start until each request is sent
	}{
		{4, []time.Duration{0, 0, 0, 0, 250 * time.Millisecond, 500 * time.Millisecond}},
		{1, []time.Duration{0, time.Second, 2 * time.Second}},
		{0.5, []time.Duration{0, 2 * time.Second, 4 * time.Second}},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(nil, "h", Registry{RequestsPerSecond: tt.rate}).(*gate)
			for range 2 { // after a long pause, a burst has at most the requests of one second
				start := time.Now()
				for i, want := range tt.want {
					if err := g.waitForRate(t.Context()); err != nil {
						t.Fatal(err)
					}
					if got := time.Since(start); got.Round(time.Millisecond) != want {
						t.Errorf("%v a second, request %d: sent after %s, want %s", tt.rate, i, got, want)
					}
				}
				<-time.After(24 * time.Hour)
			}
		})
	}
}

// TestRateWaitWatchesItsContext shows that waitForRate returns when its context is
// cancelled. It also shows that waitForRate fails immediately if the wait would exceed the
// deadline of the context.
func TestRateWaitWatchesItsContext(t *testing.T) {
	for _, rate := range []float64{1, 1e-300} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(nil, "registry.test", Registry{RequestsPerSecond: rate}).(*gate)
			if err := g.waitForRate(t.Context()); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(500*time.Millisecond, cancel)
			if err := g.waitForRate(ctx); !errors.Is(err, context.Canceled) || time.Since(start) != 500*time.Millisecond {
				t.Errorf("%v after %s", err, time.Since(start))
			}
			ctx, cancel = context.WithTimeout(t.Context(), 400*time.Millisecond)
			defer cancel()
			err := g.waitForRate(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 500*time.Millisecond || !strings.Contains(err.Error(), fmt.Sprintf("registry.test would go beyond %v a second", rate)) {
				t.Errorf("%v after %s", err, time.Since(start))
			}
			if rate < 1 {
				return
			}
			// The cancelled waits do not delay the next request.
			if err := g.waitForRate(t.Context()); err != nil || time.Since(start).Round(time.Millisecond) != time.Second {
				t.Errorf("%v, sent after %s", err, time.Since(start))
			}
		})
	}
}

// TestBoundsInAClient shows that a client applies the limits in the settings of a
// registry.
func TestBoundsInAClient(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(noTags))
	defer srv.Close()
	host := srv.Listener.Addr().String()
	c := New(Options{Registries: map[ociaddr.Registry]Registry{ociaddr.Registry(host): {MaxConcurrent: 1, RequestsPerSecond: 1}}})
	r := mustRepository(t, host+"/a/x")
	repo := mustOpen(t, c, r)
	g, ok := c.conns.transport(host, "").(*gate)
	if !ok || g.rate.Limit() != 1 || freeSlots(g) != 1 {
		t.Fatalf("%+v", g)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	var err error
	for range 2 {
		err = repo.Tags(ctx, "", func([]string) error { return nil })
	}
	if err == nil || !strings.Contains(err.Error(), "would go beyond 1 a second") {
		t.Errorf("%v", err)
	}
}
