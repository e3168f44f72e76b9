package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/internal/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/testkit/world"
)

// configure writes an ocibridge.hcl that keeps providers in a registry, and
// returns its path.
func (s *scene) configure(r *registry.Registry, text string) string {
	s.t.Helper()
	name := filepath.Join(s.t.TempDir(), "ocibridge.hcl")
	text = "oci_mirror {\n  repository_template = \"" + template(r) + "\"\n}\n" + text
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return name
}

// tags lists the null provider's tags in a stand-alone registry, sorted.
func tags(t *testing.T, r *registry.Registry) []string {
	t.Helper()
	repo, err := remote.NewRepository(r.Host + "/providers/" + world.Null)
	if err != nil {
		t.Fatal(err)
	}
	repo.PlainHTTP = true
	var out []string
	if err := repo.Tags(t.Context(), "", func(page []string) error {
		out = append(out, page...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

// TestSync keeps a provider in a real registry through the changes of a
// configuration, and installs what is there with the real clients.
func TestSync(t *testing.T) {
	s := newScene(t)
	s.offer("3.2.5")
	r := registry.For(t, registry.Options{})
	file := s.configure(r, `provider "`+world.Null+`" {
  versions  = "~> 3.2"
  platforms = ["linux_amd64"]
}`)
	out := s.ws.MustRun(t, s.bridge, "sync", "--config", file)
	if !strings.Contains(out, "Plan: 2 to push (") {
		t.Fatalf("output:\n%s", out)
	}
	gateway := s.serve("--config", file)
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		ws := s.user(world.NetworkMirror(gateway.URL), "3.2.5")
		ws.MustRun(t, client, "init", "-no-color")
	}

	// All platforms, the newest alone.
	file = s.configure(r, `provider "`+world.Null+`" {
  latest = 1
}`)
	out = s.ws.MustRun(t, s.bridge, "sync", "--config", file, "--prune")
	if !strings.Contains(out, "  ~ 3.2.5  darwin_arm64, windows_amd64, ") || !strings.Contains(out, "  - "+nullVersion+"  linux_amd64, ") {
		t.Errorf("output:\n%s", out)
	}
	for _, tag := range tags(t, r) {
		if strings.Contains(tag, nullVersion) {
			t.Errorf("the tag %s is left", tag)
		}
	}
	out = s.ws.MustRun(t, s.bridge, "sync", "--config", file, "--prune")
	if !strings.Contains(out, "Plan: 1 in place (") {
		t.Errorf("output:\n%s", out)
	}
	gateway = s.serve("--config", file)
	ws := s.user(world.NetworkMirror(gateway.URL), "3.2.5")
	ws.MustRun(t, clients.Terraform(t), "init", "-no-color")
	ws = s.user(world.NetworkMirror(gateway.URL), nullVersion)
	if _, err := ws.Run(clients.Terraform(t), "init", "-no-color"); err == nil {
		t.Error("a version that was pruned still installs")
	}
}

// TestSyncFromGateway keeps in one registry what another gateway serves.
func TestSyncFromGateway(t *testing.T) {
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	upstream := s.serve("--data", s.data)
	r := registry.For(t, registry.Options{})
	file := s.configure(r, `provider "`+world.Null+`" {
  versions = ">= 3"
  from     = "`+upstream.URL+`"
}
trust "`+world.Null+`" {
  allow_unsigned = true
}`)
	s.Origin.Reset()
	out := s.ws.MustRun(t, s.bridge, "sync", "--config", file)
	if !strings.Contains(out, "3 platforms, checksum only") || s.Origin.Count() != 0 {
		t.Fatalf("%d requests to the origin; output:\n%s", s.Origin.Count(), out)
	}
	gateway := s.serve("--config", file)
	ws := s.user(world.NetworkMirror(gateway.URL), nullVersion)
	ws.MustRun(t, clients.Tofu(t), "init", "-no-color")
	wantLocked(t, ws, nullVersion, 1, zipHash(t, s.null))
}
