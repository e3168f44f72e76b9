package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// checkSums checks the checksum file of an archive with sha256sum.
func checkSums(t *testing.T, file string) {
	t.Helper()
	check := exec.Command("sha256sum", "--check", "--strict", filepath.Base(file)+".sha256")
	check.Dir = filepath.Dir(file)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func fileSize(t *testing.T, name string) int64 {
	t.Helper()
	info, err := os.Stat(name)
	clients.Must(t, err)
	return info.Size()
}

// TestBundleIsRead shows that list, inspect and verify read a bundle while no registry and no origin can be
// reached, and that they notice a damaged archive.
func TestBundleIsRead(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
	s.pushTo(r, world.Null+"@"+nullVersion)
	file := filepath.Join(t.TempDir(), "providers.tar")
	s.mustRun("copy", "--from", template(r), "--to", "oci-archive:"+file, world.Null)
	r.Stop()
	s.originOff()
	checkSums(t, file)
	from := []string{"--from", "oci-archive:" + file}
	if out := s.mustRun(append([]string{"list"}, from...)...); !strings.Contains(out, world.Null+" in oci-archive:") || !strings.Contains(out, nullVersion) {
		t.Errorf("list: %s", out)
	}
	if out := s.mustRun(append([]string{"inspect", world.Null + "@" + nullVersion}, from...)...); !strings.Contains(out, zipHash(t, s.null)) {
		t.Errorf("inspect: %s", out)
	}
	got := s.verify(0, append([]string{"--packages"}, from...)...)
	if len(got.Versions) != 1 || got.Versions[0].Signature.Fingerprint != s.Signer.Fingerprint() || len(got.Versions[0].Platforms) != 3 {
		t.Errorf("verify: %+v", got)
	}

	data, err := os.ReadFile(file)
	clients.Must(t, err)
	data[len(data)/2] ^= 1
	clients.Must(t, os.WriteFile(file, data, 0o600))
	for _, args := range [][]string{{"list"}, {"verify"}, {"inspect", world.Null + "@" + nullVersion}, {"copy", "--data", s.data}} {
		if r := s.run(append(args, from...)...); r.status != 1 || !strings.Contains(r.stderr, "providers.tar.sha256 gives ") {
			t.Errorf("%s of a damaged archive: status %d: %s", args[0], r.status, r.stderr)
		}
	}
	// Without the checksum file, the packages show the damage.
	clients.Must(t, os.Remove(file+".sha256"))
	if r := s.run(append([]string{"verify", "--packages"}, from...)...); r.status != 1 {
		t.Errorf("verify: status %d: %s%s", r.status, r.stdout, r.stderr)
	}
}

// TestCopySince carries a full bundle, and then an update without the packages of the first bundle, across an
// air gap. It shows that a registry and the embedded registry have the same content and digests afterwards as a
// registry that gets a full bundle.
func TestCopySince(t *testing.T) { forEachProgram(t, testCopySince) }

func testCopySince(t *testing.T, program registry.Program) {
	s := newScene(t)
	a, b, c := s.tlsRegistryOf(program), s.tlsRegistryOf(program), s.tlsRegistryOf(program)
	old := s.digests("push", "--template", template(a), world.Null+"@"+nullVersion)
	dir := t.TempDir()
	archive := func(name string) string { return "oci-archive:" + filepath.Join(dir, name) }
	s.mustRun("copy", "--from", template(a), "--to", archive("first.tar"), world.Null)
	for _, to := range [][]string{{"--to", remapped(b)}, {"--to", remapped(c)}, {"--data", s.data}} {
		wantSame(t, "the first bundle", s.copied(append([]string{"--from", archive("first.tar")}, to...)...), old)
	}
	listing := filepath.Join(dir, "have.json")
	clients.Must(t, os.WriteFile(listing, []byte(s.mustRun("list", "--data", s.data, "--output", "json")), 0o600))

	// A new version, and a new referrer of the old version.
	s.offer("3.2.5")
	s.pushTo(a, world.Null+"@3.2.5")
	const sbom = "application/vnd.example.sbom"
	referrer := s.attach(a.Host+"/providers/"+world.Null+":"+nullVersion, sbom, "sbom")
	both := s.copied("--from", template(a), "--to", archive("full.tar"), world.Null)
	plan := s.mustRun("copy", "--dry-run", "--from", template(a), "--since", archive("first.tar"), "--to", archive("update.tar"), world.Null)
	if !strings.Contains(plan, "Plan: 2 versions to copy, 3 packages to send (") || !strings.Contains(plan, "3 packages left out (") {
		t.Errorf("plan: %s", plan)
	}
	wantSame(t, "update", s.copied("--from", template(a), "--since", archive("first.tar"), "--to", archive("update.tar"), world.Null), both)
	wantSame(t, "update by a listing", s.copied("--from", template(a), "--since", "list:"+listing, "--to", archive("listed.tar"), world.Null), both)
	a.Stop()
	s.originOff()
	for _, name := range []string{"update.tar", "listed.tar"} {
		checkSums(t, filepath.Join(dir, name))
		var packages int64
		for _, p := range s.null.Packages {
			packages += p.Size
		}
		if size, full := fileSize(t, filepath.Join(dir, name)), fileSize(t, filepath.Join(dir, "full.tar")); size > full-packages {
			t.Errorf("%s has %d bytes, and the full bundle has %d", name, size, full)
		}
	}

	wantSame(t, "registry", s.copied("--from", archive("update.tar"), "--to", remapped(b)), both)
	wantSame(t, "embedded", s.copied("--from", archive("listed.tar"), "--data", s.data), both)
	wantSame(t, "full", s.copied("--from", archive("full.tar"), "--to", remapped(c)), both)
	for _, r := range []*registry.Registry{b, c} {
		s.verify(0, "--packages", "--template", remapped(r), world.Null)
		if got := s.discover("--plain-http=false", r.Host+"/tf/acme/null/from/"+world.Host+":"+nullVersion); !slices.Equal(got, []string{referrer + " " + sbom}) {
			t.Errorf("attached: %v, want %s", got, referrer)
		}
	}
	s.verify(0, "--packages", "--data", s.data, world.Null)
	for _, version := range []string{nullVersion, "3.2.5"} {
		ws := s.user(world.OCIMirror(remapped(b)), version)
		ws.MustRun(t, clients.Tofu(t), "init", "-no-color")
	}
	gateway := s.serve("--data", s.data)
	ws := s.user(world.NetworkMirror(gateway.URL), "3.2.5")
	ws.MustRun(t, clients.Terraform(t), "init", "-no-color")

	// A registry without the first bundle.
	d := s.tlsRegistryOf(program)
	r := s.run("copy", "--from", archive("update.tar"), "--to", remapped(d), world.Null+"@"+nullVersion)
	if r.status != 1 || !strings.Contains(r.stderr, " of "+world.Null+" "+nullVersion+" is left out of the bundle, and "+d.Host) || !strings.Contains(r.stderr, "hint: copy the earlier bundle first, or make a full bundle") {
		t.Errorf("status %d: %s", r.status, r.stderr)
	}
	if out := s.mustRun("list", "--template", remapped(d), world.Null); !strings.Contains(out, "no version") {
		t.Errorf("a tag: %s", out)
	}
	if out := s.mustRun("copy", "--from", archive("update.tar"), "--to", remapped(d), world.Null+"@3.2.5"); !strings.Contains(out, "3.2.5: pushed") {
		t.Errorf("the new version: %s", out)
	}
}
