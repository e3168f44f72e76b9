package pusher_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/verify"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/registry"
	"github.com/ocibridge/ocibridge/internal/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/testkit/recorder"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/trust"
)

// syncBench is a bench with a clock, whose syncs are of one provider.
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
	b.options = pusher.SyncOptions{Push: push, ManifestCache: t.TempDir(), Now: func() time.Time { return b.now }}
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

// sync plans and applies, and returns the plan as text.
func (b *syncBench) sync() (string, *pusher.Outcome, error) {
	b.t.Helper()
	s, plan := b.plan()
	out, err := s.Apply(b.t.Context(), plan, func(*pusher.Result) {})
	return steps(plan), out, err
}

// mustSync asks that the plan reads so, and that all went well.
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

// tags are the repository's tags, sorted, without that of the state.
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

// versions counts the version tags.
func (b *syncBench) versions() (n int) {
	for _, tag := range strings.Fields(b.tags()) {
		if _, ok := ociaddr.Tag(tag).Version(); ok {
			n++
		}
	}
	return n
}

func TestSyncSelection(t *testing.T) {
	all := []string{"1.0.0", "1.1.0", "2.0.0-beta1", "2.0.0", "2.1.0", "3.0.0-rc1"}
	for _, tt := range []struct {
		name, constraint string
		latest           int
		prereleases      bool
		want             string
	}{
		{"constraint", "~> 1.0", 0, false, "+1.1.0 +1.0.0"},
		{"latest of all releases", "", 2, false, "+2.1.0 +2.0.0"},
		{"latest of the constraint", "< 2.1.0", 1, false, "+2.0.0"},
		{"prerelease by name", "2.0.0-beta1", 0, false, "+2.0.0-beta1"},
		{"prereleases", ">= 2.0.0-beta1", 0, true, "+3.0.0-rc1 +2.1.0 +2.0.0 +2.0.0-beta1"},
		{"prereleases below a bound are those of releases below it", "< 3.0.0", 0, true, "+2.1.0 +2.0.0 +2.0.0-beta1 +1.1.0 +1.0.0"},
		{"latest of all with prereleases", "", 1, true, "+3.0.0-rc1"},
		{"nothing", "> 5", 0, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newSyncBench(t, all...)
			b.want.Latest, b.want.Prereleases = tt.latest, tt.prereleases
			if tt.constraint != "" {
				b.constraint(tt.constraint)
			}
			b.registry.Reset()
			_, plan := b.plan()
			if got := steps(plan); got != tt.want {
				t.Errorf("plan %q, want %q", got, tt.want)
			}
			if n := b.registry.Count(recorder.Writes()); n > 0 {
				t.Errorf("a plan made %d writes", n)
			}
		})
	}
}

func TestSyncPlatforms(t *testing.T) {
	b := newSyncBench(t, "1.0.0")
	linux, darwin := provider.MustParsePlatform("linux_amd64"), provider.MustParsePlatform("darwin_arm64")
	b.want.Platforms = []provider.Platform{linux}
	b.mustSync("+1.0.0")
	b.want.Platforms = []provider.Platform{linux, darwin, provider.MustParsePlatform("plan9_amd64")}
	_, plan := b.plan()
	if s := plan.Steps[0]; s.Action != pusher.ActionAdd || !slices.Equal(s.Platforms, []provider.Platform{darwin}) || s.Size <= 0 {
		t.Errorf("step %+v", s)
	}
	b.mustSync("~1.0.0")
	b.mustSync("=1.0.0") // plan9 is offered by nobody
	if got := b.taggedPlatforms(); got != "darwin_arm64 linux_amd64" {
		t.Errorf("tagged: %s", got)
	}
	b.want.Platforms = nil
	b.mustSync("~1.0.0")
	b.mustSync("=1.0.0")
	b.want.Platforms = []provider.Platform{provider.MustParsePlatform("plan9_amd64")}
	b.offer("1.1.0")
	out := b.mustSync("=1.0.0")
	if len(out.Results) > 0 {
		t.Errorf("pushed %v", out.Results)
	}
}

// The registry is asked for its tags once, and with one HEAD for each version. A cooldown
// takes one more HEAD, for the state.
func TestSyncWithNothingToDo(t *testing.T) {
	var versions []string
	for i := range 40 {
		versions = append(versions, fmt.Sprintf("1.%d.0", i))
	}
	b := newSyncBench(t, versions...)
	b.want.Cooldown, b.want.Platforms = time.Hour, []provider.Platform{provider.MustParsePlatform("linux_amd64")}
	if _, out, err := b.sync(); err != nil || len(out.Failures) > 0 || len(out.Results) != 40 {
		t.Fatalf("first sync: %v, %+v", err, out)
	}
	b.registry.Reset()
	got, _, err := b.sync()
	if err != nil || strings.Count(got, "=") != 40 {
		t.Fatalf("%v, plan %q", err, got)
	}
	listings, heads, all := b.registry.Count(recorder.PathSuffix("/tags/list")), b.registry.Count(recorder.Method(http.MethodHead)), b.registry.Count()
	if listings != 1 || heads != 41 || all != 42 {
		t.Errorf("%d listings, %d HEAD, %d requests in all", listings, heads, all)
	}
	b.want.Cooldown = 0
	b.registry.Reset()
	if b.sync(); b.registry.Count(recorder.Method(http.MethodHead)) != 40 || b.registry.Count() != 41 {
		t.Errorf("%d requests without a cooldown", b.registry.Count())
	}
	b.options.Prune = true
	b.registry.Reset()
	if b.sync(); b.registry.Count(recorder.Method(http.MethodHead)) != 41 || b.registry.Count() != 42 {
		t.Errorf("%d requests with --prune", b.registry.Count())
	}
	b.options.Prune = false
	b.want.Cooldown = time.Hour

	// With nothing kept, those that are under way at once learn it by themselves.
	b.options.ManifestCache = t.TempDir()
	b.registry.Reset()
	if got, _, err = b.sync(); err != nil || strings.Count(got, "=") != 40 {
		t.Fatalf("%v, plan %q", err, got)
	}
	if all := b.registry.Count(); all > 1+40+4+2 { // the state takes a HEAD and a GET
		t.Errorf("%d requests with nothing kept", all)
	}
	b.registry.Reset()
	if b.sync(); b.registry.Count() != 42 {
		t.Errorf("%d requests after that", b.registry.Count())
	}
}

func TestCooldown(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0")
	b.want.Cooldown = 24 * time.Hour
	b.constraint("< 2")
	if _, plan := b.plan(); !plan.Steps[0].FirstSync {
		t.Error("the plan does not say that the first sync is why nothing waits")
	}
	b.mustSync("+1.1.0 +1.0.0")
	b.offer("1.2.0", "2.0.0")
	b.mustSync(".1.2.0 =1.1.0 =1.0.0") // seen now
	b.now = b.now.Add(23 * time.Hour)
	_, plan := b.plan()
	if s := plan.Steps[0]; s.Action != pusher.ActionWait || !s.Until.Equal(b.now.Add(time.Hour)) {
		t.Errorf("step %+v", s)
	}
	b.offer("1.3.0")
	b.now = b.now.Add(2 * time.Hour)
	b.mustSync(".1.3.0 +1.2.0 =1.1.0 =1.0.0")
	// 2.0.0 was outside the constraint when it was first seen; it is old enough.
	b.constraint("< 3")
	b.mustSync("+2.0.0 .1.3.0 =1.2.0 =1.1.0 =1.0.0")
	b.want.Latest = 2
	if got, _, _ := b.sync(); got != "=2.0.0 .1.3.0 =1.2.0" {
		t.Errorf("plan %q: what waits does not count among the latest", got)
	}
}

// A first sync that ends before it has noted its versions begins anew, before each of the
// requests that write the state: no version waits.
func TestFirstSyncBrokenOff(t *testing.T) {
	for n := 1; ; n++ {
		b := newSyncBench(t, "1.0.0", "1.1.0", "1.2.0")
		b.want.Cooldown, b.options.Push.Jobs = time.Hour, 1
		s, plan := b.plan()
		b.cutBefore(n)
		out, err := s.Apply(t.Context(), plan, func(*pusher.Result) {})
		b.registry.Intercept(nil)
		if b.state() != nil {
			if n < 5 {
				t.Errorf("the state was written by request %d", n-1)
			}
			return
		}
		if err != nil || len(out.Failures) == 0 || len(out.Results) > 0 {
			t.Fatalf("ended before request %d: %v, %+v", n, err, out)
		}
		b.mustSync("+1.2.0 +1.1.0 +1.0.0")
		b.offer("1.3.0")
		b.mustSync(".1.3.0 =1.2.0 =1.1.0 =1.0.0")
	}
}

func TestCooldownKeepsNothingInADryRun(t *testing.T) {
	b := newSyncBench(t, "1.0.0")
	b.want.Cooldown = time.Hour
	b.plan()
	if n := b.registry.Count(recorder.Writes()); n > 0 {
		t.Errorf("%d writes", n)
	}
}

func TestPrune(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0", "1.2.0")
	b.mustSync("+1.2.0 +1.1.0 +1.0.0")
	b.constraint(">= 1.1")
	_, plan := b.plan()
	if plan.Unasked != 1 || steps(plan) != "=1.2.0 =1.1.0" {
		t.Errorf("without prune: %d unasked, plan %q", plan.Unasked, steps(plan))
	}
	b.options.Prune = true
	b.registry.Reset()
	out := b.mustSync("=1.2.0 =1.1.0 -1.0.0")
	if got := b.tags(); got != "1.1.0 1.2.0" || len(out.Pruned) != 1 || len(out.Warnings) != 0 {
		t.Errorf("tags %q, pruned %v, warnings %v", got, out.Pruned, out.Warnings)
	}
	deletes := b.registry.Requests(recorder.Method(http.MethodDelete))
	if len(deletes) != 6 || !strings.HasSuffix(deletes[0].Path, "/manifests/1.0.0") || !strings.Contains(deletes[1].Path, "sha256:") {
		t.Errorf("deletes, tag first, then index, three packages and evidence: %+v", deletes)
	}
	b.mustSync("=1.2.0 =1.1.0")
	for _, v := range []string{"1.1.0", "1.2.0"} {
		if missing := b.missing(v); missing != "" {
			t.Errorf("%s lost %s", v, missing)
		}
	}
}

// missing names what of a version is gone.
func (b *syncBench) missing(version string) string {
	b.t.Helper()
	v, err := artifact.Read(b.t.Context(), b.repo, widget, provider.MustParseVersion(version))
	if err != nil {
		return err.Error()
	}
	parts := []ocispec.Descriptor{*v.Evidence}
	for _, p := range v.Packages {
		parts = append(parts, p.Manifest, p.Layer())
	}
	for _, d := range parts {
		if ok, err := b.repo.Exists(b.t.Context(), d); err != nil || !ok {
			return d.Digest.String()
		}
	}
	return ""
}

// A source that lists less than before, or fails, takes nothing away.
func TestPruneNeedsTheBlocksWord(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0")
	b.options.Prune = true
	b.mustSync("+1.1.0 +1.0.0")
	b.origin.Remove("acme", "widget", "1.0.0")
	b.mustSync("=1.1.0 =1.0.0")
	b.constraint(">= 1.1")
	b.origin.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusNotFound)
		return true
	})
	if got, out, err := b.sync(); err != nil || len(out.Failures) != 1 || got != "" {
		t.Errorf("plan %q, %+v, %v", got, out, err)
	}
	if got := b.tags(); got != "1.0.0 1.1.0" {
		t.Errorf("tags %q", got)
	}
	b.origin.Intercept(nil)
	b.want.Keep = true
	b.mustSync("=1.1.0")
	if got := b.tags(); got != "1.0.0 1.1.0" {
		t.Errorf("what others keep was pruned: tags %q", got)
	}
}

func TestPruneLimit(t *testing.T) {
	var versions []string
	for i := range 12 {
		versions = append(versions, fmt.Sprintf("1.%d.0", i))
	}
	b := newSyncBench(t, versions...)
	b.want.Platforms = []provider.Platform{provider.MustParsePlatform("linux_amd64")}
	if _, out, err := b.sync(); err != nil || len(out.Failures) > 0 {
		t.Fatal(err, out)
	}
	b.options.Prune = true
	for _, tt := range []struct {
		constraint string
		limit      int
		left       int
		hint       string
	}{
		{">= 1.11", 0, 12, "--prune-limit 11"},
		{">= 1.11", 10, 12, "--prune-limit 11"},
		{"> 2", 0, 12, "--prune-limit 12"},
		{">= 1.10", 0, 2, ""},
		{"> 2", 0, 2, "--prune-limit 2"},
		{"> 2", 1, 2, "--prune-limit 2"},
		{"> 2", 2, 0, ""},
	} {
		b.constraint(tt.constraint)
		b.options.PruneLimit = tt.limit
		_, _, err := b.sync()
		if tt.hint != "" && (!errors.Is(err, pusher.ErrPruneLimit) || !strings.Contains(hint.Of(err), tt.hint)) || tt.hint == "" && err != nil {
			t.Errorf("%s with limit %d: %v, hint %q", tt.constraint, tt.limit, err, hint.Of(err))
		}
		if n := b.versions(); n != tt.left {
			t.Errorf("%s with limit %d: %d versions left, want %d", tt.constraint, tt.limit, n, tt.left)
		}
	}
}

// What other tags name, directly or by an index, stays.
func TestPruneLeavesWhatIsNamed(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0")
	b.mustSync("+1.1.0 +1.0.0")
	desc, err := b.repo.Resolve(t.Context(), "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.repo.Tag(t.Context(), desc, "stable"); err != nil {
		t.Fatal(err)
	}
	b.options.Prune = true
	b.constraint(">= 1.1")
	b.registry.Reset()
	b.mustSync("=1.1.0 -1.0.0")
	if n := b.registry.Count(recorder.Method(http.MethodDelete)); n != 1 || b.tags() != "1.1.0 stable" {
		t.Errorf("%d deletes, tags %q", n, b.tags())
	}
}

// A registry that deletes by digest alone loses the tag with its index, unless
// another tag names that.
func TestPruneByDigest(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0")
	b.mustSync("+1.1.0 +1.0.0")
	b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete || strings.Contains(r.URL.Path, "sha256:") {
			return false
		}
		w.WriteHeader(http.StatusMethodNotAllowed)
		return true
	})
	b.options.Prune = true
	b.constraint(">= 1.1")
	desc, err := b.repo.Resolve(t.Context(), "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.repo.Tag(t.Context(), desc, "stable"); err != nil {
		t.Fatal(err)
	}
	if _, out, err := b.sync(); err != nil || len(out.Failures) != 1 || b.tags() != "1.0.0 1.1.0 stable" {
		t.Fatalf("%v, %+v, tags %q", err, out, b.tags())
	}
	b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete || strings.Contains(r.URL.Path, "sha256:") || strings.HasSuffix(r.URL.Path, "/stable") {
			return false
		}
		w.WriteHeader(http.StatusMethodNotAllowed)
		return true
	})
	if err := (registry.Repository{Repository: b.repo}).Untag(t.Context(), "stable"); err != nil {
		t.Fatal(err)
	}
	if got, out, err := b.sync(); err != nil || len(out.Failures) != 0 || b.tags() != "1.1.0" {
		t.Errorf("%v, plan %q, %+v, tags %q", err, got, out, b.tags())
	}
}

// Where deletes are off, nothing changes and the error says so.
func TestPruneRefused(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0")
	b.mustSync("+1.1.0 +1.0.0")
	b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
		return r.Method == http.MethodDelete
	})
	b.options.Prune = true
	b.constraint(">= 1.1")
	_, out, err := b.sync()
	if err != nil || len(out.Failures) != 1 || len(out.Pruned) > 0 || !strings.Contains(hint.Of(out.Failures[0].Err), "allow deletes") || b.tags() != "1.0.0 1.1.0" {
		t.Errorf("%v, %+v, tags %q", err, out, b.tags())
	}
}

// One version that fails keeps sync from no other, and from pruning.
func TestSyncGoesOn(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0", "1.2.0")
	b.constraint("1.0.0")
	b.mustSync("+1.0.0")
	b.constraint(">= 1.1")
	b.options.Prune = true
	b.origin.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "1.2.0") && strings.HasSuffix(r.URL.Path, ".zip") && r.Method == http.MethodGet {
			fmt.Fprint(w, "something else")
			return true
		}
		return false
	})
	_, out, err := b.sync()
	if err != nil || len(out.Failures) != 1 || out.Failures[0].Version.String() != "1.2.0" || len(out.Results) != 1 {
		t.Errorf("%v, %+v", err, out)
	}
	if got := b.tags(); got != "1.0.0 1.1.0" {
		t.Errorf("tags %q", got)
	}
}

// A sync that is broken off before any of its requests leaves no tag of a version
// whose parts are not all there, and the next one completes it.
func TestSyncBrokenOff(t *testing.T) {
	for n := 1; ; n++ {
		b := newSyncBench(t, "1.0.0", "1.1.0")
		b.options.Prune = true
		b.want.Cooldown = time.Hour
		b.want.Platforms = []provider.Platform{provider.MustParsePlatform("linux_amd64")}
		b.options.Push.Jobs = 1 // so that the nth request is always the same
		b.constraint("1.0.0")
		b.mustSync("+1.0.0")
		b.constraint(">= 1.1")
		reached := b.cutBefore(n)
		s := pusher.NewSyncer(b.options)
		if plan, err := s.Plan(t.Context(), []pusher.Want{b.want}); err == nil {
			s.Apply(t.Context(), plan, func(*pusher.Result) {})
		}
		b.registry.Intercept(nil)
		for _, tag := range strings.Fields(b.tags()) {
			if _, ok := ociaddr.Tag(tag).Version(); !ok {
				continue
			}
			if missing := b.missing(tag); missing != "" {
				t.Fatalf("broken off before request %d: %s lacks %s", n, tag, missing)
			}
		}
		if _, out, err := b.sync(); err != nil || len(out.Failures) > 0 || b.versionTags() != "1.1.0" {
			t.Fatalf("broken off before request %d: the next sync: %v, %+v, tags %q", n, err, out, b.tags())
		}
		b.now = b.now.Add(time.Hour) // what was announced counts as a crash
		if _, out, err := b.sync(); err != nil || len(out.Failures) > 0 || b.tags() != "1.1.0" {
			t.Fatalf("broken off before request %d: an hour later: %v, %+v, tags %q", n, err, out, b.tags())
		}
		if !reached() {
			break
		}
	}
}

// versionTags is tags without announcements: that of a push which was broken off stays
// until it counts as a crash.
func (b *syncBench) versionTags() string {
	b.t.Helper()
	return strings.Join(slices.DeleteFunc(strings.Fields(b.tags()), func(t string) bool {
		_, ok := ociaddr.Tag(t).PartOf()
		return ok
	}), " ")
}

// cutBefore cuts the connection to the registry at the nth request from now on
// and at all that follow; the result reports whether there was an nth.
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

// verifying lets the sync ask what a gateway serves that verifies by pinned keys.
func (b *syncBench) verifying(keys ...string) {
	policy := func(provider.Address) trust.Policy { return trust.Policy{Keys: keys} }
	b.options.Push.Policy = policy
	checker := verify.New(verify.Options{Policy: policy})
	b.options.Served = func(ctx context.Context, store artifact.Fetcher, a provider.Address, v provider.Version, found *artifact.Version) (*artifact.Version, error) {
		out, err := checker.Check(ctx, store, a, v, found)
		if errors.Is(err, verify.ErrRefused) {
			err = fmt.Errorf("%w: %w", pusher.ErrNotServed, err)
		}
		return out, err
	}
}

// TestSyncOfWhatIsNotServed has versions stored that a gateway with verify = "required"
// refuses: none is in place, and all that a push can repair are.
func TestSyncOfWhatIsNotServed(t *testing.T) {
	t.Run("no evidence", func(t *testing.T) {
		b := newSyncBench(t, "1.0.0")
		b.refuseEvidence()
		b.mustSync("+1.0.0")
		b.mustSync("=1.0.0") // nobody asks for evidence
		b.verifying(b.signer.Fingerprint())
		_, out, err := b.sync()
		if err != nil || len(out.Failures) != 1 || !errors.Is(out.Failures[0].Err, pusher.ErrNotServed) || hint.Of(out.Failures[0].Err) == "" {
			t.Errorf("a registry that refuses evidence: %v, %+v", err, out)
		}
		b.registry.Intercept(nil)
		if out := b.mustSync("!1.0.0"); len(out.Results) != 1 || out.Results[0].Verdict != trust.Signed {
			t.Errorf("%+v", out)
		}
		b.mustSync("=1.0.0")
	})
	t.Run("another key", func(t *testing.T) {
		b := newSyncBench(t, "1.0.0")
		b.mustSync("+1.0.0")
		next := pgp.For(t, "Acme, next year")
		b.signer = next
		b.offer("1.0.0")
		b.verifying(next.Fingerprint())
		if out := b.mustSync("!1.0.0"); out.Results[0].Status != pusher.Refreshed || out.Results[0].Fingerprint != next.Fingerprint() {
			t.Errorf("%+v", out.Results[0])
		}
		b.mustSync("=1.0.0")
		b.origin.Remove("acme", "widget", "1.0.0")
		b.offer("1.1.0")
		b.verifying(pgp.For(t, "Mallory").Fingerprint())
		if plan, out, _ := b.sync(); strings.Contains(plan, "=") || len(out.Failures) == 0 || !errors.Is(out.Failures[0].Err, pusher.ErrNotServed) {
			t.Errorf("its origin has it no more: plan %q, %+v", plan, out)
		}
	})
	t.Run("no pinned key", func(t *testing.T) {
		b := newSyncBench(t, "1.0.0")
		b.mustSync("+1.0.0")
		b.verifying()
		if plan, out, _ := b.sync(); plan != "" || len(out.Failures) != 1 || !errors.Is(out.Failures[0].Err, pusher.ErrNotServed) {
			t.Errorf("plan %q, %+v", plan, out)
		}
	})
	t.Run("evidence that is gone", func(t *testing.T) {
		b := newSyncBench(t, "1.0.0")
		b.mustSync("+1.0.0")
		if err := b.repo.Delete(t.Context(), *b.tagged().Evidence); err != nil {
			t.Fatal(err)
		}
		b.verifying(b.signer.Fingerprint())
		b.mustSync("!1.0.0")
		b.mustSync("=1.0.0")
	})
	t.Run("a platform that nobody signed", func(t *testing.T) {
		b := newSyncBench(t, "1.0.0")
		whole := b.build("1.0.0", "content")
		part := *whole
		part.SHA256SUMS = []byte(strings.Join(withoutLine(string(whole.SHA256SUMS), "windows"), "\n"))
		if err := part.Sign(b.signer); err != nil {
			t.Fatal(err)
		}
		b.origin.Add(&part)
		b.want.Platforms = []provider.Platform{provider.MustParsePlatform("linux_amd64"), provider.MustParsePlatform("darwin_arm64")}
		b.mustSync("+1.0.0")
		signed := b.tagged()
		b.origin.Add(whole)
		b.mustPush()
		forged := b.tagged()
		forged.Evidence = signed.Evidence
		index, err := artifact.EncodeIndex(*forged)
		if err != nil {
			t.Fatal(err)
		}
		b.pushManifest(index.Descriptor.MediaType, index.Data, "1.0.0")
		b.verifying(b.signer.Fingerprint())
		b.mustSync("=1.0.0") // nobody wants it
		b.want.Platforms = nil
		b.mustSync("!1.0.0")
		b.mustSync("=1.0.0")
	})
}
