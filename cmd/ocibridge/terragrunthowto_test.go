package main

import (
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/howto"
	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

// TestTerragruntHowTo runs docs/howto/terragrunt.md, except for Terragrunt itself. Instead, OpenTofu installs in each
// unit.
func TestTerragruntHowTo(t *testing.T) {
	home := t.TempDir()
	ca := tlsca.For(t)
	caFile, err := ca.WriteFile(home)
	if err != nil {
		t.Fatal(err)
	}
	origin := startTLS(t, ca, "localhost", testorigin.New(testorigin.Options{}, releasesOf(t, "random", "3.7.1", "3.7.2")...))
	out := howto.Run{
		Page:    "terragrunt",
		Replace: []string{"providers.example.com:8443", "localhost:" + freePort(t)},
		Before: map[string]string{
			"--for terragrunt":  "touch ocibridge.hcl\n" + tokenGateway("") + "\nexport SSL_CERT_FILE=$PWD/ca.pem",
			"cat >> terragrunt": "refused ocibridge doctor --url https://providers.example.com:8443/providers/",
		},
		After: "cd database && tofu init",
		Dir:   home,
		Env:   []string{"OCIBRIDGE_TOKEN=terragrunt-t0ken", "SSL_CERT_FILE=" + caFile, "TF_CLI_CONFIG_FILE=" + originConfig(t, origin)},
	}.Do(t)
	if !strings.Contains(out.All, "401 Unauthorized") {
		t.Errorf("the gateway requires no token:\n%s", out.All)
	}
}
