package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/howto"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

// TestModulesHowTo runs docs/howto/modules.md with OpenTofu, Terraform and a registry of distribution that requires a login.
// Terraform trusts the gateway's CA, and has a token, only where the page says so.
func TestModulesHowTo(t *testing.T) {
	ca, home := tlsca.For(t), t.TempDir()
	cert, err := ca.Issue("localhost")
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile, err := cert.WriteFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	caFile, err := ca.WriteFile(home)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "secret-acme"), []byte(profilePassword), 0o600); err != nil {
		t.Fatal(err)
	}
	r := registry.For(t, registry.Options{CertFile: certFile, KeyFile: keyFile, Users: map[string]string{"acme": profilePassword}})
	out := howto.Run{
		Page: "modules", Replace: []string{"registry.example.com", r.Host, "localhost:8443", "localhost:" + freePort(t)}, Dir: home,
		Before: map[string]string{"terraform -chdir=network apply": `sed '/^credentials/,$d' gateway.tfrc > no-token.tfrc
gateway_ca=$HOME/.local/share/ocibridge/ca/ca.pem
refused env TF_CLI_CONFIG_FILE=$PWD/no-token.tfrc SSL_CERT_FILE=$gateway_ca terraform -chdir=network init
refused env TF_CLI_CONFIG_FILE=$PWD/gateway.tfrc terraform -chdir=network init`},
		Fails: []string{"init -upgrade"},
		Env:   []string{"SSL_CERT_FILE=" + caFile, "TF_CLI_ARGS=-no-color"}, // for the registry
	}.Do(t)
	for _, want := range []string{"error looking up module versions: 401", "certificate signed by unknown authority"} {
		if !strings.Contains(strings.Join(strings.Fields(out.All), " "), want) {
			t.Errorf("there is no %q in\n%s", want, out.All)
		}
	}
	if strings.Count(out.All, "Apply complete!") != 2 {
		t.Error(out.All)
	}
}
