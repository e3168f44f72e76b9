package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// stored returns the size in bytes of all files in the embedded registry.
func (s *scene) stored() (size int64) {
	s.t.Helper()
	err := filepath.WalkDir(filepath.Join(s.data, "registry"), func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	clients.Must(s.t, err)
	return size
}

// collect runs gc, and returns the number of bytes that gc has freed, or can free.
func (s *scene) collect(args ...string) int64 {
	s.t.Helper()
	r := s.run(append([]string{"gc", "--data", s.data, "--output", "json"}, args...)...)
	var freed struct{ Bytes int64 }
	if err := json.Unmarshal([]byte(r.stdout), &freed); err != nil || r.status != 0 || r.stderr != "" {
		s.t.Fatalf("gc: %+v, %v", r, err)
	}
	return freed.Bytes
}

// TestGC prunes versions and collects the garbage beside a running gateway. It shows that the bytes
// are freed, and that the gateway serves the version that is left.
func TestGC(t *testing.T) {
	t.Parallel()
	k := newKilledGateway(t, rand.New(rand.NewPCG(1, 0)))
	for range 2 {
		k.ws.MustRun(t, k.bridge, k.push(k.release(1<<20).Version)...)
	}
	g := k.serve()
	defer g.Stop()
	for _, r := range k.releases {
		if n := k.checkVersion(g, r); n != 2 {
			t.Errorf("%s has %d platforms", r.Version, n)
		}
	}
	if n := k.collect(); n > 100<<10 {
		t.Errorf("%d bytes are freed while each version has a tag", n)
	}
	only := k.scene.config(fmt.Sprintf("provider %q {\n  versions = \"1.0.1\"\n}\n", killedProvider))
	k.ws.MustRun(t, k.bridge, "sync", "--prune", "--data", k.data, only)
	before, can := k.stored(), k.collect("--dry-run")
	var packages int64
	for _, i := range []int{0, 2} {
		for _, p := range k.releases[i].Packages {
			packages += p.Size
		}
	}
	if can < packages || k.stored() != before {
		t.Errorf("%d bytes can be freed, want at least %d", can, packages)
	}
	if freed := k.collect(); freed != can {
		t.Errorf("%d bytes are freed, want %d", freed, can)
	}
	if after := k.stored(); before-after < can {
		t.Errorf("%d bytes are left of %d", after, before)
	}
	for i, want := range []int{0, 2, 0} {
		if n := k.checkVersion(g, k.releases[i]); n != want {
			t.Errorf("%s has %d platforms, want %d", k.releases[i].Version, n, want)
		}
	}
	k.ws.MustRun(t, k.bridge, k.push("1.0.0")...)
	if n := k.checkVersion(g, k.releases[0]); n != 2 {
		t.Errorf("1.0.0, pushed again, has %d platforms", n)
	}
	if out := k.ws.MustRun(t, k.bridge, "verify", "--data", k.data); !strings.Contains(out, "1.0.1") {
		t.Errorf("verify: %s", out)
	}
}

// shortCollections is the number of rounds of TestGCKilled if OCIBRIDGE_KILLS is not set.
const shortCollections = 5

// TestGCKilled collects garbage beside a gateway that pulls through and beside pushes, and kills
// the collection or the push at a random moment. It shows that every version that the gateway
// offers is complete, and that the last collection leaves nothing to free.
func TestGCKilled(t *testing.T) {
	t.Parallel()
	seed := testkit.Number(t, "OCIBRIDGE_SEED", uint64(time.Now().UnixNano()))
	t.Logf("OCIBRIDGE_SEED=%d repeats this run's random choices", seed)
	k := newKilledGateway(t, rand.New(rand.NewPCG(seed, 1)))
	rounds := int(testkit.Number(t, "OCIBRIDGE_KILLS", shortCollections))
	for range rounds {
		k.release(50 << 10)
	}
	g, err := world.Serve(k.ws, "--http", "--data", k.data, k.scene.config(fmt.Sprintf("pull_through {\n  include = [\"%s/acme/*\"]\n}\n", world.Host)))
	clients.Must(t, err)
	defer k.end("the gateway", g)
	kills := 0
	for _, r := range k.releases[1:] {
		args := append(k.push(r.Version), "--platform", "linux_"+[]string{"amd64", "arm64"}[k.random.IntN(2)])
		if k.random.IntN(2) == 0 {
			args = append(k.push(k.releases[0].Version), "--force")
		}
		var all sync.WaitGroup
		all.Go(func() {
			for _, p := range r.Packages {
				status, body, err := k.get(t.Context(), g, r.Version+"/"+p.OS+"_"+p.Arch+"/"+p.Filename)
				if err != nil || status != http.StatusOK || !bytes.Equal(body, p.Data) {
					t.Errorf("%s: %d with %d bytes, %v", p.Filename, status, len(body), err)
				}
			}
		})
		var collected, pushed bytes.Buffer
		gc, push := k.ws.Command(t.Context(), k.bridge, "gc", "--data", k.data), k.ws.Command(t.Context(), k.bridge, args...)
		gc.Stdout, gc.Stderr, push.Stdout, push.Stderr = &collected, &collected, &pushed, &pushed
		clients.Must(t, gc.Start())
		clients.Must(t, push.Start())
		time.Sleep(time.Duration(k.random.IntN(300)) * time.Millisecond) // the kill comes at a random moment
		killed := k.random.IntN(3)
		switch killed {
		case 0:
			_ = gc.Process.Kill() // it might have ended
			kills++
		case 1:
			_ = push.Process.Kill()
			kills++
		}
		if err := gc.Wait(); err != nil && killed != 0 {
			t.Errorf("gc: %v\n%s", err, collected.String())
		}
		if err := push.Wait(); err != nil && killed != 1 {
			t.Errorf("push: %v\n%s", err, pushed.String())
		}
		all.Wait()
		if k.checkVersion(g, k.releases[0]) != 2 {
			t.Error("a version that was there is not complete")
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	clients.Must(t, g.Stop()) // it stores what it has pulled through
	k.collect()
	if n := k.collect(); n != 0 {
		t.Errorf("a second collection frees %d bytes", n)
	}
	if r := k.run("verify", "--data", k.data); r.status != 0 {
		t.Errorf("verify: %+v", r)
	}
	again := k.serve()
	defer k.end("the one after it", again)
	for _, r := range k.releases {
		k.checkVersion(again, r)
	}
	t.Logf("%d rounds, %d kills", rounds, kills)
}
