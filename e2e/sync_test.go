package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// configure writes an ocibridge.hcl with providers for a registry, and returns its path.
func (s *scene) configure(r *registry.Registry, text string) string {
	s.t.Helper()
	name := filepath.Join(s.t.TempDir(), "ocibridge.hcl")
	text = "oci_mirror {\n  repository_template = \"" + template(r) + "\"\n}\n" + text
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return name
}

// repository returns a provider's repository in a stand-alone registry.
func repository(t *testing.T, r *registry.Registry, address string) *remote.Repository {
	t.Helper()
	repo, err := remote.NewRepository(r.Host + "/providers/" + address)
	if err != nil {
		t.Fatal(err)
	}
	repo.PlainHTTP = true
	return repo
}

// tags lists a provider's tags in a stand-alone registry, sorted and without the tag of the state.
func tags(t *testing.T, r *registry.Registry, address string) []string {
	t.Helper()
	repo := repository(t, r, address)
	var out []string
	if err := repo.Tags(t.Context(), "", func(page []string) error {
		out = append(out, page...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return slices.DeleteFunc(out, func(tag string) bool { return tag == "ocibridge-state" })
}

// TestSync shows that the registry follows changes of a provider block, and that the real clients install the
// result.
//
//testrun:scene
func TestSync(t *testing.T) { forEachProgram(t, testSync) }

func testSync(t *testing.T, program registry.Program) {
	s := newScene(t)
	s.offer("3.2.5")
	r := registry.For(t, registry.Options{Program: program})
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

	// The block now selects all platforms, but only the newest version.
	file = s.configure(r, `provider "`+world.Null+`" {
  latest = 1
}`)
	out = s.ws.MustRun(t, s.bridge, "sync", "--config", file, "--prune")
	if !strings.Contains(out, world.Null+" 3.2.5: completed, ") || !strings.Contains(out, world.Null+" "+nullVersion+": pruned, ") || !strings.Contains(out, "Sync: 1 completed, 1 pruned\n") {
		t.Errorf("output:\n%s", out)
	}
	for _, tag := range tags(t, r, world.Null) {
		if strings.Contains(tag, nullVersion) {
			t.Errorf("the tag %s is left", tag)
		}
	}
	out = s.ws.MustRun(t, s.bridge, "sync", "--config", file, "--prune")
	if !strings.Contains(out, "Sync: 1 in place\n") {
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

// makeOlder changes a repository's state. Afterwards, the version seems to have been first seen earlier by the
// given duration.
func makeOlder(t *testing.T, repo *remote.Repository, version string, by time.Duration) {
	t.Helper()
	desc, body, err := repo.FetchReference(t.Context(), "ocibridge-state")
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	data, err := content.ReadAll(body, desc)
	if err != nil {
		t.Fatal(err)
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	const key = "io.github.ocibridge.state"
	var state map[string]any
	if err := json.Unmarshal([]byte(m.Annotations[key]), &state); err != nil {
		t.Fatal(err)
	}
	seen := state["seen"].(map[string]any)
	at, err := time.Parse(time.RFC3339, seen[version].(string))
	if err != nil {
		t.Fatal(err)
	}
	seen[version] = at.Add(-by).Format(time.RFC3339)
	text, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	m.Annotations[key] = string(text)
	if data, err = json.Marshal(m); err != nil {
		t.Fatal(err)
	}
	if err := repo.PushReference(t.Context(), content.NewDescriptorFromBytes(m.MediaType, data), bytes.NewReader(data), "ocibridge-state"); err != nil {
		t.Fatal(err)
	}
}

// TestSyncCooldown shows that a version waits until it is as old as the block requires. The registry stores the
// time when the version was first seen. The test changes this time instead of waiting.
func TestSyncCooldown(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := registry.For(t, registry.Options{})
	file := s.configure(r, `provider "`+world.Null+`" {
  versions = ">= 3"
  cooldown = "7d"
}`)
	out := s.ws.MustRun(t, s.bridge, "sync", "--config", file, "--dry-run")
	if !strings.Contains(out, "  + "+nullVersion+"  ") || !strings.Contains(out, "does not wait: it was there at the first sync") {
		t.Errorf("output:\n%s", out)
	}
	s.ws.MustRun(t, s.bridge, "sync", "--config", file)
	s.offer("3.2.5")
	out = s.ws.MustRun(t, s.bridge, "sync", "--config", file)
	want := []string{nullVersion}
	if got := tags(t, r, world.Null); !slices.Equal(got, want) || !strings.Contains(out, "Sync: 1 in place, 1 waiting\n") {
		t.Errorf("tags %v; output:\n%s", got, out)
	}
	out = s.ws.MustRun(t, s.bridge, "sync", "--config", file, "--dry-run")
	if !strings.Contains(out, "  . 3.2.5  waits until ") || !strings.Contains(out, "Plan: 1 in place (") {
		t.Errorf("output:\n%s", out)
	}

	makeOlder(t, repository(t, r, world.Null), "3.2.5", 169*time.Hour)
	out = s.ws.MustRun(t, s.bridge, "sync", "--config", file)
	if !strings.Contains(out, world.Null+" 3.2.5: pushed, ") {
		t.Errorf("output:\n%s", out)
	}
	gateway := s.serve("--config", file)
	s.user(world.NetworkMirror(gateway.URL), "3.2.5").MustRun(t, clients.Tofu(t), "init", "-no-color")
}

// TestSyncProviders shows that a sync of several providers continues if one provider fails. The sync removes
// many versions only if the limit allows this. A sync of one provider does not affect the others.
func TestSyncProviders(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for i := range 12 {
		spec := release.Spec{Host: world.Host, Namespace: "acme", Type: "tiny", Version: fmt.Sprintf("1.%d.0", i), Signer: s.Signer}
		spec.Contents = []release.Content{{OS: "linux", Arch: "amd64", Files: map[string][]byte{"terraform-provider-tiny": []byte(spec.Version)}}}
		s.Origin.Add(release.For(t, spec))
	}
	const tiny = world.Host + "/acme/tiny"
	r := registry.For(t, registry.Options{})
	blocks := func(tinies string) string {
		return s.configure(r, `provider "`+world.Host+`/acme/absent" {
  latest = 1
}
provider "`+tiny+`" {
  versions = "`+tinies+`"
}
provider "`+world.Null+`" {
  latest = 1
}`)
	}
	got := s.run("sync", "--config", blocks(">= 1.0"), world.Null)
	if got.status != 0 || strings.Contains(got.stdout+got.stderr, "tiny") || !slices.Equal(tags(t, r, world.Null), []string{nullVersion}) {
		t.Fatalf("sync of one provider: %+v", got)
	}
	got = s.run("sync", "--config", blocks(">= 1.0"))
	if got.status != 1 || !strings.Contains(got.stderr, "/acme/absent: provider not found") || !strings.Contains(got.stdout, "Sync: 12 pushed, 1 in place, 1 failed\n") {
		t.Fatalf("%+v", got)
	}
	if n := len(tags(t, r, tiny)); n != 12 || !slices.Equal(tags(t, r, world.Null), []string{nullVersion}) {
		t.Fatalf("%d versions of %s, and %v", n, tiny, tags(t, r, world.Null))
	}

	file := blocks(">= 1.11")
	if got := s.run("sync", "--config", file, "--prune", world.Null); got.status != 0 || len(tags(t, r, tiny)) != 12 {
		t.Errorf("prune of another provider: %+v, tags %v", got, tags(t, r, tiny))
	}
	for _, tt := range []struct {
		args []string
		left int
	}{
		{[]string{"--prune", "--dry-run"}, 12},
		{[]string{"--prune"}, 12},
		{[]string{"--prune", "--prune-limit", "10"}, 12},
		{[]string{"--prune", "--prune-limit", "11"}, 1},
	} {
		got := s.run(append([]string{"sync", "--config", file}, tt.args...)...)
		if refused := strings.Contains(got.stderr, "too much to prune: 11 versions"); refused != (tt.left == 12) || !refused && !strings.Contains(got.stdout, tiny+" 1.0.0: pruned") {
			t.Errorf("%v: %+v", tt.args, got)
		}
		if left := tags(t, r, tiny); len(left) != tt.left || !slices.Contains(left, "1.11.0") {
			t.Errorf("%v leaves %v", tt.args, left)
		}
	}
	if got := tags(t, r, world.Null); !slices.Equal(got, []string{nullVersion}) {
		t.Errorf("tags of another provider: %v", got)
	}
}

// TestSyncFromGateway shows that a sync can use another gateway as its source.
func TestSyncFromGateway(t *testing.T) {
	t.Parallel()
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
