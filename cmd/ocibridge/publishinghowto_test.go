package main

import (
	"log/slog"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/registries/embedded"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/howto"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
)

// TestPublishingHowTo runs docs/howto/publishing.md with the real gpg. Both clients install what it publishes.
func TestPublishingHowTo(t *testing.T) {
	publish(t, registry.For(t, registry.Options{}).Host, t.TempDir())
}

// publish runs docs/howto/publishing.md in the folder dir.
func publish(t *testing.T, host, dir string) {
	t.Helper()
	testkit.WithoutRace(t)
	clients.Program(t, "gpg")
	// Agents of gpg leave the page's process group.
	t.Cleanup(func() {
		for _, home := range []string{"gnupg", "other"} {
			if err := exec.Command("gpgconf", "--homedir", filepath.Join(dir, home), "--kill", "all").Run(); err != nil {
				t.Error(err)
			}
		}
	})
	howto.Run{
		Page:    "publishing",
		Replace: []string{"registry.example.com", host, "harbor.example.com", host, "localhost:8443", "localhost:" + freePort(t)},
		Fails:   []string{"dist-other"},
		Dir:     dir,
		Env:     publishingEnv,
	}.Do(t)
}

// publishingEnv has a proxy at which nothing listens, so that no client looks for the provider's host.
var publishingEnv = []string{"REGISTRY_TOKEN=pass-w0rd", "HTTPS_PROXY=http://127.0.0.1:1"}

// TestKeysHowTo runs docs/howto/keys.md in the folder that docs/howto/publishing.md leaves. The registry has a referrers API.
func TestKeysHowTo(t *testing.T) {
	stored, err := embedded.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(stored.Handler())
	t.Cleanup(func() {
		server.Close()
		if err := stored.Close(); err != nil {
			t.Error(err)
		}
	})
	host, dir := strings.TrimPrefix(server.URL, "http://"), t.TempDir()
	publish(t, host, dir)
	howto.Run{
		Page:    "keys",
		Replace: []string{"registry.example.com", host, "localhost:8443", "localhost:" + freePort(t)},
		Fails: []string{
			"release 1.1.0", "ocibridge config check", "tofu init -no-color -upgrade",
			"rm -r .terraform\nocibridge exec --no-cache -- tofu init -no-color\n",
		},
		Dir: dir,
		Env: publishingEnv,
	}.Do(t)
}
