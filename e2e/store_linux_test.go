package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// TestStoreKilled kills many commands that lay packages, while the cache has no room for all packages. It shows that the next
// init in each folder works, that no package is damaged, and that nothing is left behind. With OCIBRIDGE_STORE_ROUNDS, there
// are as many rounds, with 50 folders.
func TestStoreKilled(t *testing.T) {
	t.Parallel()
	folders, rounds := 8, int(testkit.Number(t, "OCIBRIDGE_STORE_ROUNDS", 3))
	if rounds > 3 {
		folders = 50
	}
	s := newScene(t)
	r := registry.For(t, registry.Options{})
	programs := map[string][]byte{}
	const versions = 3
	for i := range versions {
		v := fmt.Sprintf("4.%d.0", i)
		programs[v] = make([]byte, 2<<20)
		rand.NewChaCha8([32]byte{byte(i)}).Read(programs[v])
		built, err := release.Build(release.Spec{Host: world.Host, Namespace: "acme", Type: "null", Version: v, Protocols: []string{"5.0"}, Signer: s.Signer,
			Contents: []release.Content{{OS: runtime.GOOS, Arch: runtime.GOARCH, Files: map[string][]byte{"terraform-provider-null_v" + v: programs[v]}}}})
		clients.Must(t, err)
		s.Origin.Add(built)
		s.pushTo(r, world.Null+"@"+v)
	}
	clients.Must(t, s.Close())
	// Two zips and two unpacked packages need 8 MiB.
	config := fmt.Sprintf("oci_mirror {\n  repository_template = %q\n}\ngateway {\n  cache {\n    max_size = \"7MiB\"\n  }\n}\n", template(r))
	type folder struct {
		ws      *clients.Workspace
		client  clients.Client
		version string
		lock    string
	}
	var all []*folder
	for i := range folders {
		f := &folder{client: clients.Program(t, []string{"tofu", "terraform"}[i%2]), version: fmt.Sprintf("4.%d.0", i%versions)}
		f.ws = s.user("", f.version)
		f.ws.Home = s.ws.Home
		clients.Must(t, os.WriteFile(filepath.Join(f.ws.Dir, "ocibridge.hcl"), []byte(config), 0o600))
		all = append(all, f)
	}
	init := func(f *folder) (string, error) {
		return f.ws.Run(s.bridge, "exec", "--", f.client.Path, "init", "-no-color")
	}
	for _, f := range all {
		if out, err := init(f); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		f.lock = read(t, filepath.Join(f.ws.Dir, clients.LockFileName))
	}
	laid := 0
	random := rand.New(rand.NewPCG(1, uint64(rounds)))
	for round := range rounds {
		var running sync.WaitGroup
		for _, f := range all {
			clients.Must(t, os.RemoveAll(filepath.Join(f.ws.Dir, ".terraform")))
			cmd := f.ws.Command(t.Context(), s.bridge, "exec", "--", f.client.Path, "init", "-no-color")
			clients.Must(t, cmd.Start())
			after := time.Duration(random.IntN(600)) * time.Millisecond
			running.Go(func() {
				timer := time.AfterFunc(after, func() { cmd.Process.Kill() })
				defer timer.Stop()
				cmd.Wait() // most are killed
			})
		}
		running.Wait()
		for _, f := range all {
			out, err := init(f)
			if err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			if strings.Contains(out, "Using previously-installed") {
				laid++
			}
			dir := filepath.Join(f.ws.Dir, ".terraform", "providers", filepath.FromSlash(world.Null), f.version, runtime.GOOS+"_"+runtime.GOARCH)
			program, err := os.ReadFile(filepath.Join(dir, "terraform-provider-null_v"+f.version))
			if err != nil || !bytes.Equal(program, programs[f.version]) {
				t.Errorf("round %d: the installed package is damaged: %v\n%s", round, err, out)
			}
			if lock := read(t, filepath.Join(f.ws.Dir, clients.LockFileName)); lock != f.lock {
				t.Errorf("round %d: the lock file changed:\n%s", round, lock)
			}
		}
	}
	if laid == 0 {
		t.Error("no package was laid")
	}
	for _, f := range all {
		if left, err := filepath.Glob(filepath.Join(f.ws.Dir, ".terraform", ".ocibridge-*")); err != nil || len(left) > 0 {
			t.Errorf("%v, %v are left", left, err)
		}
	}
	all[0].ws.MustRun(t, s.bridge, "cache", "verify")
	all[0].ws.MustRun(t, s.bridge, "cache", "prune", "--all")
	var left []string
	err := filepath.WalkDir(filepath.Join(s.ws.Home, ".cache", "ocibridge", "archives"), func(name string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() && e.Name() != "lock" {
			left = append(left, name)
		}
		return err
	})
	if err != nil || len(left) > 0 {
		t.Errorf("cache prune has left %v, %v", left, err)
	}
}
