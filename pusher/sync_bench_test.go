package pusher_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/registry"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// syncBench is a bench for syncs of one provider. It has a clock of its own.
type syncBench struct {
	*bench
	want    pusher.Want
	options pusher.SyncOptions
	now     time.Time
}

func newSyncBench(t *testing.T, versions ...string) *syncBench {
	b := &syncBench{bench: newBench(t), now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	b.origin.Remove("acme", "widget", "1.0.0")
	b.offer(versions...)
	b.want = pusher.Want{Provider: widget, Source: b.client}
	push := b.bench.options
	push.Destination = func(context.Context, provider.Address) (pusher.Destination, error) {
		return pusher.Destination{Repository: ociaddr.Repository{Registry: "registry.test", Name: "acme/widget"}, Store: registry.Repository{Repository: b.repo}}, nil
	}
	push.Now = func() time.Time { return b.now }
	b.options = pusher.SyncOptions{Push: push, ManifestCache: t.TempDir()}
	return b
}

func (b *syncBench) offer(versions ...string) {
	for _, v := range versions {
		b.origin.Add(b.build(v, "content"))
	}
}

func (b *syncBench) constraint(s string) {
	b.t.Helper()
	var err error
	if b.want.Versions, err = provider.ParseConstraint(s); err != nil {
		b.t.Fatal(err)
	}
}

func (b *syncBench) plan() (*pusher.Syncer, *pusher.Plan) {
	b.t.Helper()
	s := pusher.NewSyncer(b.options)
	plan, err := s.Plan(b.t.Context(), []pusher.Want{b.want})
	if err != nil {
		b.t.Fatal(err)
	}
	return s, plan
}

// sync plans a sync and applies the plan. It returns the plan as text, in the format of
// steps.
func (b *syncBench) sync() (string, *pusher.Outcome, error) {
	b.t.Helper()
	s, plan := b.plan()
	out, err := s.Apply(b.t.Context(), plan, func(*pusher.Result) {})
	return steps(plan), out, err
}

// mustSync runs a sync. It fails the test unless the plan is want and the sync succeeds.
func (b *syncBench) mustSync(want string) *pusher.Outcome {
	b.t.Helper()
	got, out, err := b.sync()
	if err != nil || len(out.Failures) > 0 {
		b.t.Fatalf("sync: %v, failures %v", err, out.Failures)
	}
	if got != want {
		b.t.Fatalf("plan %q, want %q", got, want)
	}
	return out
}

func steps(p *pusher.Plan) string {
	signs := map[pusher.Action]string{pusher.ActionPush: "+", pusher.ActionAdd: "~", pusher.ActionRepair: "!", pusher.ActionKeep: "=", pusher.ActionPrune: "-", pusher.ActionWait: "."}
	var out []string
	for _, s := range p.Steps {
		out = append(out, signs[s.Action]+s.Version.String())
	}
	return strings.Join(out, " ")
}

// tags returns the tags of the repository, sorted and without the tag of the state.
func (b *syncBench) tags() string {
	b.t.Helper()
	var out []string
	if err := b.repo.Tags(b.t.Context(), "", func(page []string) error {
		for _, t := range page {
			if ociaddr.Tag(t) != ociaddr.StateTag {
				out = append(out, t)
			}
		}
		return nil
	}); err != nil {
		b.t.Fatal(err)
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
	b.t.Helper()
	return strings.Join(slices.DeleteFunc(strings.Fields(b.tags()), func(t string) bool {
		_, ok := ociaddr.Tag(t).PartOf()
		return ok
	}), " ")
}

// cutBefore makes the nth request from now to the registry, and all later requests, fail with
// a broken connection. reached reports whether the nth request was sent.
func (b *syncBench) cutBefore(n int) (reached func() bool) {
	var count atomic.Int64
	b.registry.Intercept(func(http.ResponseWriter, *http.Request) bool {
		if count.Add(1) >= int64(n) {
			panic(http.ErrAbortHandler)
		}
		return false
	})
	return func() bool { return count.Load() >= int64(n) }
}

// failure returns the failures of a sync as one error, or nil if there are none.
func failure(out *pusher.Outcome) error {
	var all []error
	for _, f := range out.Failures {
		all = append(all, f.Err)
	}
	return errors.Join(all...)
}
