package reconcile_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// bench is the bench of this package's tests.
type bench struct{ *pushbench.Bench }

func newBench(t *testing.T) *bench { return &bench{pushbench.New(t)} }

// syncBench is a bench for syncs of one provider. It has a clock of its own.
type syncBench struct {
	*bench
	want    reconcile.Want
	options reconcile.Options
	now     time.Time
}

func newSyncBench(t *testing.T, versions ...string) *syncBench {
	b := &syncBench{bench: newBench(t), now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	b.Origin.Remove("acme", "widget", "1.0.0")
	b.offer(versions...)
	b.want = reconcile.Want{Subject: pushbench.Widget, Source: b.Client}
	push := b.bench.Options
	push.Destination = func(context.Context, subject.Address) (repo.Destination, error) {
		return repo.Destination{Repository: ociaddr.Repository{Registry: "registry.test", Name: "acme/widget"}, Store: registry.Repository{Repository: b.Repo}}, nil
	}
	push.Now = func() time.Time { return b.now }
	b.options = reconcile.Options{Push: push, ManifestCache: t.TempDir()}
	return b
}

func (b *syncBench) offer(versions ...string) {
	for _, v := range versions {
		b.Origin.Add(b.Build(v, "content"))
	}
}

func (b *syncBench) constraint(s string) {
	b.T.Helper()
	var err error
	if b.want.Versions, err = provider.ParseConstraint(s); err != nil {
		b.T.Fatal(err)
	}
}

func (b *syncBench) plan() (*reconcile.Syncer, *reconcile.Plan) {
	b.T.Helper()
	s := reconcile.NewSyncer(b.options)
	plan, err := s.Plan(b.T.Context(), []reconcile.Want{b.want})
	if err != nil {
		b.T.Fatal(err)
	}
	return s, plan
}

// sync plans a sync and applies the plan. It returns the plan as text, in the format of
// steps.
func (b *syncBench) sync() (string, *reconcile.Outcome, error) {
	b.T.Helper()
	s, plan := b.plan()
	out, err := s.Apply(b.T.Context(), plan, func(*pusher.Result) {})
	return steps(plan), out, err
}

// mustSync runs a sync. It fails the test unless the plan is want and the sync succeeds.
func (b *syncBench) mustSync(want string) *reconcile.Outcome {
	b.T.Helper()
	got, out, err := b.sync()
	if err != nil || len(out.Failures) > 0 {
		b.T.Fatalf("sync: %v, failures %v", err, out.Failures)
	}
	if got != want {
		b.T.Fatalf("plan %q, want %q", got, want)
	}
	return out
}

func steps(p *reconcile.Plan) string {
	signs := map[pusher.Action]string{pusher.ActionPush: "+", pusher.ActionAdd: "~", pusher.ActionRepair: "!", pusher.ActionKeep: "=", pusher.ActionPrune: "-", pusher.ActionWait: "."}
	var out []string
	for _, s := range p.Steps {
		out = append(out, signs[s.Action]+s.Version.String())
	}
	return strings.Join(out, " ")
}

// tags returns the tags of the repository, sorted and without the tag of the state.
func (b *syncBench) tags() string {
	b.T.Helper()
	var out []string
	if err := b.Repo.Tags(b.T.Context(), "", func(page []string) error {
		for _, t := range page {
			if ociaddr.Tag(t) != ociaddr.StateTag {
				out = append(out, t)
			}
		}
		return nil
	}); err != nil {
		b.T.Fatal(err)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// versions counts the tags of the repository that name versions.
func (b *syncBench) versions() (n int) {
	for _, tag := range strings.Fields(b.tags()) {
		if _, ok := ociaddr.Tag(tag).Version(); ok {
			n++
		}
	}
	return n
}

// versionTags returns the tags without announcement tags. The announcement of an
// interrupted push stays until the push counts as crashed.
func (b *syncBench) versionTags() string {
	b.T.Helper()
	return strings.Join(slices.DeleteFunc(strings.Fields(b.tags()), func(t string) bool {
		_, ok := ociaddr.Tag(t).PartOf()
		return ok
	}), " ")
}

// cutBefore makes the nth request from now to the registry, and all later requests, fail with
// a broken connection. reached reports whether the nth request was sent.
func (b *syncBench) cutBefore(n int) (reached func() bool) {
	var count atomic.Int64
	b.Registry.Intercept(func(http.ResponseWriter, *http.Request) bool {
		if count.Add(1) >= int64(n) {
			panic(http.ErrAbortHandler)
		}
		return false
	})
	return func() bool { return count.Load() >= int64(n) }
}

// failure returns the failures of a sync as one error, or nil if there are none.
func failure(out *reconcile.Outcome) error {
	var all []error
	for _, f := range out.Failures {
		all = append(all, f.Err)
	}
	return errors.Join(all...)
}
