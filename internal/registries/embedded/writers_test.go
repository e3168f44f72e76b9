package embedded_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/registries/embedded"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
)

// TestWritersHoldTheLock shows that pushes, copies, syncs and prunes hold the lock while they
// write, and none afterwards. It also shows that a prune succeeds if a garbage collection has
// already deleted the indexes that the repository's state notes for the prune.
func TestWritersHoldTheLock(t *testing.T) {
	f := newGCFaults(t, rand.New(rand.NewPCG(2, 2)))
	r := open(t, t.TempDir())
	var mu sync.Mutex
	writes, doing := 0, map[string]bool{}
	w := newGCWriter(r)
	w.step = func(request string) {
		if strings.HasPrefix(request, "GET ") || strings.HasPrefix(request, "HEAD ") {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if writes++; w.held.Load() == 0 {
			t.Errorf("without the lock: %s", request)
		}
	}
	w.say = func(event string) {
		mu.Lock()
		defer mu.Unlock()
		doing[strings.TrimPrefix(event, "lock ")] = true
	}
	done := func(what string) {
		t.Helper()
		if writes == 0 || w.held.Load() != 0 {
			t.Errorf("%s: %d writes, %d locks are left", what, writes, w.held.Load())
		}
		writes = 0
	}

	source := testorigin.Client(gcHost, f.originURL)
	p := pusher.New(pusher.Options{Destination: w.destination})
	release := func(version string, platforms ...provider.Platform) *origin.Release {
		t.Helper()
		listing, err := source.Versions(t.Context(), gcWidget)
		f.check(err)
		rel, err := source.Release(t.Context(), gcWidget, listing, provider.MustParseVersion(version), platforms)
		f.check(err)
		return rel
	}
	for _, rel := range []*origin.Release{release("1.0.0"), release("2.0.0", provider.MustParsePlatform("linux_amd64")), release("2.0.0", provider.MustParsePlatform("linux_arm64"))} {
		_, err := p.Push(t.Context(), rel)
		f.check(err)
		done("push")
	}
	f.check(p.Summarize(t.Context()))
	done("summary")

	other := open(t, t.TempDir())
	repo, err := r.Repository(gcWidget.Path())
	f.check(err)
	to := newGCWriter(other)
	to.step, to.say = func(request string) {
		if !strings.HasPrefix(request, "GET ") && !strings.HasPrefix(request, "HEAD ") && to.held.Load() == 0 {
			t.Errorf("copy without the lock: %s", request)
		}
	}, w.say
	stored := pusher.Stored{Subject: gcWidget, Repository: ociaddr.Repository{Registry: embedded.Host, Name: gcWidget.Path()}, Store: registry.ReadOnly{Repository: repo}}
	_, err = pusher.New(pusher.Options{Destination: to.destination}).Copy(t.Context(), stored, provider.MustParseVersion("1.0.0"), nil)
	f.check(err)

	if freed := collect(t, r); freed.Blobs == 0 {
		t.Errorf("the partial pushes leave no garbage: %+v", freed)
	}
	versions, err := provider.ParseConstraint("1.0.0")
	f.check(err)
	syncer := reconcile.NewSyncer(reconcile.Options{Push: pusher.Options{Destination: w.destination}, First: true, Prune: true})
	plan, err := syncer.Plan(t.Context(), []reconcile.Want{{Subject: gcWidget, Source: source, Versions: versions, Cooldown: time.Hour}})
	f.check(err)
	if writes > 0 {
		t.Errorf("a plan writes %d times", writes)
	}
	outcome, err := syncer.Apply(t.Context(), plan, func(*pusher.Result) {})
	f.check(err)
	if len(outcome.Pruned) != 1 || len(outcome.Failures)+len(outcome.Warnings) > 0 {
		t.Errorf("%+v", outcome)
	}
	done("sync")
	const widget = gcHost + "/acme/widget"
	want := []string{"prune of " + widget, "push of " + widget + " 1.0.0", "push of " + widget + " 2.0.0", "summary of " + widget, "sync of " + widget}
	if got := slices.Sorted(maps.Keys(doing)); !slices.Equal(got, want) {
		t.Errorf("the locks are for %q, want %q", got, want)
	}
}

// TestLockEnds shows that the wait for a lock ends with its context.
func TestLockEnds(t *testing.T) {
	r := open(t, t.TempDir())
	gcRepository(t, r, "host/acme/a").manifest("", nil, "garbage")
	inside, may := make(chan struct{}), make(chan struct{})
	pause := sync.OnceFunc(func() { close(inside); <-may })
	r.SetBeforeFile(func(operation, _ string) {
		if operation == "remove" {
			pause()
		}
	})
	done := make(chan error)
	go func() {
		_, err := r.GC(t.Context(), embedded.GCOptions{})
		done <- err
	}()
	<-inside
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if unlock, err := r.Lock(ctx, "test"); err != context.Canceled {
		t.Errorf("%v", err)
		unlock()
	}
	close(may)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
