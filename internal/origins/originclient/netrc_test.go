package originclient

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	realorigin "github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
)

// TestLoginForAllHostsIsForCommandsOnly shows that a push sends the .netrc login for
// all hosts, and pull-through does not. In a pull-through, a client of the gateway may
// have chosen the host.
func TestLoginForAllHostsIsForCommandsOnly(t *testing.T) {
	const host = "registry.acme.example"
	a := provider.MustParseAddress(host + "/acme/widget")
	home := t.TempDir()
	write(t, filepath.Join(home, "netrc"), []byte("default login me password secret\n"))
	netrc := realorigin.Netrc{Home: home, GOOS: "linux", ReadFile: os.ReadFile, Getenv: func(name string) string {
		return map[string]string{"NETRC": filepath.Join(home, "netrc")}[name]
	}}
	files := origin.New(origin.Options{}, release.For(t, release.Spec{
		Host: host, Namespace: "acme", Type: "widget", Version: "1.0.0", Signer: pgp.For(t, "Acme"), Contents: []release.Content{{OS: "linux", Arch: "amd64"}},
	}))
	var logins int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, _, ok := r.BasicAuth(); ok {
			logins++
		}
		files.ServeHTTP(w, r)
	}))
	defer server.Close()
	user := User{CLI: hostBlock(t, host, server.URL+origin.ServicePath), Netrc: netrc}
	for _, tc := range []struct {
		what   string
		origin realorigin.Source
		logins int
	}{
		{"push", user.Registry(), 1},
		{"pull-through", user.Pull(nil, "1.1 ocibridge-own"), 0},
	} {
		logins = 0
		l, err := tc.origin.Versions(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		r, err := tc.origin.Release(t.Context(), a, l, l.Versions[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _, err := r.Packages[0].Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		body.Close()
		if logins != tc.logins {
			t.Errorf("%s: %d requests with the login for all hosts", tc.what, logins)
		}
	}
}
