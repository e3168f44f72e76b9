package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// attached maps the digest of a subject to the digests of its referrers.
type attached map[string][]string

// attach attaches a file to a manifest with the ORAS CLI, and returns the referrer's digest.
func (s *scene) attach(ref, artifactType, text string) string {
	s.t.Helper()
	ws := s.workspace("")
	clients.Must(s.t, os.WriteFile(filepath.Join(ws.Dir, "attached.txt"), []byte(text), 0o600))
	out, err := ws.Stdout(clients.ORAS(s.t), "attach", "--plain-http=false", "--artifact-type", artifactType, "--format", "json", ref, "attached.txt")
	clients.Must(s.t, err)
	var pushed struct{ Digest string }
	clients.Must(s.t, json.Unmarshal(out, &pushed))
	return pushed.Digest
}

// discover returns the referrers that the ORAS CLI finds for a manifest, sorted.
func (s *scene) discover(args ...string) []string {
	s.t.Helper()
	out, err := s.ws.Stdout(clients.ORAS(s.t), append([]string{"discover", "--format", "json"}, args...)...)
	clients.Must(s.t, err)
	var found struct {
		Manifests []struct {
			Digest       string
			ArtifactType string
		}
	}
	clients.Must(s.t, json.Unmarshal(out, &found))
	var digests []string
	for _, m := range found.Manifests {
		digests = append(digests, m.Digest+" "+m.ArtifactType)
	}
	slices.Sort(digests)
	return digests
}

// wantAttached checks that each subject has exactly the referrers in want. The function ref returns the
// arguments of "oras discover" for a subject's digest.
func (s *scene) wantAttached(where string, want attached, ref func(digest string) []string) {
	s.t.Helper()
	for subject, referrers := range want {
		if got := s.discover(ref(subject)...); !slices.Equal(got, referrers) {
			s.t.Errorf("%s: attached to %s: %v, want %v", where, subject, got, referrers)
		}
	}
}

// platformManifest returns the digest of the first manifest in an index, and the platform of this manifest.
func (s *scene) platformManifest(ref string) (digest, platform string) {
	s.t.Helper()
	out, err := s.ws.Stdout(clients.ORAS(s.t), "manifest", "fetch", "--plain-http=false", ref)
	clients.Must(s.t, err)
	var index struct {
		Manifests []struct {
			Digest   string
			Platform struct{ OS, Architecture string }
		}
	}
	clients.Must(s.t, json.Unmarshal(out, &index))
	m := index.Manifests[0]
	return m.Digest, m.Platform.OS + "/" + m.Platform.Architecture
}

// wantTree checks that the tree of a platform's referrers in an OCI layout contains the digests. In a layout,
// oras finds a manifest by a name and not by its digest.
func (s *scene) wantTree(layout, platform string, digests ...string) {
	s.t.Helper()
	tree := s.ws.MustRun(s.t, clients.ORAS(s.t), "discover", "--format", "tree", "--oci-layout", "--platform", platform, layout)
	for _, d := range digests {
		if !strings.Contains(tree, d) {
			s.t.Errorf("%s lacks %s:\n%s", layout, d, tree)
		}
	}
}

// TestCopyCarriesReferrers shows that copy includes signatures and SBOMs that the ORAS CLI attached. The test
// copies through a bundle to another registry, and from there into the embedded registry. The ORAS CLI finds
// the signatures and SBOMs there.
func TestCopyCarriesReferrers(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, b := s.tlsRegistry(), s.tlsRegistry()
	pushed := s.digests("push", "--template", template(a), world.Null+"@"+nullVersion)
	index := pushed[world.Null+" "+nullVersion]
	repo := a.Host + "/providers/" + world.Null
	if _, at, _ := strings.Cut(template(a), a.Host); !strings.HasPrefix(at, "/providers/") {
		t.Fatalf("the template is %s", template(a))
	}
	platform, osArch := s.platformManifest(repo + ":" + nullVersion)
	const signature, sbom = "application/vnd.example.signature", "application/vnd.example.sbom"
	bySignature, bySBOM := s.attach(repo+"@"+index, signature, "signature"), s.attach(repo+"@"+platform, sbom, "sbom")
	ofSBOM := s.attach(repo+"@"+bySBOM, signature, "signature of the SBOM")
	want := attached{index: {bySignature + " " + signature}, platform: {bySBOM + " " + sbom}, bySBOM: {ofSBOM + " " + signature}, ofSBOM: nil}
	// This is how cosign stores signatures without referrers.
	cosign := "sha256-" + strings.TrimPrefix(index, "sha256:") + ".sig"
	ws := s.workspace("")
	clients.Must(t, os.WriteFile(filepath.Join(ws.Dir, "payload.json"), []byte(`{"critical":{}}`), 0o600))
	ws.MustRun(t, clients.ORAS(t), "push", "--plain-http=false", repo+":"+cosign, "payload.json")
	byTag := strings.TrimSpace(s.ws.MustRun(t, clients.ORAS(t), "resolve", "--plain-http=false", repo+":"+cosign))

	// Copy into a bundle.
	file := filepath.Join(t.TempDir(), "providers.tar")
	out := s.mustRun("copy", "--from", template(a), "--to", "oci-archive:"+file, world.Null)
	if !strings.Contains(out, "pushed, 3 platforms, 4 referrers, signed by "+s.Signer.Fingerprint()) {
		t.Errorf("copy: %s", out)
	}
	a.Stop()
	layout := func(tag string) string { return file + ":" + world.Null + "/" + tag }
	s.wantAttached("bundle", attached{index: want[index]}, func(string) []string { return []string{"--oci-layout", layout(nullVersion)} })
	s.wantTree(layout(nullVersion), osArch, bySBOM, ofSBOM)
	if got := strings.TrimSpace(s.ws.MustRun(t, clients.ORAS(t), "resolve", "--oci-layout", layout(cosign))); got != byTag {
		t.Errorf("bundle: %s is %s, want %s", cosign, got, byTag)
	}

	// Copy from the bundle into a registry without the referrers API.
	wantSame(t, "registry", s.copied("--from", "oci-archive:"+file, "--to", remapped(b)), pushed)
	mapped := b.Host + "/tf/acme/null/from/" + world.Host
	s.wantAttached("registry", want, func(digest string) []string { return []string{"--plain-http=false", mapped + "@" + digest} })
	if got := strings.TrimSpace(s.ws.MustRun(t, clients.ORAS(t), "resolve", "--plain-http=false", mapped+":"+cosign)); got != byTag {
		t.Errorf("registry: %s is %s, want %s", cosign, got, byTag)
	}
	// No tag of a referrer is listed as a version.
	if out := s.mustRun("list", "--template", remapped(b), world.Null); strings.Contains(out, "sha256") || !strings.Contains(out, nullVersion) {
		t.Errorf("list: %s", out)
	}

	// Copy into the embedded registry. Its gateway supports the referrers API.
	wantSame(t, "embedded", s.copied("--from", remapped(b), "--to", "embedded", "--data", s.data, world.Null), pushed)
	gateway := s.serve("--data", s.data)
	embedded := strings.TrimSuffix(strings.TrimPrefix(gateway.URL, "https://"), "/providers/") + "/" + world.Null
	s.wantAttached("embedded", want, func(digest string) []string {
		return []string{"--plain-http=false", "--distribution-spec", "v1.1-referrers-api", embedded + "@" + digest}
	})
	user := s.user(world.OCIMirror(strings.TrimSuffix(embedded, world.Null)+"${hostname}/${namespace}/${type}"), nullVersion)
	user.MustRun(t, clients.Tofu(t), "init", "-no-color")

	// A second copy changes nothing. A copy after a new referrer adds only this referrer.
	if out := s.mustRun("copy", "--from", remapped(b), "--to", "embedded", "--data", s.data, world.Null); !strings.Contains(out, "unchanged, 3 platforms, 4 referrers") {
		t.Errorf("again: %s", out)
	}
	s.attach(mapped+"@"+index, signature, "another signature")
	if out := s.mustRun("copy", "--from", remapped(b), "--to", "embedded", "--data", s.data, world.Null); !strings.Contains(out, "completed, 3 platforms, 5 referrers") {
		t.Errorf("with another one: %s", out)
	}

	// Copy from the embedded registry into a bundle in a folder, first without referrers.
	dir := filepath.Join(t.TempDir(), "bundle")
	wantSame(t, "folder", s.copied("--data", s.data, "--to", "oci:"+dir, "--without-referrers", world.Null), pushed)
	s.wantAttached("without referrers", attached{index: nil}, func(string) []string {
		return []string{"--oci-layout", fmt.Sprintf("%s:%s/%s", dir, world.Null, nullVersion)}
	})
	if out := s.mustRun("copy", "--data", s.data, "--to", "oci:"+dir, world.Null); !strings.Contains(out, "completed, 3 platforms, 5 referrers") {
		t.Errorf("folder, added to: %s", out)
	}
	s.wantTree(dir+":"+world.Null+"/"+nullVersion, osArch, bySBOM, ofSBOM)
}
