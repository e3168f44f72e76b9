package main

import (
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/howto"
	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

// TestDiagnosingHowTo runs docs/howto/diagnosing.md with a registry that behaves like Harbor.
func TestDiagnosingHowTo(t *testing.T) {
	home := t.TempDir()
	ca := tlsca.For(t)
	caFile, err := ca.WriteFile(home)
	if err != nil {
		t.Fatal(err)
	}
	harbor := registryOf(t, "harbor")
	harbor.Create("providers")
	origin := startTLS(t, ca, "localhost", testorigin.New(testorigin.Options{}, releasesOf(t, "random", "3.7.2")...))
	howto.Run{
		Page:    "diagnosing",
		Replace: []string{"harbor.example.com", startTLS(t, ca, "localhost", harbor)},
		Fails:   []string{"ocibridge doctor\n"},
		Dir:     home,
		Env:     []string{"HARBOR_SECRET=pass-w0rd", "SSL_CERT_FILE=" + caFile, "TF_CLI_CONFIG_FILE=" + originConfig(t, origin)},
	}.Do(t)
}
