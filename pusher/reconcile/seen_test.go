package reconcile_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// removeState removes the state, as if the repository had none. It resets the recorder.
func (b *bench) removeState() {
	b.T.Helper()
	desc, err := b.Repo.Resolve(b.T.Context(), string(ociaddr.StateTag))
	if err == nil {
		err = b.Repo.Delete(b.T.Context(), desc)
	}
	if err != nil {
		b.T.Fatal(err)
	}
	b.Registry.Reset()
}

// ages returns the versions with a known age. The hour of the sync that first saw a version follows after @. A version
// without @ was in the first sync.
func (b *syncBench) ages() string {
	b.T.Helper()
	s := b.State()
	if s == nil {
		return ""
	}
	var out []string
	for v, at := range s.Seen {
		text := v.String()
		if !at.IsZero() {
			text += at.Format("@15")
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestCooldownInAnotherProvidersRepository shows that a sync fails, and writes no state, if the template names the
// repository of another provider.
func TestCooldownInAnotherProvidersRepository(t *testing.T) {
	b := newSyncBench(t, "1.0.0")
	b.mustSync("+1.0.0")
	b.removeState()
	spec := release.Spec{Host: pushbench.Host, Namespace: "acme", Type: "gadget", Version: "2.0.0", Signer: b.Signer}
	spec.Contents = []release.Content{{OS: "linux", Arch: "amd64", Files: map[string][]byte{"terraform-provider-gadget_v2.0.0": []byte("x")}}}
	b.Origin.Add(release.For(t, spec))
	gadget := *b
	gadget.want.Subject, gadget.want.Cooldown = provider.MustParseAddress(pushbench.Host+"/acme/gadget"), time.Hour
	_, out, err := gadget.sync()
	if err != nil || !errors.Is(failure(out), repo.ErrOccupied) || b.State() != nil {
		t.Errorf("%v, %+v, state %+v", err, out, b.State())
	}
	gadget.options.First = true
	if _, out, err = gadget.sync(); err != nil || !errors.Is(failure(out), repo.ErrOccupied) || b.State() != nil {
		t.Errorf("%v, %+v, state %+v", err, out, b.State())
	}
	b.offer("1.1.0")
	b.want.Cooldown, b.options.First = time.Hour, true
	b.mustSync("+1.1.0 =1.0.0")
}

// TestCooldownWithoutAges shows that a sync with a cooldown needs --first if the repository has versions without ages.
// Such a repository looks the same before a first sync and after the loss of its state. With --first, the sync counts
// as a first sync.
func TestCooldownWithoutAges(t *testing.T) {
	for name, begin := range map[string]func(b *syncBench){
		"no state": func(b *syncBench) { b.removeState() },
		"a state without ages": func(b *syncBench) {
			b.MustRemember(repo.StateChange{Replaced: []artifact.Replaced{pushbench.Lost("x", "0.9.0")}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newSyncBench(t, "1.0.0")
			b.mustSync("+1.0.0")
			begin(b)
			b.offer("1.1.0")
			b.want.Cooldown = 2 * time.Hour
			b.Registry.Reset()
			_, out, err := b.sync()
			if err != nil || len(out.Failures) != 1 || len(out.Results) > 0 || !errors.Is(failure(out), reconcile.ErrNoAges) || out.Failures[0].Subject != pushbench.Widget || !strings.Contains(hint.Of(failure(out)), "ocibridge sync --first") {
				t.Errorf("%v, %+v (%s)", err, out, hint.Of(failure(out)))
			}
			if n := b.Registry.Count(recorder.Writes()); n > 0 || b.tags() != "1.0.0" {
				t.Errorf("%d writes, tags %q", n, b.tags())
			}
			b.options.First = true
			b.plan()
			if n := b.Registry.Count(recorder.Writes()); n > 0 {
				t.Errorf("a plan made %d writes", n)
			}
			b.mustSync("+1.1.0 =1.0.0")
			if got := b.ages(); got != "1.0.0 1.1.0" || !b.State().Cooldown {
				t.Errorf("ages %q, state %+v", got, b.State())
			}

			// After the first sync, --first has no effect.
			b.offer("1.2.0")
			b.mustSync(".1.2.0 =1.1.0 =1.0.0")
			b.options.First = false
			b.mustSync(".1.2.0 =1.1.0 =1.0.0")
			b.now = b.now.Add(2 * time.Hour)
			b.mustSync("+1.2.0 =1.1.0 =1.0.0")
		})
	}
}

// TestUnknownOwnerIsReported shows that a sync warns if a policy of the registry forbids reading the versions that name
// the repository's owner. It warns both in a plan that fails and when it writes the first state.
func TestUnknownOwnerIsReported(t *testing.T) {
	b := newSyncBench(t, "1.0.0")
	b.mustSync("+1.0.0")
	b.removeState()
	b.options.ManifestCache = t.TempDir()
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/manifests/1.0.0") {
			return false
		}
		w.WriteHeader(http.StatusPreconditionFailed)
		fmt.Fprint(w, `{"errors":[{"code":"PROJECTPOLICYVIOLATION","message":"not signed"}]}`)
		return true
	})
	const want = "could not check which provider this repository belongs to"
	b.want.Cooldown = time.Hour
	if _, plan := b.plan(); len(plan.Failures) != 1 || !strings.Contains(strings.Join(plan.Warnings, "\n"), want) {
		t.Errorf("failures %v, warnings %q", plan.Failures, plan.Warnings)
	}
	b.options.First = true
	if _, out, err := b.sync(); err != nil || b.State() == nil || !strings.Contains(strings.Join(out.Warnings, "\n"), want) {
		t.Errorf("%v, state %v, warnings %q", err, b.State(), out.Warnings)
	}
}

// TestCooldownWithoutVersions shows that a repository without versions needs no --first, because the repository cannot
// have lost the ages of versions.
func TestCooldownWithoutVersions(t *testing.T) {
	b := newSyncBench(t, "1.0.0")
	b.MustRemember(repo.StateChange{Replaced: []artifact.Replaced{pushbench.Lost("x", "0.9.0")}})
	b.want.Cooldown = time.Hour
	b.mustSync("+1.0.0")
}

// TestCooldownWithAnUnusableState shows that a sync neither uses nor replaces an invalid state.
func TestCooldownWithAnUnusableState(t *testing.T) {
	b := newSyncBench(t, "1.0.0")
	b.mustSync("+1.0.0")
	desc, err := b.Repo.Resolve(t.Context(), "1.0.0")
	if err == nil {
		err = b.Repo.Tag(t.Context(), desc, string(ociaddr.StateTag))
	}
	if err != nil {
		t.Fatal(err)
	}
	b.want.Cooldown, b.options.First = time.Hour, true
	_, out, err := b.sync()
	if err != nil || !errors.Is(failure(out), artifact.ErrNotProvider) || hint.Of(failure(out)) == "" || b.Current() != desc.Digest {
		t.Errorf("%v, %+v (%s)", err, out, hint.Of(failure(out)))
	}
}

// TestCopyLeavesTheState shows that a copy omits the state. The state describes only the repository that contains it.
func TestCopyLeavesTheState(t *testing.T) {
	b := newSyncBench(t, "1.0.0")
	b.want.Cooldown = time.Hour
	b.mustSync("+1.0.0")
	from := pusher.Stored{Subject: pushbench.Widget, Repository: pushbench.Destination(registry.Repository{Repository: b.Repo}).Repository, Store: b.Repo}
	if b.State() == nil {
		t.Fatal("there is no state to copy")
	}
	b.NewRegistry()
	if _, err := b.CopyWith(from); err != nil {
		t.Fatal(err)
	}
	if b.Tagged() == nil || b.State() != nil {
		t.Errorf("copied: %+v, with the state %+v", b.Tagged(), b.State())
	}
}

// TestCooldownWithoutAList shows that a sync fails while the registry lists no tags, and does not count as a first
// sync. Once the registry lists the tags again, versions still wait.
func TestCooldownWithoutAList(t *testing.T) {
	b := newSyncBench(t, "1.0.0")
	b.want.Cooldown = 2 * time.Hour
	b.mustSync("+1.0.0")
	b.offer("1.1.0")
	b.mustSync(".1.1.0 =1.0.0")
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/tags/list") {
			w.WriteHeader(http.StatusNotFound)
			return true
		}
		return false
	})
	if _, out, err := b.sync(); err != nil || len(out.Failures) != 1 || len(out.Results) > 0 {
		t.Errorf("%v, %+v", err, out)
	}
	b.Registry.Intercept(nil)
	b.now = b.now.Add(time.Hour)
	b.mustSync(".1.1.0 =1.0.0")
	b.now = b.now.Add(time.Hour)
	b.mustSync("+1.1.0 =1.0.0")
}

// TestCooldownOfTwoSyncs shows that, if two concurrent syncs first see a version at different times, the earlier time
// counts. Both syncs succeed in a registry that moves only the state's tag.
func TestCooldownOfTwoSyncs(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0")
	b.want.Cooldown = 2 * time.Hour
	var mu sync.Mutex
	set := map[string]bool{}
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		_, ref, ok := strings.Cut(r.URL.Path, "/manifests/")
		if r.Method != http.MethodPut || !ok || strings.HasPrefix(ref, "sha256:") || ref == string(ociaddr.StateTag) {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		if set[ref] {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"errors":[{"code":"TAG_INVALID","message":"The image tag already exists and cannot be overwritten because the tag is immutable."}]}`)
			return true
		}
		set[ref] = true
		return false
	})
	twice := func() {
		t.Helper()
		first, plan := b.plan()
		second, slow := b.plan()
		if out, err := first.Apply(t.Context(), plan, func(*pusher.Result) {}); err != nil || len(out.Failures) > 0 {
			t.Errorf("%v, %+v", err, out)
		}
		b.now = b.now.Add(time.Hour)
		if out, err := second.Apply(t.Context(), slow, func(*pusher.Result) {}); err != nil || len(out.Failures) > 0 {
			t.Errorf("%v, %+v", err, out)
		}
	}
	twice()
	b.offer("1.2.0")
	twice()
	b.Registry.Intercept(nil) // the earlier time also counts in a registry that moves all tags
	b.offer("1.3.0")
	twice()
	if got := b.ages(); got != "1.0.0 1.1.0 1.2.0@13 1.3.0@14" {
		t.Errorf("ages %q", got)
	}
	b.now = b.now.Add(time.Hour)
	if got, _, _ := b.sync(); got != "+1.3.0 +1.2.0 =1.1.0 =1.0.0" {
		t.Errorf("plan %q", got)
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
	b.mustSync(".1.2.0 =1.1.0 =1.0.0") // this sync sees both new versions
	b.now = b.now.Add(23 * time.Hour)
	_, plan := b.plan()
	if s := plan.Steps[0]; s.Action != pusher.ActionWait || !s.Until.Equal(b.now.Add(time.Hour)) {
		t.Errorf("step %+v", s)
	}
	b.offer("1.3.0")
	b.now = b.now.Add(2 * time.Hour)
	b.mustSync(".1.3.0 +1.2.0 =1.1.0 =1.0.0")
	// 2.0.0 was outside the constraint when a sync first saw it, and is old enough by now.
	b.constraint("< 3")
	b.mustSync("+2.0.0 .1.3.0 =1.2.0 =1.1.0 =1.0.0")
	b.want.Latest = 2
	if got, _, _ := b.sync(); got != "=2.0.0 .1.3.0 =1.2.0" {
		t.Errorf("plan %q: waiting versions must not count as latest", got)
	}
}

// TestFirstSyncBrokenOff shows that a first sync that is interrupted before it has written the state pushes nothing.
// The next sync counts as a first sync again, and no version waits.
func TestFirstSyncBrokenOff(t *testing.T) {
	for n := 1; ; n++ {
		b := newSyncBench(t, "1.0.0", "1.1.0", "1.2.0")
		b.want.Cooldown, b.options.Push.Jobs = time.Hour, 1
		s, plan := b.plan()
		b.cutBefore(n)
		out, err := s.Apply(t.Context(), plan, func(*pusher.Result) {})
		b.Registry.Intercept(nil)
		if b.State() != nil {
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
	if n := b.Registry.Count(recorder.Writes()); n > 0 {
		t.Errorf("%d writes", n)
	}
}
