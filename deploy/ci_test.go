package deploy_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// pinned is a release of ocibridge on a file server, and the inputs that install it.
type pinned struct {
	url, sum string
	folder   string // the files of the release
}

const (
	bridgeVersion  = "1.2.3"
	ownProviderTag = "registry.acme.example/acme/null@v3.2.4"
	ownProvider    = "registry.acme.example/acme/null@3.2.4"
)

// bridgeArchive is the name of a release's archive for this machine.
func bridgeArchive() string {
	return fmt.Sprintf("ocibridge_%s_%s_%s.tar.gz", bridgeVersion, runtime.GOOS, runtime.GOARCH)
}

// publish serves a release with the given program.
func publish(t *testing.T, program []byte) pinned {
	t.Helper()
	root := t.TempDir()
	folder := filepath.Join(root, "v"+bridgeVersion)
	clients.Must(t, os.Mkdir(folder, 0o755))
	var archive bytes.Buffer
	packed, err := gzip.NewWriterLevel(&archive, gzip.BestSpeed)
	clients.Must(t, err)
	w := tar.NewWriter(packed)
	name := strings.TrimSuffix(bridgeArchive(), ".tar.gz") + "/ocibridge"
	clients.Must(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(program))}))
	_, err = w.Write(program)
	clients.Must(t, err)
	clients.Must(t, w.Close())
	clients.Must(t, packed.Close())
	sums := fmt.Sprintf("%064x  ocibridge_%s_plan9_mips.tar.gz\n%x  %s\n", 1, bridgeVersion, sha256.Sum256(archive.Bytes()), bridgeArchive())
	clients.Must(t, os.WriteFile(filepath.Join(folder, bridgeArchive()), archive.Bytes(), 0o644))
	clients.Must(t, os.WriteFile(filepath.Join(folder, "SHA256SUMS"), []byte(sums), 0o644))
	server := httptest.NewServer(http.FileServer(http.Dir(root)))
	t.Cleanup(server.Close)
	return pinned{server.URL, fmt.Sprintf("%x", sha256.Sum256([]byte(sums))), folder}
}

// publishBridge serves a release with the program under test.
func publishBridge(t *testing.T) pinned {
	t.Helper()
	program, err := os.ReadFile(command(t, "ocibridge").Path)
	clients.Must(t, err)
	return publish(t, program)
}

// with returns the inputs that install the release, and the given inputs.
func (p pinned) with(more ...string) map[string]string {
	inputs := map[string]string{"version": bridgeVersion, "sha256": p.sum, "base-url": p.url}
	for i := 0; i < len(more); i += 2 {
		inputs[more[i]] = more[i+1]
	}
	return inputs
}

func dockerConfig(host, user, password string) string {
	return fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, host, base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
}

const versionScript = "#!/bin/sh\necho \"installed: $*\"\n"

// An author has a signed release folder, and a registry that wants a login.
type author struct {
	*world.World
	registry *registry.Registry
	template string
	packages int // the number of packages in the release
}

const registryUser, registryPassword = "ci", "hunter2"

// newAuthor writes the release to dist in the folder dir, and the public key to release-key.asc.
func newAuthor(t *testing.T, dir string) author {
	t.Helper()
	a := author{World: world.For(t), registry: registry.For(t, registry.Options{Users: map[string]string{registryUser: registryPassword}})}
	a.template = a.registry.Host + "/providers/${hostname}/${namespace}/${type}"
	release, err := a.NullRelease("3.2.4")
	clients.Must(t, err)
	a.packages = len(release.Packages)
	dist := filepath.Join(dir, "dist")
	clients.Must(t, os.Mkdir(dist, 0o755))
	clients.Must(t, release.WriteDir(dist))
	clients.Must(t, os.WriteFile(filepath.Join(dir, "release-key.asc"), []byte(a.Signer.ArmoredPublicKey()), 0o644))
	return a
}

// secretKey removes the signature of the release in the folder dir, and returns the private key to sign it again.
func (a author) secretKey(t *testing.T, dir string) string {
	t.Helper()
	clients.Must(t, os.Remove(filepath.Join(dir, "dist", "terraform-provider-null_3.2.4_SHA256SUMS.sig")))
	return a.Signer.ArmoredPrivateKey(t, "PGP PRIVATE KEY BLOCK")
}

// wantStored checks what the registry has of the author's provider.
func (a author) wantStored(t *testing.T, want bool) {
	t.Helper()
	contents, err := a.registry.Contents("providers/registry.acme.example/acme/null")
	clients.Must(t, err)
	if _, got := contents.Tags["3.2.4"]; got != want {
		t.Errorf("the registry has the tags %v", contents.Tags)
	}
}

// examples returns the YAML blocks in docs/howto/ci.md.
func examples(t *testing.T) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile("../docs/howto/ci.md")
	clients.Must(t, err)
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// replace replaces the matches of patterns in a text. It ends the test if a pattern has no match.
func replace(t *testing.T, text string, patternsAndTexts ...string) string {
	t.Helper()
	for i := 0; i < len(patternsAndTexts); i += 2 {
		pattern := regexp.MustCompile(patternsAndTexts[i])
		if !pattern.MatchString(text) {
			t.Fatalf("no %s in\n%s", pattern, text)
		}
		text = pattern.ReplaceAllString(text, patternsAndTexts[i+1])
	}
	return text
}
