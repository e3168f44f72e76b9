package main

import (
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/testkit/howto"
	"github.com/ocibridge/ocibridge/internal/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/testkit/tlsca"
)

// TestModulesHowTo runs docs/howto/modules.md with OpenTofu, Terraform and a registry of distribution. The gateway denies the
// version in the end.
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
	out := howto.Run{
		Page: "modules", Replace: []string{"registry.example.com", r.Host, "localhost:8443", "localhost:" + freePort(t)}, Dir: home,
		Before: map[string]string{"terraform -chdir=network apply": "mv ~/.terraformrc rc\nrefused terraform -chdir=network init\nmv rc ~/.terraformrc"},
		After: `sed -i '/^gateway/r deny.hcl' ocibridge.hcl
rm -r network/.terraform
refused ocibridge exec -- terraform -chdir=network init`,
		// The gateway's own CA is in a folder of its own.
		Env: []string{"SSL_CERT_FILE=" + caFile, "SSL_CERT_DIR=" + home + "/.local/share/ocibridge/ca", "TF_CLI_ARGS=-no-color"},
	}.Do(t)
	if strings.Count(out.All, "Apply complete!") != 2 || !strings.Contains(out.All, "it opens port 22: use 1.0.1") {
		t.Error(out.All)
	}
}
