package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// lockFile returns the content of a workspace's lock file.
func lockFile(t *testing.T, ws *clients.Workspace) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(ws.Dir, clients.LockFileName))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// otherPlatform is a platform of the null provider on which no test runs.
const otherPlatform = "windows_amd64"

// TestLockForAnotherPlatform shows that lock completes a lock file that a client on another platform has
// written. That client installed from a mirror, so the file has no hash of this platform's package.
func TestLockForAnotherPlatform(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
	s.pushTo(r, world.Null+"@"+nullVersion)
	gateway := s.serve("--template", template(r))
	mirror, oci := world.NetworkMirror(gateway.URL), world.OCIMirror(template(r))
	tofu, terraform := clients.Tofu(t), clients.Terraform(t)
	for name, tc := range map[string]struct {
		lockedBy, client clients.Client
		cliConfig        string
		lock             []string
		h1s              int
	}{
		"tofu, network mirror":                           {tofu, tofu, mirror, nil, len(s.null.Packages)},
		"tofu, OCI mirror":                               {tofu, tofu, oci, nil, len(s.null.Packages)},
		"tofu, OCI mirror, locked by terraform":          {terraform, tofu, oci, nil, len(s.null.Packages)},
		"terraform, network mirror":                      {terraform, terraform, mirror, nil, len(s.null.Packages)},
		"terraform, network mirror, locked by tofu":      {tofu, terraform, mirror, nil, len(s.null.Packages)},
		"tofu, OCI mirror, signed hashes alone":          {terraform, tofu, oci, []string{"--h1", "none"}, 1},
		"terraform, network mirror, signed hashes alone": {terraform, terraform, mirror, []string{"--h1", "none"}, 1},
		"tofu, network mirror, computed hashes":          {tofu, tofu, mirror, []string{"--h1", "computed"}, len(s.null.Packages)},
	} {
		t.Run(name, func(t *testing.T) {
			ws := s.user(tc.cliConfig, nullVersion)
			ws.MustRun(t, tc.lockedBy, "providers", "lock", "-no-color", "-net-mirror="+gateway.URL, "-platform="+otherPlatform)
			if got := hashesOf(t, ws, "h1:"); len(got) != 1 {
				t.Fatalf("locked %v", got)
			}
			ws.MustFail(t, tc.client, "init", "-no-color", "-lockfile=readonly")

			ws.MustRun(t, s.bridge, append([]string{"lock", ".", "--template", template(r)}, tc.lock...)...)
			if got := hashesOf(t, ws, "zh:"); len(got) != len(s.null.Packages) {
				t.Errorf("locked %v", got)
			}
			if got := hashesOf(t, ws, "h1:"); len(got) != tc.h1s {
				t.Errorf("locked %v", got)
			}
			locked := lockFile(t, ws)
			if out := ws.MustRun(t, tc.client, "init", "-no-color", "-lockfile=readonly"); strings.Contains(out, "Warning") && tc.lock == nil {
				t.Errorf("init: %s", out)
			}
			if got := lockFile(t, ws); got != locked {
				t.Errorf("init changed the lock file from\n%s\nto\n%s", locked, got)
			}
		})
	}
}

// TestLockWritesAsClientsDo shows that lock writes the same files as clients that lock every platform from the
// origin.
func TestLockWritesAsClientsDo(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		ws := s.user("", nullVersion)
		lock := []string{"providers", "lock", "-no-color", "-platform=" + otherPlatform}
		ws.MustRun(t, client, lock...)
		before := lockFile(t, ws)
		ws.MustRun(t, s.bridge, "lock", ".", "--data", s.data)
		ours := lockFile(t, ws)

		for _, p := range s.null.Packages {
			lock = append(lock, "-platform="+p.OS+"_"+p.Arch)
		}
		ws.MustRun(t, client, lock...)
		if theirs := lockFile(t, ws); ours != theirs || ours == before {
			t.Errorf("from\n%s\n%s writes\n%s\nand ocibridge\n%s", before, client.Name, theirs, ours)
		}
	}
}

// TestPushFromLockFiles shows that push --lock-file pushes the versions that clients have locked.
func TestPushFromLockFiles(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.offer("3.2.5")
	r := s.tlsRegistry()
	push := func(ws *clients.Workspace, args ...string) []string {
		return append([]string{"push", "--template", template(r), "--lock-file", filepath.Join(ws.Dir, clients.LockFileName)}, args...)
	}
	for i, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		version := []string{nullVersion, "3.2.5"}[i]
		ws := s.user("", version)
		ws.MustRun(t, client, "init", "-no-color")
		out := s.ws.MustRun(t, s.bridge, push(ws)...)
		if !strings.Contains(out, world.Null+" "+version+": pushed, 3 platforms, signed by ") {
			t.Errorf("%s: %s", client.Name, out)
		}
	}
	// A file that was locked from a mirror lists only the packages of one platform.
	gateway := s.serve("--template", template(r))
	ws := s.user(world.NetworkMirror(gateway.URL), nullVersion)
	ws.MustRun(t, clients.Terraform(t), "init", "-no-color")
	host := hostPackage(t, s.null)
	out := s.ws.MustRun(t, s.bridge, push(ws, "--platform", host.OS+"_"+host.Arch)...)
	if !strings.Contains(out, "unchanged") {
		t.Errorf("push: %s", out)
	}
	refused := s.run(push(ws)...)
	if refused.status != 1 || !strings.Contains(refused.stderr, "not known at "+filepath.Join(ws.Dir, clients.LockFileName)+":4: ") ||
		!strings.Contains(refused.stderr, "\nhint: add it to the lock file with tofu providers lock -platform=") {
		t.Errorf("%+v", refused)
	}
}
