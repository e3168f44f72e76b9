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
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/test/testkit/challenger"
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
		registries map[ociaddr.Registry]wire.Settings
		host       string
		ok         bool
		cas        []byte // for all registries
	}{
		{name: "no settings", host: "registry.test"},
		{name: "the CA of all registries", host: "registry.test", ok: true, cas: ca.CertPEM()},
		{name: "the CA of all registries, and another of its own", registries: map[ociaddr.Registry]wire.Settings{"registry.test": {CAs: tlsca.For(t).CertPEM()}}, host: "registry.test", ok: true, cas: ca.CertPEM()},
		{name: "its CA, and another of all registries", registries: map[ociaddr.Registry]wire.Settings{"registry.test": {CAs: ca.CertPEM()}}, host: "registry.test", ok: true, cas: tlsca.For(t).CertPEM()},
		{name: "its CA", registries: map[ociaddr.Registry]wire.Settings{"registry.test": {CAs: ca.CertPEM()}}, host: "registry.test", ok: true},
		{name: "its CA, by capitals and default port", registries: map[ociaddr.Registry]wire.Settings{"Registry.test:443": {CAs: ca.CertPEM()}}, host: "registry.test", ok: true},
		{name: "another port's CA", registries: map[ociaddr.Registry]wire.Settings{"registry.test": {CAs: ca.CertPEM()}}, host: "registry.test:8443", ok: false},
		{name: "another CA", registries: map[ociaddr.Registry]wire.Settings{"registry.test": {CAs: tlsca.For(t).CertPEM()}}, host: "registry.test", ok: false},
		{name: "another registry's CA", registries: map[ociaddr.Registry]wire.Settings{"other.test": {CAs: ca.CertPEM()}}, host: "registry.test", ok: false},
		{name: "no verification", registries: map[ociaddr.Registry]wire.Settings{"registry.test": {InsecureSkipVerify: true}}, host: "registry.test", ok: true},
		{name: "no verification of another", registries: map[ociaddr.Registry]wire.Settings{"other.test": {InsecureSkipVerify: true}}, host: "registry.test", ok: false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := New(Options{Login: login.Options{Environment: login.Environment{GOOS: "linux"}}, Wire: wire.Options{CAs: tt.cas, Registries: tt.registries, Transport: dialAll(servers)}})
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
	c := New(Options{Wire: wire.Options{
		Registries: map[ociaddr.Registry]wire.Settings{host: {InsecureSkipVerify: true, Origin: "/f.hcl:3"}},
		Log:        slog.New(slog.NewTextHandler(&out, nil)),
	}})
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
			settings wire.Settings
			ok       bool
			hint     string
		}{
			{"right", wire.Settings{CAs: ca.CertPEM(), ClientCert: good}, true, ""},
			{"none", wire.Settings{CAs: ca.CertPEM()}, false, "wants a client certificate"},
			{"of another authority", wire.Settings{CAs: ca.CertPEM(), ClientCert: clientCert(tlsca.For(t)), Origin: "/f:1"}, false, "find out which authority it accepts"},
		} {
			t.Run(tls.VersionName(version)+" "+tt.name, func(t *testing.T) {
				srv := tlsServer(t, ca, func(w http.ResponseWriter, r *http.Request) {
					fmt.Fprintf(w, `{"tags": [%q]}`, r.TLS.PeerCertificates[0].Subject.CommonName)
				}, func(config *tls.Config) {
					config.ClientAuth, config.ClientCAs, config.MaxVersion = tls.RequireAndVerifyClientCert, ca.CertPool(), version
				})
				host := ociaddr.Registry(srv.Listener.Addr().String())
				c := New(Options{Wire: wire.Options{Registries: map[ociaddr.Registry]wire.Settings{host: tt.settings}, RetryDelay: time.Millisecond}})
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
	fetch := func(registries map[ociaddr.Registry]wire.Settings) error {
		c := New(Options{Wire: wire.Options{Registries: registries, Transport: dialAll(servers)}})
		body, err := mustOpen(t, c, mustRepository(t, "registry.test/a/x")).Blobs().Fetch(t.Context(), ocispec.Descriptor{Digest: digest.FromString("hello"), Size: 5})
		if err == nil {
			_ = body.Close()
		}
		return err
	}
	if err := fetch(map[ociaddr.Registry]wire.Settings{"registry.test": {CAs: ca.CertPEM(), ClientCert: &config.Certificates[0], MaxConcurrent: 1}}); err != nil {
		t.Error(err)
	}
	if !seen["registry.test"] || seen["auth.test"] || seen["storage.test"] || len(seen) != 3 {
		t.Errorf("shown a certificate: %v", seen)
	}
	if err := fetch(map[ociaddr.Registry]wire.Settings{"registry.test": {InsecureSkipVerify: true}}); err == nil {
		t.Error("the token server's certificate was not verified")
	}
	if err := fetch(map[ociaddr.Registry]wire.Settings{
		"registry.test": {InsecureSkipVerify: true}, "auth.test": {CAs: ca.CertPEM()}, "storage.test": {InsecureSkipVerify: true},
	}); err != nil {
		t.Errorf("with settings of their own: %v", err)
	}
}

func TestPlainHTTPOfOneRegistry(t *testing.T) {
	f := challenger.New(t, false)
	f.Basic = map[string]string{"a": "u:p"}
	c := New(Options{
		Login: login.Options{
			Explicit: []login.Login{block("plain.test:5000", "u:p"), block("other.test:5000", "u:p")},
		},
		Wire: wire.Options{
			Registries: map[ociaddr.Registry]wire.Settings{"plain.test:5000": {PlainHTTP: true}},
			Transport:  challenger.DialTo(f.Server),
		},
	})
	if err := listTags(t, c, mustRepository(t, "plain.test:5000/a/x")); err != nil {
		t.Error(err)
	}
	f.Want(t, "GET /v2/a/x/tags/list", "GET /v2/a/x/tags/list")
	if repo := mustOpen(t, c, mustRepository(t, "other.test:5000/a/x")); repo.PlainHTTP {
		t.Error("plain HTTP is used for another registry")
	}
	// The registry's setting does not allow plain HTTP to the token server that the
	// registry names.
	f.Basic, f.Realm = nil, "http://other.test:5000/token"
	r := mustRepository(t, "plain.test:5000/b/x")
	err := c.Explain(listTags(t, c, r), r)
	if refused := (*wire.PlainHTTPError)(nil); !errors.As(err, &refused) || refused.Host != "other.test:5000" {
		t.Errorf("%v (hint %q)", err, hint.Of(err))
	}
}

func TestTimeout(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer srv.Close() // Close waits for the request that is in progress
	host := ociaddr.Registry(srv.Listener.Addr().String())
	c := New(Options{Wire: wire.Options{Registries: map[ociaddr.Registry]wire.Settings{host: {Timeout: 20 * time.Millisecond}}}})
	r := mustRepository(t, string(host)+"/a/x")
	err := c.Explain(listTags(t, c, r), r)
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() || !strings.Contains(hint.Of(err), "did not answer in time") {
		t.Errorf("%v (hint %q)", err, hint.Of(err))
	}
}

// TestProxyOfTheEnvironment shows that requests to a registry with settings go through the
// proxy in the environment. The test runs itself again in a separate process, because
// net/http reads the proxy variables only once. Without the proxy, the request would fail,
// because the registry's host name does not resolve.
func TestProxyOfTheEnvironment(t *testing.T) {
	if os.Getenv("OCIBRIDGE_TEST_PROXY") != "" {
		c := New(Options{Wire: wire.Options{Registries: map[ociaddr.Registry]wire.Settings{"registry.invalid:5000": {PlainHTTP: true, Timeout: 10 * time.Second, MaxConcurrent: 2}}}})
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
