package embedded_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/internal/registries/embedded"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
)

// shortGCRounds is the number of rounds of TestGCKilled if OCIBRIDGE_GC_ROUNDS is not set.
const shortGCRounds = 10

// gcFaults are the parts of TestGCKilled that all rounds share.
type gcFaults struct {
	*testing.T
	random    *rand.Rand
	originURL string
	template  string // a data folder: version 1.0.0 is tagged, and 2.0.0 has lost its tag
	steps     int    // of a garbage collection of this folder
	lockStep  int    // the step that waits for the lock
	firstStep int    // the first step that removes something
	requests  int    // of a push of version 2.0.0
}

// TestGCKilled runs a garbage collection beside a push or pull-through, each in a process of its
// own. It pauses the collection before each of its file operations in turn, and the writer before
// one of its requests. It then kills one of them, or lets both continue. It shows that no tagged
// version is ever damaged, that no process fails because of the other, and that the next
// collection frees everything else.
func TestGCKilled(t *testing.T) {
	testkit.LeaveToAll(t)
	seed := testkit.Number(t, "OCIBRIDGE_SEED", uint64(time.Now().UnixNano()))
	t.Logf("OCIBRIDGE_SEED=%d repeats this run's random choices", seed)
	f := newGCFaults(t, rand.New(rand.NewPCG(seed, 0)))
	rounds := int(testkit.Number(t, "OCIBRIDGE_GC_ROUNDS", shortGCRounds))
	stride := max(1, f.steps/rounds)
	outcomes := map[string]int{}
	for i := range rounds {
		pause := 1 + (i*stride+f.random.IntN(stride))%f.steps
		what := f.round(i, pause)
		outcomes[what]++
		if t.Failed() {
			t.Fatalf("in round %d, paused before step %d of %d: %s", i, pause, f.steps, what)
		}
	}
	t.Logf("%d rounds at %d steps of the collection, %d of them with the lock, and %d requests of a push: %v", rounds, f.steps, f.steps-f.lockStep, f.requests, outcomes)
	if len(outcomes) < 3 {
		t.Error("there are too few kinds of rounds")
	}
}

// TestGCCrashes ends a garbage collection before each of its operations that changes something. It
// shows that every manifest that is left has all of its content, and that the next collection
// deletes the rest.
func TestGCCrashes(t *testing.T) {
	f := newGCFaults(t, rand.New(rand.NewPCG(1, 1)))
	whole := f.newFolder()
	collect(t, open(t, whole))
	want := filesOf(t, whole)
	for n := f.firstStep; n <= f.steps; n++ {
		dir := f.newFolder()
		r := open(t, dir)
		steps := 0
		r.SetBeforeFile(func(string, string) {
			if steps++; steps == n {
				panic(n)
			}
		})
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("there is no step %d", n)
				}
			}()
			collect(t, r)
		}()
		r.SetBeforeFile(func(string, string) {})
		repo, err := r.Repository(gcWidget.Path())
		f.check(err)
		f.closed(dir, repo)
		collect(t, r)
		if !maps.Equal(filesOf(t, dir), want) {
			t.Errorf("after a crash before step %d, the next collection leaves other files", n)
		}
		f.check(errors.Join(r.Close(), os.RemoveAll(dir)))
	}
}

func newGCFaults(t *testing.T, random *rand.Rand) *gcFaults {
	f := &gcFaults{T: t, random: random, template: t.TempDir()}
	o := testorigin.New(testorigin.Options{})
	signer := pgp.For(t, "Acme")
	for _, version := range []string{"1.0.0", "2.0.0"} {
		spec := release.Spec{Host: gcHost, Namespace: "acme", Type: "widget", Version: version, Signer: signer}
		for _, arch := range []string{"amd64", "arm64"} {
			spec.Contents = append(spec.Contents, release.Content{OS: "linux", Arch: arch, Files: map[string][]byte{"terraform-provider-widget_v" + version: []byte(version + arch)}})
		}
		o.Add(release.For(t, spec))
	}
	server := httptest.NewServer(o)
	t.Cleanup(server.Close)
	f.originURL = server.URL

	r := open(t, f.template)
	w := newGCWriter(r)
	for _, version := range []string{"1.0.0", "2.0.0"} {
		f.check(pushWidget(t.Context(), w, f.originURL, version))
	}
	repo, err := r.Repository(gcWidget.Path())
	f.check(err)
	f.check(registry.Repository{Repository: repo}.Untag(t.Context(), "2.0.0"))
	upload := storage(f.template, "repositories", gcWidget.Path(), "_uploads", "4711", "data")
	f.check(errors.Join(os.MkdirAll(filepath.Dir(upload), 0o700), os.WriteFile(upload, []byte("half"), 0o600)))

	dir := f.newFolder()
	collected := open(t, dir)
	collected.SetBeforeFile(func(operation, _ string) {
		f.steps++
		switch {
		case operation == "lock":
			f.lockStep = f.steps
		case operation == "remove" && f.firstStep == 0:
			f.firstStep = f.steps
		}
	})
	collect(t, collected)
	again := newGCWriter(collected)
	again.step = func(string) { f.requests++ }
	f.check(pushWidget(t.Context(), again, f.originURL, "2.0.0"))
	if f.lockStep < 20 || f.firstStep < f.lockStep || f.steps-f.firstStep < 30 || f.requests < 10 {
		t.Fatalf("a collection has %d steps, the lock is step %d, and a push has %d requests", f.steps, f.lockStep, f.requests)
	}
	return f
}

func (f *gcFaults) check(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *gcFaults) newFolder() string {
	f.Helper()
	dir := f.TempDir()
	f.check(os.CopyFS(dir, os.DirFS(f.template)))
	return dir
}

// round runs one garbage collection and one writer, and checks the data folder. It returns what
// was done to them.
func (f *gcFaults) round(i, pause int) (what string) {
	dir := f.newFolder()
	defer os.RemoveAll(dir)
	role := []string{"push", "pull"}[i%2]
	var gc, writer *gcProcess
	holding := false // the writer has paused while it has the lock
	startGC := func() {
		gc = startGCProcess(f.T, "gc", dir, f.originURL, pause)
		gc.await("paused", "wait")
	}
	startWriter := func(mayLock bool) {
		writer = startGCProcess(f.T, role, dir, f.originURL, 1+f.random.IntN(f.requests))
		if writer.await("paused", "lock") == "lock" && mayLock {
			holding = writer.await("paused") == "paused"
		}
	}
	if f.random.IntN(2) == 0 {
		what = "writer first, "
		startWriter(true)
		startGC()
	} else {
		what = "gc first, "
		startGC()
		startWriter(pause <= f.lockStep)
	}

	switch f.random.IntN(3) {
	case 0:
		what += "gc killed"
		gc.kill()
	case 1:
		what += role + " killed"
		writer.kill()
		holding = false
	default:
		what += "none killed"
		gc.resume()
		if holding && gc.last != "wait" && gc.await("wait") == "done" {
			f.Errorf("gc ends beside a %s that holds the lock", role)
		}
	}
	writer.resume()
	writer.finish()
	gc.resume()
	gc.finish()
	f.verify(dir, !writer.killed)
	return what
}

// verify checks that all tagged versions in a data folder are complete, before and after the next
// garbage collection, and that the collection deletes everything else. A writer that was killed can
// store its version afterwards.
func (f *gcFaults) verify(dir string, written bool) {
	f.Helper()
	r, err := embedded.Open(dir, nil)
	f.check(err)
	defer r.Close()
	repo, err := r.Repository(gcWidget.Path())
	f.check(err)
	f.closed(dir, repo)
	f.tagged(repo, "1.0.0", true)
	f.tagged(repo, "2.0.0", written)
	if f.random.IntN(2) == 0 { // before the collection, so that the push finds what is left
		f.check(pushWidget(f.Context(), newGCWriter(r), f.originURL, "2.0.0"))
		f.tagged(repo, "2.0.0", true)
	}
	collect(f.T, r)
	f.tagged(repo, "1.0.0", true)
	found := f.tagged(repo, "2.0.0", written)
	reached := map[string]bool{}
	for _, tag := range tags(f.T, repo) {
		f.reach(repo, tag, reached)
	}
	for blob := range blobsOf(f.T, dir) {
		if !reached[blob] {
			f.Errorf("the blob %s is left", blob)
		}
	}
	for name := range filesOf(f.T, dir) {
		if base := path.Base(name); base != "link" && base != "data" || strings.Contains(name, "_uploads") {
			f.Errorf("%s is left", name)
		}
	}
	f.closed(dir, repo)
	locks, err := os.ReadDir(filepath.Join(dir, "locks"))
	if err != nil || len(locks) != 1 {
		f.Errorf("locks that are left: %v, %v", locks, err)
	}
	if !found {
		f.check(pushWidget(f.Context(), newGCWriter(r), f.originURL, "2.0.0"))
		f.tagged(repo, "2.0.0", true)
	}
}

// tagged checks that a version is complete if it has a tag, and reports whether it has one.
func (f *gcFaults) tagged(repo *remote.Repository, version string, want bool) bool {
	f.Helper()
	if _, err := repo.Resolve(f.Context(), version); err != nil {
		if want || !errors.Is(err, errdef.ErrNotFound) {
			f.Errorf("%s: %v", version, err)
		}
		return false
	}
	f.reach(repo, version, map[string]bool{})
	return true
}

// reach fetches a manifest with all of its content, and adds the digests to reached.
func (f *gcFaults) reach(repo *remote.Repository, reference string, reached map[string]bool) {
	f.Helper()
	desc, err := repo.Resolve(f.Context(), reference)
	if err != nil {
		f.Errorf("%s: %v", reference, err)
		return
	}
	reached[desc.Digest.Encoded()] = true
	data, err := content.FetchAll(f.Context(), repo, desc)
	var m struct {
		Config    *ocispec.Descriptor
		Layers    []ocispec.Descriptor
		Manifests []ocispec.Descriptor
	}
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil {
		f.Errorf("%s: %v", reference, err)
		return
	}
	if m.Config != nil {
		m.Layers = append(m.Layers, *m.Config)
	}
	for _, blob := range m.Layers {
		reached[blob.Digest.Encoded()] = true
		if _, err := content.FetchAll(f.Context(), repo, blob); err != nil {
			f.Errorf("blob of %s: %v", reference, err)
		}
	}
	for _, child := range m.Manifests {
		f.reach(repo, child.Digest.String(), reached)
	}
}

// closed checks that every manifest in the repository has all of its content, even if no tag
// reaches the manifest. A push does not send the content of a manifest again that it finds.
func (f *gcFaults) closed(dir string, repo *remote.Repository) {
	f.Helper()
	for name := range filesOf(f.T, dir) {
		if strings.Contains(name, "/_manifests/revisions/") && path.Base(name) == "link" {
			f.reach(repo, fmt.Sprint("sha256:", path.Base(path.Dir(name))), map[string]bool{})
		}
	}
}
