package main

import (
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/testkit/howto"
	"github.com/ocibridge/ocibridge/internal/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/testkit/tlsca"
)

// TestModulesHowTo runs docs/howto/modules.md with OpenTofu and a registry of distribution.
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
	r := registry.For(t, registry.Options{CertFile: certFile, KeyFile: keyFile})
	out := howto.Run{Page: "modules", Replace: []string{"registry.example.com", r.Host}, Dir: home, Env: []string{"SSL_CERT_FILE=" + caFile, "TF_CLI_ARGS=-no-color"}}.Do(t)
	if !strings.Contains(out.All, "Apply complete!") {
		t.Error(out.All)
	}
}
