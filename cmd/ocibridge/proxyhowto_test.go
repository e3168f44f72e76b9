package main

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/howto"
	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tunnel"
)

// TestProxyHowTo runs docs/howto/proxy.md. GHCR and the origin have their real names, which only the proxy can
// resolve. The CA of the proxy signs their certificates, as a proxy does that inspects TLS.
func TestProxyHowTo(t *testing.T) {
	home := t.TempDir()
	ca := tlsca.For(t)
	file, err := ca.WriteFile(home)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file, filepath.Join(home, "corporate-ca.pem")); err != nil {
		t.Fatal(err)
	}
	proxy := &forwardProxy{login: "ci:p@ssw0rd", to: map[string]string{}}
	for name, handler := range map[string]http.Handler{
		"ghcr.io":               registryOf(t, "ghcr"),
		"registry.opentofu.org": testorigin.New(testorigin.Options{}, releasesOf(t, "random", "3.7.1", "3.7.2")...),
	} {
		proxy.to[name+":443"] = startTLS(t, ca, name, handler)
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	gateway := freePort(t)
	howto.Run{
		Page: "proxy",
		Replace: []string{
			"proxy.example.com:3128", server.Listener.Addr().String(),
			"providers.example.com:8443", "localhost:" + gateway, "providers.example.com", "localhost",
		},
		Fails: []string{"doctor ghcr.io", "doctor --template"},
		Dir:   home, Env: []string{"GHCR_TOKEN=pass-w0rd", "SSL_CERT_DIR=" + t.TempDir()},
	}.Do(t)
	proxy.mu.Lock()
	defer proxy.mu.Unlock()
	if want := []string{"ghcr.io:443", "registry.opentofu.org:443"}; !slices.Equal(slices.Compact(slices.Sorted(slices.Values(proxy.connected))), want) {
		t.Errorf("the proxy connected to %q, want %q", proxy.connected, want)
	}
}

// forwardProxy is a forward proxy that wants a login.
type forwardProxy struct {
	login string            // USER:PASSWORD
	to    map[string]string // addresses on the loopback interface, by HOST:PORT

	mu        sync.Mutex
	connected []string // HOST:PORT of each connection
}

func (p *forwardProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Proxy-Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte(p.login)) {
		w.Header().Set("Proxy-Authenticate", `Basic realm="proxy"`)
		http.Error(w, "log in", http.StatusProxyAuthRequired)
		return
	}
	to := p.to[r.Host]
	if r.Method != http.MethodConnect || to == "" {
		http.Error(w, "no such host", http.StatusBadGateway)
		return
	}
	p.mu.Lock()
	p.connected = append(p.connected, r.Host)
	p.mu.Unlock()
	tunnel.Connect(w, to)
}
