package main

import (
	"net/http"
	"runtime"
	"testing"

	"github.com/ocibridge/ocibridge/internal/testkit/howto"
	testorigin "github.com/ocibridge/ocibridge/internal/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/testkit/release"
	"github.com/ocibridge/ocibridge/internal/testkit/tlsca"
)

// operatorEnv returns variables for a page that fetches versions of hashicorp/null from their origin.
func operatorEnv(t *testing.T) []string {
	t.Helper()
	ca := tlsca.For(t)
	caFile, err := ca.WriteFile(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	origin := startTLS(t, ca, "localhost", testorigin.New(testorigin.Options{}, nullReleases(t)...))
	return []string{"SSL_CERT_FILE=" + caFile, "TF_CLI_CONFIG_FILE=" + originConfig(t, origin)}
}

// nullReleases returns three releases of hashicorp/null, for this machine's platform and another one.
func nullReleases(t *testing.T) (out []*release.Release) {
	t.Helper()
	signer := pgp.For(t, "Acme")
	for _, v := range []string{"3.2.2", "3.2.3", "3.2.4"} {
		files := map[string][]byte{"terraform-provider-null_v" + v: []byte(v)}
		out = append(out, release.For(t, release.Spec{
			Host: "registry.opentofu.org", Namespace: "hashicorp", Type: "null", Version: v, Signer: signer,
			Contents: []release.Content{{OS: runtime.GOOS, Arch: runtime.GOARCH, Files: files}, {OS: "openbsd", Arch: "386", Files: files}},
		}))
	}
	return out
}

// TestAirGapHowTo runs docs/howto/airgap.md.
func TestAirGapHowTo(t *testing.T) {
	howto.Run{Page: "airgap", Replace: []string{"localhost:8443", "localhost:" + freePort(t)}, Env: operatorEnv(t)}.Do(t)
}

// TestMovingInHowTo runs docs/howto/moving-in.md. A mirror folder behind a web server takes the place of
// Artifactory.
func TestMovingInHowTo(t *testing.T) {
	ca := tlsca.For(t)
	caFile, err := ca.WriteFile(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	origin := startTLS(t, ca, "localhost", testorigin.New(testorigin.Options{}, nullReleases(t)...))
	folder := t.TempDir()
	const path = "/artifactory/api/terraform/providers-remote/providers/"
	mirror := startTLS(t, ca, "localhost", http.StripPrefix(path, http.FileServer(http.Dir(folder))))
	env := []string{"SSL_CERT_FILE=" + caFile, "TF_CLI_CONFIG_FILE=" + originConfig(t, origin), "MIRROR=" + folder}
	howto.Run{
		Page:    "moving-in",
		Replace: []string{"artifactory.example.com", mirror, "localhost:8443", "localhost:" + freePort(t)},
		Before:  map[string]string{"sync --dry-run": mirrorNull},
		Env:     env,
	}.Do(t)
}

// mirrorNull writes a mirror folder of two versions into $MIRROR.
const mirrorNull = `mkdir filled
for version in 3.2.3 3.2.4; do
	sed "s/3.2.3/$version/" main.tf > filled/main.tf
	tofu -chdir=filled providers mirror "$MIRROR"
done`

// TestUpgradeHowTo runs docs/howto/upgrade.md.
func TestUpgradeHowTo(t *testing.T) {
	howto.Run{Page: "upgrade", Replace: []string{"localhost:8443", "localhost:" + freePort(t)}, Env: operatorEnv(t)}.Do(t)
}

// TestRemovingHowTo runs docs/howto/removing.md.
func TestRemovingHowTo(t *testing.T) {
	howto.Run{
		Page: "removing", Replace: []string{"localhost:8443", "localhost:" + freePort(t)}, Fails: []string{"tofu -chdir=client init"},
		Env: operatorEnv(t),
	}.Do(t)
}

// TestDiskHowTo runs docs/howto/disk.md.
func TestDiskHowTo(t *testing.T) {
	howto.Run{Page: "disk", Env: operatorEnv(t)}.Do(t)
}
