package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// orasRecipe pushes the release with the ORAS CLI, as the recipe in OpenTofu's documentation says. It returns
// the workspace, the repository and the index.
func (s *scene) orasRecipe(r *registry.Registry) (ws *clients.Workspace, repo string, index map[string]any) {
	s.t.Helper()
	oras := clients.ORAS(s.t)
	ws = s.workspace("")
	repo = r.Host + "/providers/" + world.Null
	if err := s.null.WriteDir(ws.Dir); err != nil {
		s.t.Fatal(err)
	}
	index = map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "artifactType": "application/vnd.opentofu.provider"}
	var manifests []map[string]any
	for _, p := range s.null.Packages {
		out, err := ws.Stdout(oras, "push", "--plain-http=false", "--format", "json", "--artifact-type", "application/vnd.opentofu.provider-target",
			repo, p.Filename+":archive/zip")
		if err != nil {
			s.t.Fatal(err)
		}
		var pushed struct {
			Digest string
			Size   int64
		}
		if err := json.Unmarshal(out, &pushed); err != nil {
			s.t.Fatalf("%v: %s", err, out)
		}
		size := pushed.Size
		if size == 0 {
			manifest, err := ws.Stdout(oras, "manifest", "fetch", "--plain-http=false", repo+"@"+pushed.Digest)
			if err != nil {
				s.t.Fatal(err)
			}
			size = int64(len(manifest))
		}
		manifests = append(manifests, map[string]any{
			"mediaType": "application/vnd.oci.image.manifest.v1+json", "artifactType": "application/vnd.opentofu.provider-target",
			"digest": pushed.Digest, "size": size, "platform": map[string]string{"os": p.OS, "architecture": p.Arch},
		})
	}
	index["manifests"] = manifests
	s.orasIndex(ws, repo+":"+nullVersion, index)
	return ws, repo, index
}

// TestForceOverORASArtifact shows that a forced push computes the h1: hashes that the index lacks. The push
// prints the names of the platforms.
func TestForceOverORASArtifact(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
	ws, repo, index := s.orasRecipe(r)
	push := func(args ...string) string {
		t.Helper()
		return s.pushTo(r, append(args, world.Null+"@"+nullVersion)...)
	}
	var platforms []string
	for _, p := range s.null.Packages {
		platforms = append(platforms, p.OS+"_"+p.Arch)
	}
	slices.Sort(platforms)
	if out := push(); strings.Contains(out, "h1:") {
		t.Errorf("without --force:\n%s", out)
	}
	if out := push("--force"); !strings.Contains(out, " rehashed, ") || !strings.Contains(out, "\n  computed h1: for "+strings.Join(platforms, ", ")+"\n") {
		t.Errorf("with --force:\n%s", out)
	}
	v := s.verify(0, "--packages", "--template", template(r), world.Null+"@"+nullVersion)
	if len(v.Versions[0].Findings) != 0 {
		t.Errorf("%+v", v.Versions[0].Findings)
	}
	s.orasIndex(ws, repo+":"+nullVersion, index)
	var out struct {
		Results []struct {
			Packages []struct {
				H1         string
				H1Recorded bool `json:"h1_recorded"`
			}
		}
	}
	if err := json.Unmarshal([]byte(push("--force", "--output", "json")), &out); err != nil {
		t.Fatal(err)
	}
	for _, p := range out.Results[0].Packages {
		if !p.H1Recorded || p.H1 == "" {
			t.Errorf("%+v", p)
		}
	}
}

// orasIndex pushes an index with the ORAS CLI.
func (s *scene) orasIndex(ws *clients.Workspace, ref string, index map[string]any) {
	s.t.Helper()
	data, err := json.Marshal(index)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(ws.Dir, "index.json"), data, 0o600); err != nil {
		s.t.Fatal(err)
	}
	ws.MustRun(s.t, clients.ORAS(s.t), "manifest", "push", "--plain-http=false", "--media-type", "application/vnd.oci.image.index.v1+json", ref, "index.json")
}

// TestORASArtifact shows that clients install a version that the ORAS CLI has pushed without our annotations.
func TestORASArtifact(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
	s.orasRecipe(r)
	gateway := s.serve("--template", template(r))
	user := s.user(world.NetworkMirror(gateway.URL), nullVersion)
	user.MustRun(t, clients.Tofu(t), "init", "-no-color")
	wantLocked(t, user, nullVersion, 1, zipHash(t, s.null))
	user = s.user(world.NetworkMirror(gateway.URL), nullVersion)
	user.MustRun(t, clients.Terraform(t), "init", "-no-color")
	user = s.user(world.OCIMirror(template(r)), nullVersion)
	user.MustRun(t, clients.Tofu(t), "init", "-no-color")
	if served := servedHashes(t, s, gateway.URL); len(served["zh:"]) != len(s.null.Packages) {
		t.Errorf("served %v", served)
	}
	// A push of the same release finds every package in place, and adds the evidence.
	if out := s.pushTo(r, world.Null+"@"+nullVersion); !strings.Contains(out, ": completed, ") || !strings.Contains(out, "signed by") || strings.Contains(out, ": stored") {
		t.Errorf("push: %s", out)
	}
	if out := s.pushTo(r, world.Null+"@"+nullVersion); !strings.Contains(out, ": unchanged, ") || !strings.Contains(out, "signed by") {
		t.Errorf("second push: %s", out)
	}
}
