package originclient

import (
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/clients/cliconfig"
	"github.com/ocibridge/ocibridge/internal/test/testkit/dns"
	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tunnel"
	realorigin "github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
)

// TestOriginsOfPushesLeadNowhereInside shows that a guard checks the connections of
// both kinds of clients: the client of a push or sync, and the client of pull-through.
// An origin cannot refer them to this machine.
func TestOriginsOfPushesLeadNowhereInside(t *testing.T) {
	dns.Default()
	transport := http.DefaultTransport
	defer func() { http.DefaultTransport = transport }()
	ca := tlsca.For(t)
	http.DefaultTransport = ca.HTTPClient().Transport

	asked := 0
	to := ""
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/.well-known/terraform.json" && strings.HasPrefix(r.Host, "registry.") {
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		asked++
	}))
	var err error
	if s.TLS, err = ca.ServerConfig("registry.acme.example", "files.acme.example"); err != nil {
		t.Fatal(err)
	}
	s.StartTLS()
	defer s.Close()
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	to = "https://files.acme.example:" + port + "/"
	user := userWith(&cliconfig.Config{})
	client := user.Registry()
	_, err = client.Versions(t.Context(), provider.MustParseAddress("registry.acme.example:"+port+"/acme/widget"))
	if err == nil || !strings.Contains(err.Error(), "an origin on another machine refers to it") || asked > 0 {
		t.Errorf("a push: %v, after %d requests", err, asked)
	}
	pulls := user.Pull(nil, "1.1 test")
	_, err = pulls.Versions(t.Context(), provider.MustParseAddress("registry.acme.example:"+port+"/acme/widget"))
	if err == nil || !strings.Contains(err.Error(), "its address is not public") || asked > 0 {
		t.Errorf("a pull-through: %v, after %d requests", err, asked)
	}
}

// TestPullThroughStaysAtThePorts shows which ports of a host in a private network
// pull-through may contact. An include pattern allows the port in the pattern, and a
// pattern without a port allows port 443. In the test, a proxy forwards requests for
// port 443. The host redirects downloads to another port. Only a pattern with that port
// or a host block allows it.
func TestPullThroughStaysAtThePorts(t *testing.T) {
	dns.Default()
	before := http.DefaultTransport
	defer func() { http.DefaultTransport = before }()
	ca := tlsca.For(t)
	serve := func(h http.Handler) (port string) {
		s := httptest.NewUnstartedServer(h)
		var err error
		if s.TLS, err = ca.ServerConfig("registry.acme.example"); err != nil {
			t.Fatal(err)
		}
		s.StartTLS()
		t.Cleanup(s.Close)
		_, port, err = net.SplitHostPort(s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return port
	}
	rel := release.For(t, release.Spec{Host: "registry.acme.example", Namespace: "acme", Type: "widget", Version: "1.0.0",
		Signer: pgp.For(t, "Acme"), Contents: []release.Content{{OS: "linux", Arch: "amd64"}}})
	asked := 0
	files := origin.New(origin.Options{}, rel)
	other := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		files.ServeHTTP(w, r)
	}))
	registry := origin.New(origin.Options{}, rel)
	registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, ".zip") {
			return false
		}
		http.Redirect(w, r, "https://registry.acme.example:"+other+r.URL.Path, http.StatusFound)
		return true
	})
	standard := serve(registry)
	transport := ca.HTTPClient().Transport.(*http.Transport)
	proxy := tunnelTo(t, "127.0.0.1:"+standard)
	transport.Proxy = func(r *http.Request) (*url.URL, error) {
		if r.URL.Port() == "" {
			return proxy, nil
		}
		return nil, nil
	}
	http.DefaultTransport = transport

	for _, tc := range []struct {
		name    string
		block   string // the URL in a host block; "" means no host block
		include string
		reached bool
	}{
		{"include", "", "registry.acme.example/acme/*", false},
		{"include, and another port of it", "", "registry.acme.example:1/acme/*", false},
		{"include of the port", "", "registry.acme.example:" + other + "/acme/*", true},
		{"a host block", "https://registry.acme.example:" + other + "/", "registry.acme.example/acme/*", true},
	} {
		asked = 0
		cli := &cliconfig.Config{}
		if tc.block != "" {
			cli = hostBlock(t, "files.acme.example", tc.block)
		}
		pulls := userWith(cli).Pull(patterns("registry.acme.example/acme/*", tc.include), "1.1 test")
		a := provider.MustParseAddress("registry.acme.example/acme/widget")
		l, err := pulls.Versions(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		r, err := pulls.Release(t.Context(), a, l, l.Versions[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _, err := r.Packages[0].Open(t.Context())
		if err == nil {
			body.Close()
		}
		if (err == nil) != tc.reached || (asked > 0) != tc.reached {
			t.Errorf("%s: %v, after %d requests", tc.name, err, asked)
		}
		if !tc.reached && (!errors.Is(err, realorigin.ErrPrivate) || !strings.Contains(hint.Of(err), ":"+other+"/*/*") || !strings.Contains(hint.Of(err), "host block")) {
			t.Errorf("%s: %v (%s)", tc.name, err, hint.Of(err))
		}
	}
}

// userWith returns a user with the given CLI configuration and no .netrc.
func userWith(cli *cliconfig.Config) User {
	return User{CLI: cli, Netrc: realorigin.Netrc{Getenv: func(string) string { return "" }, ReadFile: os.ReadFile, GOOS: "linux"}}
}

// hostBlock returns a CLI configuration with a host block that sets providers.v1 of the
// host to url.
func hostBlock(t *testing.T, host, url string) *cliconfig.Config {
	t.Helper()
	text := "host \"" + host + "\" {\n  services = {\n    \"providers.v1\" = \"" + url + "\"\n  }\n}\n"
	cli, err := cliconfig.Load(cliconfig.Environment{
		Home: t.TempDir(), GOOS: "linux", Getenv: func(string) string { return "" },
		Environ: func() []string { return nil },
		ReadDir: func(string) ([]fs.DirEntry, error) { return nil, fs.ErrNotExist },
		ReadFile: func(name string) ([]byte, error) {
			if filepath.Base(name) != ".terraformrc" {
				return nil, fs.ErrNotExist
			}
			return []byte(text), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(cli.Services()[svchost.Hostname(host)]) == 0 {
		t.Fatal("the host block is not read")
	}
	return cli
}

// tunnelTo starts a proxy that connects every CONNECT request to the same address. It
// returns the URL of the proxy.
func tunnelTo(t *testing.T, to string) *url.URL {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tunnel.Connect(w, to)
	}))
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
