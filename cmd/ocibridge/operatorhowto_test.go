package main

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/howto"
	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

// operatorEnv returns variables for a page that fetches versions of hashicorp/null and hashicorp/random from
// their origin.
func operatorEnv(t *testing.T) []string {
	t.Helper()
	ca := tlsca.For(t)
	caFile, err := ca.WriteFile(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	releases := append(nullReleases(t), releasesOf(t, "random", "3.7.2")...)
	origin := startTLS(t, ca, "localhost", testorigin.New(testorigin.Options{}, releases...))
	return []string{"SSL_CERT_FILE=" + caFile, "TF_CLI_CONFIG_FILE=" + originConfig(t, origin)}
}

// nullReleases returns three releases of hashicorp/null, for this machine's platform and another one.
func nullReleases(t *testing.T) (out []*release.Release) {
	t.Helper()
	signer := pgp.For(t, "Acme")
	for _, v := range []string{"3.2.2", "3.2.3", "3.2.4"} {
		contents := func(os, arch string) release.Content {
			// The packages of two platforms differ, as in real releases.
			return release.Content{OS: os, Arch: arch, Files: map[string][]byte{"terraform-provider-null_v" + v: []byte(v + os)}}
		}
		out = append(out, release.For(t, release.Spec{
			Host: "registry.opentofu.org", Namespace: "hashicorp", Type: "null", Version: v, Signer: signer,
			Contents: []release.Content{contents(runtime.GOOS, runtime.GOARCH), contents("darwin", "arm64")},
		}))
	}
	return out
}

// TestAirGapHowTo runs docs/howto/airgap.md.
func TestAirGapHowTo(t *testing.T) {
	howto.Run{Page: "airgap", Replace: []string{"localhost:8443", "localhost:" + freePort(t)}, Env: operatorEnv(t)}.Do(t)
}

// TestMovingInHowTo runs docs/howto/moving-in.md. A mirror folder behind a web server that asks for a token for
// its documents takes the place of Artifactory.
func TestMovingInHowTo(t *testing.T) {
	ca := tlsca.For(t)
	caFile, err := ca.WriteFile(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	origin := startTLS(t, ca, "localhost", testorigin.New(testorigin.Options{}, nullReleases(t)...))
	folder := t.TempDir()
	const path = "/artifactory/api/terraform/providers-remote/providers/"
	files := http.StripPrefix(path, http.FileServer(http.Dir(folder)))
	mirror := startTLS(t, ca, "localhost", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".json") && r.Header.Get("Authorization") != "Bearer the-token" {
			http.Error(w, "no token", http.StatusUnauthorized)
			return
		}
		files.ServeHTTP(w, r)
	}))
	config := originConfig(t, origin)
	appendTo(t, config, fmt.Sprintf("credentials %q {\n  token = \"the-token\"\n}\n", mirror))
	env := []string{"SSL_CERT_FILE=" + caFile, "TF_CLI_CONFIG_FILE=" + config, "MIRROR=" + folder}
	howto.Run{
		Page:    "moving-in",
		Replace: []string{"artifactory.example.com", mirror, "localhost:8443", "localhost:" + freePort(t)},
		Before:  map[string]string{"sync --dry-run": mirrorNull},
		Fails:   []string{"push --mirror-dir mirror\n"},
		Env:     env,
	}.Do(t)
}

// appendTo appends a text to a file.
func appendTo(t *testing.T, file, text string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, append(data, text...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// mirrorNull writes a mirror folder of two versions into $MIRROR.
const mirrorNull = `mkdir filled
for version in 3.2.3 3.2.4; do
	sed "s/3.2.3/$version/" main.tf > filled/main.tf
	tofu -chdir=filled providers mirror "$MIRROR"
done`

// TestUpgradeHowTo runs docs/howto/upgrade.md. Afterwards, a package is damaged and mended as the page says.
func TestUpgradeHowTo(t *testing.T) {
	env := operatorEnv(t)
	config := strings.TrimPrefix(env[1], "TF_CLI_CONFIG_FILE=")
	howto.Run{Page: "upgrade", Replace: []string{"localhost:8443", "localhost:" + freePort(t)}, Env: env, After: `export TF_CLI_CONFIG_FILE=` + config + `
null=registry.opentofu.org/hashicorp/null@3.2.3
for blob in $(find data/registry -path '*/blobs/sha256/*' -name data); do
	if [ "$(head -c 2 "$blob")" = PK ]; then chmod u+w "$blob"; printf damaged > "$blob"; fi
done
refused ocibridge verify --packages > verify.log
grep -q 'remove the version with ocibridge remove, .* ocibridge gc' verify.log
ocibridge remove $null
ocibridge gc
ocibridge push $null
ocibridge verify --packages`}.Do(t)
}

// TestApprovingHowTo runs docs/howto/approving.md.
func TestApprovingHowTo(t *testing.T) {
	howto.Run{Page: "approving", Replace: []string{"localhost:8443", "localhost:" + freePort(t)}, Env: operatorEnv(t)}.Do(t)
}

// TestRemovingHowTo runs docs/howto/removing.md. Terraform shows the reason, too, also after the
// removal. Both clients install the version that is left.
func TestRemovingHowTo(t *testing.T) {
	const inits = `rm -f client/.terraform.lock.hcl
export TF_CLI_CONFIG_FILE=$PWD/host.tfrc SSL_CERT_FILE=$HOME/.local/share/ocibridge/ca/ca.pem
terraform -chdir=client init -no-color > terraform.log 2>&1 && exit 1
grep -x -e '- 3.2.4 is denied here: CVE-2026-1234: use 3.2.3' terraform.log
`
	howto.Run{
		Page: "removing", Replace: []string{"localhost:8443", "localhost:" + freePort(t)},
		Before: map[string]string{
			"ocibridge remove --dry-run": inits,
			"kill $serve": inits + `sed -i s/3.2.4/3.2.3/ client/main.tf
terraform -chdir=client init -no-color
rm client/.terraform.lock.hcl
tofu -chdir=client init -no-color`,
		},
		Fails: []string{"mirror.tfrc SSL_CERT_FILE", "host.tfrc SSL_CERT_FILE"},
		Env:   operatorEnv(t),
	}.Do(t)
}

// TestWhoUsesHowTo runs docs/howto/who-uses.md.
func TestWhoUsesHowTo(t *testing.T) {
	howto.Run{Page: "who-uses", Replace: []string{"localhost:8443", "localhost:" + freePort(t)}, Env: operatorEnv(t)}.Do(t)
}

// TestDiskHowTo runs docs/howto/disk.md.
func TestDiskHowTo(t *testing.T) {
	howto.Run{Page: "disk", Env: operatorEnv(t)}.Do(t)
}

// TestCopyingHowTo runs docs/howto/copying.md.
func TestCopyingHowTo(t *testing.T) {
	host := func() string {
		return strings.Replace(registry.For(t, registry.Options{}).Host, "127.0.0.1", "localhost", 1)
	} // oras speaks HTTP to localhost
	howto.Run{Page: "copying", Replace: []string{"registry.example.com", host(), "harbor.internal", host()}, Env: operatorEnv(t)}.Do(t)
}

// TestLockFilesHowTo runs docs/howto/lock-files.md. Afterwards, both lock files know the packages of both platforms.
func TestLockFilesHowTo(t *testing.T) {
	howto.Run{
		Page: "lock-files", Replace: []string{"registry.example.com", registry.For(t, registry.Options{}).Host}, Env: operatorEnv(t),
		Before: map[string]string{"lock --dry-run": `cat cluster/.terraform.lock.hcl; refused grep zh: cluster/.terraform.lock.hcl`},
		After:  `for lock in */.terraform.lock.hcl; do [ $(grep -c zh: $lock) -ge 2 ]; done`,
	}.Do(t)
}
