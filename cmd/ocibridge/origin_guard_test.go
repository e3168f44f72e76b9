package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/cliconfig"
	"github.com/ocibridge/ocibridge/internal/testkit/dns"
	"github.com/ocibridge/ocibridge/internal/testkit/tlsca"
	"github.com/ocibridge/ocibridge/provider"
)

// TestOriginsOfPushesLeadNowhereInside: what push, sync and pull-through ask of an
// origin goes through a guard.
func TestOriginsOfPushesLeadNowhereInside(t *testing.T) {
	dns.Default(t)
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
	client := newOrigin(&cliconfig.Config{})
	_, err = client.Versions(t.Context(), provider.MustParseAddress("registry.acme.example:"+port+"/acme/widget"))
	if err == nil || !strings.Contains(err.Error(), "an origin elsewhere leads there") || asked > 0 {
		t.Errorf("a push: %v, after %d requests", err, asked)
	}
	pulls := newPullOrigin(&cliconfig.Config{}, &pulling{via: "1.1 test"})
	_, err = pulls.Versions(t.Context(), provider.MustParseAddress("registry.acme.example:"+port+"/acme/widget"))
	if err == nil || !strings.Contains(err.Error(), "not a public one") || asked > 0 {
		t.Errorf("a pull-through: %v, after %d requests", err, asked)
	}
}
