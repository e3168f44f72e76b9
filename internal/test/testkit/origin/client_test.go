package origin_test

import (
	"fmt"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

// TestRealClientsInstall shows that OpenTofu and Terraform can install from this origin, as they can from a real
// one. They verify the signature, and record the checksums of all platforms in the lock file.
func TestRealClientsInstall(t *testing.T) {
	testkit.WithoutRace(t)
	binaries, err := clients.NullProvider()
	clients.Must(t, err)
	spec := release.Spec{
		Host: "registry.example.com", Namespace: "acme", Type: "null", Version: "3.2.4",
		Signer: pgp.For(t, "Acme Inc"),
	}
	for _, b := range binaries {
		content := release.Content{OS: b.OS, Arch: b.Arch, Files: map[string][]byte{"terraform-provider-null": nil}}
		if b.OS == runtime.GOOS && b.Arch == runtime.GOARCH {
			content.Binary = b.Path // the only package whose program the test runs
		}
		spec.Contents = append(spec.Contents, content)
	}
	rel := release.For(t, spec)

	ca := tlsca.For(t)
	config, err := ca.ServerConfig()
	clients.Must(t, err)
	caFile, err := ca.WriteFile(t.TempDir())
	clients.Must(t, err)
	srv := httptest.NewUnstartedServer(origin.New(origin.Options{}, rel))
	srv.TLS = config
	srv.StartTLS()
	t.Cleanup(srv.Close)

	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		t.Run(client.Name, func(t *testing.T) {
			w := clients.For(t)
			w.TrustCA(caFile)
			clients.Must(t, w.WriteCLIConfig(fmt.Sprintf(
				"host %q {\n services = { \"providers.v1\" = %q }\n}\n", rel.Host, srv.URL+origin.ServicePath)))
			clients.Must(t, w.WriteConfig(fmt.Sprintf(
				"terraform {\n required_providers {\n null = { source = %q }\n }\n}\n", rel.Host+"/acme/null")))
			output := w.MustRun(t, client, "init", "-no-color")
			if !strings.Contains(output, rel.Keys[0].KeyID) {
				t.Errorf("not reported as signed by %s:\n%s", rel.Keys[0].KeyID, output)
			}
			hashes := w.MustLock(t)[rel.Host+"/acme/null"].Hashes
			for _, p := range rel.Packages {
				if !slices.Contains(hashes, "zh:"+p.SHA256) {
					t.Errorf("%s is not locked: %q", p.Filename, hashes)
				}
			}
		})
	}
}
