package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/ports"
	"github.com/ocibridge/ocibridge/internal/test/testkit/quirks"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

// releasesOf returns releases of registry.opentofu.org/hashicorp/NAME for this machine's platform, signed with one
// key.
func releasesOf(t *testing.T, name string, versions ...string) (out []*release.Release) {
	t.Helper()
	signer := pgp.For(t, "Acme")
	for _, v := range versions {
		out = append(out, release.For(t, release.Spec{
			Host: "registry.opentofu.org", Namespace: "hashicorp", Type: name, Version: v, Signer: signer,
			Contents: []release.Content{{OS: runtime.GOOS, Arch: runtime.GOARCH, Files: map[string][]byte{"terraform-provider-" + name + "_v" + v: []byte(v)}}},
		}))
	}
	return out
}

// originConfig writes a CLI configuration that sends requests for registry.opentofu.org to HOST:PORT, and returns
// the name of its file.
func originConfig(t *testing.T, origin string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "origin.tfrc")
	text := fmt.Sprintf("host \"registry.opentofu.org\" {\n  services = {\n    \"providers.v1\" = \"https://%s%s\"\n  }\n}\n", origin, testorigin.ServicePath)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// freePort returns a port of the loopback interface. The system gives the port only to servers that ask for it.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	var held ports.Held
	held.Hold(l.Addr().String())
	t.Cleanup(held.Release)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// registryOf returns a registry that behaves as the profile of the given name.
func registryOf(t *testing.T, name string) *quirks.Registry {
	t.Helper()
	profiles := quirks.Profiles()
	return quirks.For(t, profiles[slices.IndexFunc(profiles, func(p quirks.Profile) bool { return p.Name == name })].Settings)
}

// startTLS serves a handler with a certificate for a name, and returns the server's HOST:PORT.
func startTLS(t *testing.T, ca *tlsca.CA, name string, handler http.Handler) string {
	t.Helper()
	config, err := ca.ServerConfig(name)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	server.TLS = config
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes of clients that do not trust the certificate fail
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}
