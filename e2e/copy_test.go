package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// remapped returns a template for a registry. The text of this template and the order of its variables differ
// from the result of the function template.
func remapped(r *registry.Registry) string {
	return r.Host + "/tf/${namespace}/${type}/from/${hostname}"
}

// mustRun runs the program and returns the output. The program must succeed.
func (s *scene) mustRun(args ...string) string {
	s.t.Helper()
	return s.ws.MustRun(s.t, s.bridge, args...)
}

// copied runs ocibridge copy and returns the digests of the stored versions. Each key is a provider, a space
// and a version.
func (s *scene) copied(args ...string) map[string]string {
	s.t.Helper()
	return s.digests(append([]string{"copy"}, args...)...)
}

// digests runs the program with --output json. It returns the digest of each version's index by provider and
// version.
func (s *scene) digests(args ...string) map[string]string {
	s.t.Helper()
	r := s.run(append(args, "--output", "json")...)
	var doc struct {
		Results []struct{ Provider, Version, Digest string }
	}
	if err := json.Unmarshal([]byte(r.stdout), &doc); err != nil || r.status != 0 {
		s.t.Fatalf("%v: status %d, %v: %s%s", args, r.status, err, r.stdout, r.stderr)
	}
	out := map[string]string{}
	for _, v := range doc.Results {
		out[v.Provider+" "+v.Version] = v.Digest
	}
	return out
}

func wantSame(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) || len(got) == 0 {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// originOff makes the test fail if the origin gets a request.
func (s *scene) originOff() {
	s.Origin.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		s.t.Errorf("the origin got a request for %s", r.URL)
		w.WriteHeader(http.StatusTeapot)
		return true
	})
}

// TestCopyBetweenRegistries copies a version from each registry program to another program and to other
// repositories. It shows that the copies are identical byte for byte, and that clients can install them.
func TestCopyBetweenRegistries(t *testing.T) { forEachProgram(t, testCopyBetweenRegistries) }

func testCopyBetweenRegistries(t *testing.T, program registry.Program) {
	s := newScene(t)
	s.offer("3.2.5")
	other := registry.Distribution3
	if program == other {
		other = registry.Distribution28
	}
	a, b := s.tlsRegistryOf(program), s.tlsRegistryOf(other)
	pushed := s.digests("push", "--template", template(a), "--all", world.Null+"@~> 3.2")
	s.originOff()
	wantSame(t, "copied", s.copied("--from", template(a), "--to", remapped(b), world.Null), pushed)
	repo := b.Host + "/tf/acme/null/from/" + world.Host
	if got := strings.TrimSpace(s.ws.MustRun(t, clients.ORAS(t), "resolve", "--plain-http=false", repo+":"+nullVersion)); got != pushed[world.Null+" "+nullVersion] {
		t.Errorf("%s is stored", got)
	}
	index := s.ws.MustRun(t, clients.ORAS(t), "manifest", "fetch", "--plain-http=false", repo+":"+nullVersion)
	if !strings.Contains(index, "vnd.ocibridge.evidence") {
		t.Errorf("no evidence in %s", index)
	}
	ws := s.user(world.OCIMirror(remapped(b)), nullVersion)
	ws.MustRun(t, clients.Tofu(t), "init", "-no-color")
	gateway := s.serve("--template", remapped(b))
	ws = s.user(world.NetworkMirror(gateway.URL), "3.2.5")
	ws.MustRun(t, clients.Terraform(t), "init", "-no-color")

	out := s.mustRun("copy", "--from", template(a), "--to", remapped(b), world.Null+"@> 3")
	if !strings.Contains(out, "3.2.5: unchanged") || strings.Contains(out, nullVersion+":") {
		t.Errorf("the newest again: %s", out)
	}
}

// TestCopyPlatforms shows that a copy of one platform can be completed later.
func TestCopyPlatforms(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, b := s.tlsRegistry(), s.tlsRegistry()
	pushed := s.digests("push", "--template", template(a), world.Null+"@"+nullVersion)
	out := s.mustRun("copy", "--from", template(a), "--to", remapped(b), "--platform", "linux_amd64", world.Null+"@"+nullVersion)
	if !strings.Contains(out, "pushed, 1 platform, signed by "+s.Signer.Fingerprint()) {
		t.Errorf("copy: %s", out)
	}
	wantSame(t, "completed", s.copied("--from", template(a), "--to", remapped(b), world.Null), pushed)
}

// TestCopyAcrossAnAirGap shows that copy carries two providers to another registry, in a single file and in a mirror folder.
// Nothing on the other side of the gap has access to the origin or to the first registry.
//
//testrun:scene
func TestCopyAcrossAnAirGap(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.offerIn("other", "1.0.0")
	a, b := s.tlsRegistry(), s.tlsRegistry()
	pushed := s.digests("push", "--template", template(a), world.Null+"@"+nullVersion, null("other")+"@1.0.0")
	file, mirror := filepath.Join(t.TempDir(), "providers.tar"), filepath.Join(t.TempDir(), "mirror")
	wantSame(t, "archive", s.copied("--from", template(a), "--to", "oci-archive:"+file, world.Null, null("other")), pushed)
	s.mustRun("copy", "--from", template(a), "--to", "mirror:"+mirror, world.Null)
	a.Stop()
	s.originOff()

	t.Run("other tools read the file", func(t *testing.T) {
		oras := clients.ORAS(t)
		for name, digest := range pushed {
			address, version, _ := strings.Cut(name, " ")
			if got := strings.TrimSpace(s.ws.MustRun(t, oras, "resolve", "--oci-layout", file+":"+address+"/"+version)); got != digest {
				t.Errorf("oras resolves %s to %s, want %s", name, got, digest)
			}
		}
	})
	wantSame(t, "registry", s.copied("--from", "oci-archive:"+file, "--to", remapped(b)), pushed)
	t.Run("a client installs from the registry", func(t *testing.T) {
		tofu := clients.Tofu(t)
		s.user(world.OCIMirror(remapped(b)), nullVersion).MustRun(t, tofu, "init", "-no-color")
	})

	// Copy from the registry and from the archive into a folder, and from the folder into the embedded
	// registry.
	dir := filepath.Join(t.TempDir(), "bundle")
	wantSame(t, "folder", s.copied("--from", remapped(b), "--to", "oci:"+dir, world.Null), map[string]string{world.Null + " " + nullVersion: pushed[world.Null+" "+nullVersion]})
	wantSame(t, "folder, added to", s.copied("--from", "oci-archive:"+file, "--to", "oci:"+dir), pushed)
	wantSame(t, "embedded", s.copied("--from", "oci:"+dir, "--data", s.data), pushed)
	wantSame(t, "embedded to archive", s.copied("--data", s.data, "--to", "oci-archive:"+file+"2", world.Null, null("other")), pushed)

	// The mirror folder has no evidence, so a push from it stores another index.
	inside := t.TempDir()
	s.mustRun("push", "--mirror-dir", mirror, "--allow-unsigned", "--data", inside)
	configs := map[string]string{
		"the embedded registry":            world.NetworkMirror(s.serve("--data", s.data).URL),
		"the mirror folder":                filesystemMirror(mirror),
		"what came from the mirror folder": world.NetworkMirror(s.serve("--data", inside).URL),
	}
	both(t, func(t *testing.T, client clients.Client) {
		for name, config := range configs {
			ws := s.user(config, nullVersion)
			if _, err := ws.Run(client, "init", "-no-color"); err != nil {
				t.Errorf("from %s: %v", name, err)
			}
		}
	})
}

// filesystemMirror returns a CLI configuration that installs providers from a mirror folder.
func filesystemMirror(dir string) string {
	return fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", dir)
}

// TestCopyToMirror shows that clients can use the mirror folder that copy writes, directly and through a plain
// web server. The clients' own commands write the same folder except for the hashes. OpenTofu lists zh: hashes,
// Terraform lists h1: hashes, and copy lists both.
func TestCopyToMirror(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	dir, theirs, terraforms := filepath.Join(t.TempDir(), "mirror"), t.TempDir(), t.TempDir()
	s.mirror(clients.Tofu(t), theirs, nullVersion)
	s.mirror(clients.Terraform(t), terraforms, nullVersion)
	s.originOff()
	out := s.mustRun("copy", "--data", s.data, "--to", "mirror:"+dir, world.Null)
	if !strings.Contains(out, "pushed, 3 platforms, signed by "+s.Signer.Fingerprint()) {
		t.Errorf("copy: %s", out)
	}
	for _, file := range filesUnder(t, theirs, "") {
		name, err := filepath.Rel(theirs, file)
		clients.Must(t, err)
		want, err := os.ReadFile(file)
		clients.Must(t, err)
		if strings.HasSuffix(name, nullVersion+".json") {
			want = joinHashes(t, want, filepath.Join(terraforms, name))
		}
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != string(want) {
			t.Errorf("%s: %v\n%.1000s\nclients write\n%.1000s", name, err, got, want)
		}
	}
	if got, want := len(filesUnder(t, dir, "")), len(filesUnder(t, theirs, "")); got != want {
		t.Errorf("%d files, OpenTofu writes %d", got, want)
	}
	server := "https://" + s.https(http.FileServer(http.Dir(dir))) + "/"
	for _, config := range []string{
		filesystemMirror(dir),
		world.NetworkMirror(server),
	} {
		for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
			ws := s.user(config, nullVersion)
			ws.MustRun(t, client, "init", "-no-color")
		}
	}

	// The next copy adds another version, and keeps the first version.
	s.Origin.Intercept(nil)
	s.offer("3.2.5")
	s.push(world.Null + "@3.2.5")
	if out := s.mustRun("copy", "--data", s.data, "--to", "mirror:"+dir, world.Null); !strings.Contains(out, nullVersion+": unchanged") || !strings.Contains(out, "3.2.5: pushed") {
		t.Errorf("again: %s", out)
	}
	for _, version := range []string{nullVersion, "3.2.5"} {
		ws := s.user(world.NetworkMirror(server), version)
		ws.MustRun(t, clients.Tofu(t), "init", "-no-color")
	}
}

// joinHashes adds the hashes in the file other to the JSON of a version. It formats the result like clients.
func joinHashes(t *testing.T, data []byte, other string) []byte {
	t.Helper()
	more, err := os.ReadFile(other)
	clients.Must(t, err)
	type document struct {
		Archives map[string]map[string]any `json:"archives"`
	}
	var a, b document
	clients.Must(t, json.Unmarshal(data, &a))
	clients.Must(t, json.Unmarshal(more, &b))
	for platform, archive := range a.Archives {
		var all []string
		for _, h := range append(archive["hashes"].([]any), b.Archives[platform]["hashes"].([]any)...) {
			all = append(all, h.(string))
		}
		slices.Sort(all)
		archive["hashes"] = slices.Compact(all)
	}
	out, err := json.MarshalIndent(a, "", "  ")
	clients.Must(t, err)
	return out
}

// TestCopyRefusesABadBundle shows that copy stores nothing from a bundle in which content is missing or
// changed.
func TestCopyRefusesABadBundle(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	blob := func(dir string) string {
		return filepath.Join(dir, "blobs", "sha256", hostPackage(t, s.null).SHA256)
	}
	for name, tc := range map[string]struct {
		spoil func(dir string) error
		want  string
	}{
		"missing": {func(dir string) error { return os.Remove(blob(dir)) }, "incomplete bundle: it lacks sha256:"},
		"cut":     {func(dir string) error { return os.Truncate(blob(dir), 1000) }, "has 1000 bytes, and should have"},
		"replaced": {func(dir string) error {
			data, err := os.ReadFile(blob(dir))
			if err == nil {
				data[len(data)/2] ^= 1
				err = os.WriteFile(blob(dir), data, 0o600)
			}
			return err
		}, "checksum mismatch"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, data := filepath.Join(t.TempDir(), "bundle"), t.TempDir()
			s.mustRun("copy", "--data", s.data, "--to", "oci:"+dir, world.Null)
			clients.Must(t, tc.spoil(dir))
			r := s.run("copy", "--from", "oci:"+dir, "--data", data)
			if r.status != 1 || !strings.Contains(r.stderr, tc.want) || !strings.Contains(r.stderr, "hint: ") {
				t.Errorf("status %d: %s", r.status, r.stderr)
			}
			if n := len(filesUnder(t, filepath.Join(data, "registry"), "_manifests/tags")); n != 0 {
				t.Errorf("%d tags", n)
			}
		})
	}
}

// TestCopyORASArtifact shows that copy copies a version that the ORAS CLI has pushed without evidence. The copy
// is identical byte for byte, also through a bundle.
func TestCopyORASArtifact(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
	_, repo, _ := s.orasRecipe(r)
	index := strings.TrimSpace(s.ws.MustRun(t, clients.ORAS(t), "resolve", "--plain-http=false", repo+":"+nullVersion))
	referrer := s.attach(repo+":"+nullVersion, "application/vnd.example.signature", "signature")
	want := map[string]string{world.Null + " " + nullVersion: index}
	args := []string{"copy", "--from", template(r), "--to", "embedded", "--data", s.data, world.Null}
	if r := s.run(args...); r.status != 1 || !strings.Contains(r.stderr, "not signed") {
		t.Errorf("without --allow-unsigned: status %d: %s", r.status, r.stderr)
	}
	if out := s.mustRun(append(args, "--allow-unsigned")...); !strings.Contains(out, "pushed, 3 platforms, 1 referrer, no evidence") {
		t.Errorf("copy: %s", out)
	}
	if out := s.mustRun(append(args, "--allow-unsigned")...); !strings.Contains(out, "unchanged, 3 platforms, 1 referrer, no evidence") {
		t.Errorf("again: %s", out)
	}
	gateway := s.serve("--data", s.data)
	ws := s.user(world.NetworkMirror(gateway.URL), nullVersion)
	ws.MustRun(t, clients.Tofu(t), "init", "-no-color")
	wantLocked(t, ws, nullVersion, 1, zipHash(t, s.null))

	file := filepath.Join(t.TempDir(), "providers.tar")
	wantSame(t, "bundle", s.copied("--data", s.data, "--to", "oci-archive:"+file, "--allow-unsigned", world.Null), want)
	other := s.tlsRegistry()
	wantSame(t, "registry", s.copied("--from", "oci-archive:"+file, "--to", remapped(other), "--allow-unsigned"), want)
	if got := s.discover("--plain-http=false", other.Host+"/tf/acme/null/from/"+world.Host+":"+nullVersion); !slices.Equal(got, []string{referrer + " application/vnd.example.signature"}) {
		t.Errorf("attached: %v, want %s", got, referrer)
	}
	ws = s.user(world.OCIMirror(remapped(other)), nullVersion)
	ws.MustRun(t, clients.Tofu(t), "init", "-no-color")
}
