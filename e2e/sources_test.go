package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// mirror writes a mirror folder with the client's own command.
func (s *scene) mirror(client clients.Client, dir, version string) {
	s.t.Helper()
	ws := s.user("", version)
	ws.MustRun(s.t, client, "providers", "mirror", "-no-color", "-platform=linux_amd64", "-platform=darwin_arm64", "-platform=windows_amd64", dir)
}

func TestMirrorDir(t *testing.T) {
	t.Parallel()
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		t.Run(client.Name, func(t *testing.T) {
			s := newScene(t)
			dir := t.TempDir()
			s.mirror(client, dir, nullVersion)
			args := []string{"push", "--data", s.data, "--mirror-dir", dir}
			if r := s.run(args...); r.status != 1 || !strings.Contains(r.stderr, "not signed") || !strings.Contains(r.stderr, "hint: ") {
				t.Errorf("without --allow-unsigned: status %d, %s", r.status, r.stderr)
			}
			s.Origin.Reset()
			if r := s.run(append(args, "--allow-unsigned")...); r.status != 0 || !strings.Contains(r.stdout, "checksum only") {
				t.Fatalf("status %d: %s%s", r.status, r.stdout, r.stderr)
			}
			if n := s.Origin.Count(); n != 0 {
				t.Errorf("%d requests to the origin", n)
			}
			gateway := s.serve("--data", s.data)
			ws := s.user(world.NetworkMirror(gateway.URL), nullVersion)
			ws.MustRun(t, clients.Tofu(t), "init", "-no-color")
			wantLocked(t, ws, nullVersion, 1, zipHash(t, s.null))
			ws = s.user(world.NetworkMirror(gateway.URL), nullVersion)
			ws.MustRun(t, clients.Terraform(t), "init", "-no-color")
		})
	}
}

// TestMirrorDirWithMixedUpHashes shows that a push refuses JSON in which one version has the hashes of another
// version. OpenTofu's providers mirror can write such JSON.
func TestMirrorDirWithMixedUpHashes(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.offer("3.2.5")
	dir := t.TempDir()
	s.mirror(clients.Tofu(t), dir, nullVersion)
	s.mirror(clients.Tofu(t), dir, "3.2.5")
	provider := filepath.Join(dir, filepath.FromSlash(world.Null))
	// In OpenTofu, the mistake depends on the order of a map, so the test makes the mistake itself. The
	// archives keep their names, and get the hashes of the other version.
	swapHashes(t, filepath.Join(provider, nullVersion+".json"), filepath.Join(provider, "3.2.5.json"))
	r := s.run("push", "--data", s.data, "--mirror-dir", dir, "--allow-unsigned")
	if r.status != 1 || !strings.Contains(r.stderr, "checksum mismatch") || !strings.Contains(r.stderr, "folder of its own") {
		t.Errorf("status %d: %s", r.status, r.stderr)
	}
	// The other version matches its JSON, so it is allowed to be stored.
	for _, name := range filesUnder(t, filepath.Join(s.data, "registry"), "_manifests/tags") {
		if strings.Contains(name, nullVersion) {
			t.Errorf("a tag in %s", name)
		}
	}
}

type mirrorJSON struct {
	Archives map[string]struct {
		URL    string   `json:"url"`
		Hashes []string `json:"hashes"`
	} `json:"archives"`
}

// swapHashes replaces the hashes of the archives in the first file with the hashes in the second file.
func swapHashes(t *testing.T, into, from string) {
	t.Helper()
	var a, b mirrorJSON
	for name, doc := range map[string]*mirrorJSON{into: &a, from: &b} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, doc); err != nil {
			t.Fatal(err)
		}
	}
	for platform, archive := range a.Archives {
		archive.Hashes = b.Archives[platform].Hashes
		a.Archives[platform] = archive
	}
	data, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(into, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// filesUnder returns the files below dir whose path contains part, or none if dir does not exist.
func filesUnder(t *testing.T, dir, part string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(filepath.ToSlash(name), part) {
			out = append(out, name)
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return out
}

func TestReleaseDir(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	dir, key := t.TempDir(), filepath.Join(t.TempDir(), "key.asc")
	if err := s.null.WriteDir(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, []byte(s.Signer.ArmoredPublicKey()), 0o600); err != nil {
		t.Fatal(err)
	}
	const own = "registry.acme.example/platform/null"
	out := s.push("--release-dir", dir, "--as", own+"@"+nullVersion, "--public-key", key)
	if !strings.Contains(out, "signed by "+s.Signer.Fingerprint()) {
		t.Errorf("push: %s", out)
	}
	gateway := s.serve("--data", s.data)
	ws := s.user(world.NetworkMirror(gateway.URL), nullVersion)
	if err := ws.WriteConfig(strings.ReplaceAll(world.UseNull(nullVersion), world.Null, own)); err != nil {
		t.Fatal(err)
	}
	ws.MustRun(t, clients.Tofu(t), "init", "-no-color")
	if got := ws.MustLock(t)[own]; got.Version != nullVersion {
		t.Errorf("locked %+v", got)
	}
}

// TestVersionConstraint shows that a push selects the newest version that matches a constraint, or all matching
// versions.
func TestVersionConstraint(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.offer("3.2.5")
	s.offer("3.3.0-beta1")
	s.offer("4.0.0")
	if out := s.push(world.Null + "@~> 3.2"); !strings.Contains(out, "acme/null 3.2.5: pushed") || strings.Contains(out, nullVersion+": pushed") {
		t.Errorf("newest of ~> 3.2: %s", out)
	}
	out := s.push("--all", "--platform", "linux_amd64", world.Null+"@>= 3.0, < 5.0")
	for _, want := range []string{"acme/null 3.2.4: pushed", "acme/null 3.2.5: unchanged", "acme/null 4.0.0: pushed"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	if strings.Contains(out, "beta") {
		t.Errorf("a prerelease that nobody named: %s", out)
	}
}

// TestHostCredentials shows that the program finds the token for an origin in the same places as clients.
func TestHostCredentials(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.Origin.RequireToken("s3cr3t-token")
	r := s.run("push", "--data", s.data, world.Null+"@"+nullVersion)
	if r.status != 1 || !strings.Contains(r.stderr, "TF_TOKEN_registry_acme_example") {
		t.Errorf("without a token: status %d, %s", r.status, r.stderr)
	}
	s.ws = s.workspace("credentials \"registry.acme.example\" {\n  token = \"s3cr3t-token\"\n}\n")
	s.push("--platform", "linux_amd64", world.Null+"@"+nullVersion)
	s.ws = s.workspace("")
	s.ws.Env["TF_TOKEN_registry_acme_example"] = "s3cr3t-token"
	s.push(world.Null + "@" + nullVersion)
	s.ws.Env["TF_TOKEN_registry_acme_example"] = "wr0ng-token"
	r = s.run("push", "--data", s.data, world.Null+"@"+nullVersion)
	if r.status != 1 || strings.Contains(r.stdout+r.stderr, "wr0ng-token") {
		t.Errorf("with a wrong token: status %d, %s%s", r.status, r.stdout, r.stderr)
	}
}
