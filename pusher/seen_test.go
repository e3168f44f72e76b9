package pusher_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/registry"
	"github.com/ocibridge/ocibridge/internal/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/testkit/release"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// state is the state of the repository; nil for none.
func (b *bench) state() *artifact.State {
	b.t.Helper()
	s, _, err := artifact.ReadState(b.t.Context(), b.repo, widget)
	if err != nil && !errors.Is(err, errdef.ErrNotFound) {
		b.t.Fatal(err)
	}
	return s
}

// ages are the versions whose age is known, with the hour at which they were seen.
func (b *syncBench) ages() string {
	b.t.Helper()
	s := b.state()
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

// A provider whose template leads to another one's repository leaves nothing in it.
func TestCooldownInAnotherProvidersRepository(t *testing.T) {
	b := newSyncBench(t, "1.0.0")
	b.mustSync("+1.0.0")
	spec := release.Spec{Host: host, Namespace: "acme", Type: "gadget", Version: "2.0.0", Signer: b.signer}
	spec.Contents = []release.Content{{OS: "linux", Arch: "amd64", Files: map[string][]byte{"terraform-provider-gadget_v2.0.0": []byte("x")}}}
	b.origin.Add(release.For(t, spec))
	gadget := *b
	gadget.want.Provider, gadget.want.Cooldown = provider.MustParseAddress(host+"/acme/gadget"), time.Hour
	_, out, err := gadget.sync()
	if err != nil || !errors.Is(out.Err(), pusher.ErrOccupied) || b.state() != nil {
		t.Errorf("%v, %+v, state %+v", err, out, b.state())
	}
	gadget.options.First = true
	if _, out, err = gadget.sync(); err != nil || !errors.Is(out.Err(), pusher.ErrOccupied) || b.state() != nil {
		t.Errorf("%v, %+v, state %+v", err, out, b.state())
	}
	b.offer("1.1.0")
	b.want.Cooldown, b.options.First = time.Hour, true
	b.mustSync("+1.1.0 =1.0.0")
}

// TestCooldownWithoutAges: in a repository that has versions and no ages, a first sync
// looks like one whose state was lost. --first says that it is the first one.
func TestCooldownWithoutAges(t *testing.T) {
	for name, begin := range map[string]func(b *syncBench){
		"no state": func(*syncBench) {},
		"a state without ages": func(b *syncBench) {
			b.mustRemember(pusher.StateChange{Replaced: []artifact.Replaced{lost("x", "0.9.0")}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newSyncBench(t, "1.0.0")
			b.mustSync("+1.0.0")
			begin(b)
			b.offer("1.1.0")
			b.want.Cooldown = 2 * time.Hour
			b.registry.Reset()
			_, out, err := b.sync()
			if err != nil || len(out.Failures) != 1 || len(out.Results) > 0 || !errors.Is(out.Err(), pusher.ErrNoAges) || out.Failures[0].Provider != widget || !strings.Contains(hint.Of(out.Err()), "ocibridge sync --first") {
				t.Errorf("%v, %+v (%s)", err, out, hint.Of(out.Err()))
			}
			if n := b.registry.Count(recorder.Writes()); n > 0 || b.tags() != "1.0.0" {
				t.Errorf("%d writes, tags %q", n, b.tags())
			}
			b.options.First = true
			b.plan()
			if n := b.registry.Count(recorder.Writes()); n > 0 {
				t.Errorf("a plan made %d writes", n)
			}
			b.mustSync("+1.1.0 =1.0.0")
			if got := b.ages(); got != "1.0.0 1.1.0" || !b.state().Cooldown {
				t.Errorf("ages %q, state %+v", got, b.state())
			}

			// From then on, --first changes nothing.
			b.offer("1.2.0")
			b.mustSync(".1.2.0 =1.1.0 =1.0.0")
			b.options.First = false
			b.mustSync(".1.2.0 =1.1.0 =1.0.0")
			b.now = b.now.Add(2 * time.Hour)
			b.mustSync("+1.2.0 =1.1.0 =1.0.0")
		})
	}
}

// TestCooldownWithoutVersions needs no --first: a repository without versions cannot have
// lost their ages.
func TestCooldownWithoutVersions(t *testing.T) {
	b := newSyncBench(t, "1.0.0")
	b.mustRemember(pusher.StateChange{Replaced: []artifact.Replaced{lost("x", "0.9.0")}})
	b.want.Cooldown = time.Hour
	b.mustSync("+1.0.0")
}

// TestCooldownWithAnUnusableState: what is no state is neither believed nor replaced.
func TestCooldownWithAnUnusableState(t *testing.T) {
	b := newSyncBench(t, "1.0.0")
	b.mustSync("+1.0.0")
	desc, err := b.repo.Resolve(t.Context(), "1.0.0")
	if err == nil {
		err = b.repo.Tag(t.Context(), desc, string(ociaddr.StateTag))
	}
	if err != nil {
		t.Fatal(err)
	}
	b.want.Cooldown, b.options.First = time.Hour, true
	_, out, err := b.sync()
	if err != nil || !errors.Is(out.Err(), artifact.ErrNotProvider) || hint.Of(out.Err()) == "" || b.current() != desc.Digest {
		t.Errorf("%v, %+v (%s)", err, out, hint.Of(out.Err()))
	}
}

// TestCopyLeavesTheState: a state is about one repository.
func TestCopyLeavesTheState(t *testing.T) {
	b := newSyncBench(t, "1.0.0")
	b.want.Cooldown = time.Hour
	b.mustSync("+1.0.0")
	from := pusher.Stored{Provider: widget, Repository: destination(registry.Repository{Repository: b.repo}).Repository, Store: b.repo}
	if b.state() == nil {
		t.Fatal("there is no state to copy")
	}
	b.newRegistry()
	if _, err := b.copyWith(from); err != nil {
		t.Fatal(err)
	}
	if b.tagged() == nil || b.state() != nil {
		t.Errorf("copied: %+v, with the state %+v", b.tagged(), b.state())
	}
}

// A registry that for a moment says that there are no tags makes no first sync:
// what waits goes on waiting.
func TestCooldownWithoutAList(t *testing.T) {
	b := newSyncBench(t, "1.0.0")
	b.want.Cooldown = 2 * time.Hour
	b.mustSync("+1.0.0")
	b.offer("1.1.0")
	b.mustSync(".1.1.0 =1.0.0")
	b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/tags/list") {
			w.WriteHeader(http.StatusNotFound)
			return true
		}
		return false
	})
	if _, out, err := b.sync(); err != nil || len(out.Failures) != 1 || len(out.Results) > 0 {
		t.Errorf("%v, %+v", err, out)
	}
	b.registry.Intercept(nil)
	b.now = b.now.Add(time.Hour)
	b.mustSync(".1.1.0 =1.0.0")
	b.now = b.now.Add(time.Hour)
	b.mustSync("+1.1.0 =1.0.0")
}

// Of two syncs at once, the one that saw a version first counts. Both succeed where the
// registry moves no tag but that of the state.
func TestCooldownOfTwoSyncs(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0")
	b.want.Cooldown = 2 * time.Hour
	var mu sync.Mutex
	set := map[string]bool{}
	b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
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
	b.registry.Intercept(nil) // nor does a registry that moves any tag make it younger
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
