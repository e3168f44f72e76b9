package reconcile_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
)

// oldAge stores the age of a version under a tag, as earlier releases did. If version is "", it stores the tag
// ociaddr.SeenAll.
func (b *bench) oldAge(version, text string) {
	b.T.Helper()
	config := ocispec.DescriptorEmptyJSON
	if err := b.Repo.Push(b.T.Context(), ocispec.Descriptor{MediaType: config.MediaType, Digest: config.Digest, Size: 2}, strings.NewReader("{}")); err != nil {
		b.T.Fatal(err)
	}
	tag := string(ociaddr.SeenAll)
	if version != "" {
		tag += "." + version
	}
	layer := fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":2,"data":"e30="}`, config.MediaType, config.Digest)
	b.PushManifest(ocispec.MediaTypeImageManifest, fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"artifactType":"application/vnd.ocibridge.seen.v1","config":%s,"layers":[%s],"annotations":{"io.github.ocibridge.seen":%q}}`,
		ocispec.MediaTypeImageManifest, layer, layer, text), tag)
}

// newOldBench returns a repository to which an earlier release of ocibridge has synced. Version 1.0.0 existed at the
// first sync with a cooldown, a sync saw 1.1.0 an hour ago, and no sync has seen 1.2.0.
func newOldBench(t *testing.T) *syncBench {
	b := newSyncBench(t, "1.0.0")
	b.mustSync("+1.0.0")
	b.removeState()
	b.oldAge("1.0.0", "first sync")
	b.oldAge("1.1.0", "2026-11-21T11:00:00Z")
	b.oldAge("0.9.0", "first sync")
	b.oldAge("", "first sync")
	b.offer("1.1.0", "1.2.0")
	b.want.Cooldown = 2 * time.Hour
	return b
}

const oldTags = "1.0.0 ocibridge-seen ocibridge-seen.0.9.0 ocibridge-seen.1.0.0 ocibridge-seen.1.1.0"

// noTagDeletes makes the registry refuse all deletes except deletes by digest.
func (b *bench) noTagDeletes() {
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		byTag := r.Method == http.MethodDelete && !strings.Contains(r.URL.Path, "sha256:")
		if byTag {
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
		return byTag
	})
}

// TestOldAges shows that a sync with a cooldown moves the ages from the tags of earlier releases into the state. It
// then deletes the tags or, if the registry deletes only by digest, their manifests.
func TestOldAges(t *testing.T) {
	for name, begin := range map[string]func(b *syncBench){
		"tags are deleted":      func(*syncBench) {},
		"manifests are deleted": func(b *syncBench) { b.noTagDeletes() },
	} {
		t.Run(name, func(t *testing.T) {
			b := newOldBench(t)
			begin(b)
			b.Registry.Reset()
			b.plan()
			if n := b.Registry.Count(recorder.Writes()); n > 0 {
				t.Errorf("a plan made %d writes", n)
			}
			for _, tag := range []string{"0.9.0", "1.0.0", "1.1.0"} {
				if n := b.Registry.Count(recorder.PathSuffix("ocibridge-seen." + tag)); n != 1 {
					t.Errorf("the age of %s is read %d times", tag, n)
				}
			}
			if out := b.mustSync(".1.2.0 .1.1.0 =1.0.0"); len(out.Warnings) > 0 {
				t.Errorf("warnings %q", out.Warnings)
			}
			if got := b.ages(); got != "0.9.0 1.0.0 1.1.0@11 1.2.0@12" || !b.State().Cooldown || b.tags() != "1.0.0" {
				t.Errorf("ages %q, cooldown %t, tags %q", got, b.State().Cooldown, b.tags())
			}
			b.now = b.now.Add(time.Hour)
			b.mustSync(".1.2.0 +1.1.0 =1.0.0")
			b.Registry.Reset()
			b.mustSync(".1.2.0 =1.1.0 =1.0.0")
			if n := b.Registry.Count(); n != 5 {
				t.Errorf("%d requests with nothing to do", n)
			}
		})
	}
}

// TestOldAgesThatStay shows that a sync whose login cannot delete moves the ages into the state, and warns of the
// number of tags that are left. The next sync does not read the tags again.
func TestOldAgesThatStay(t *testing.T) {
	for _, status := range []int{http.StatusForbidden, http.StatusMethodNotAllowed} {
		b := newOldBench(t)
		b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodDelete {
				w.WriteHeader(status)
			}
			return r.Method == http.MethodDelete
		})
		for range 2 {
			out := b.mustSync(".1.2.0 .1.1.0 =1.0.0")
			if len(out.Warnings) != 1 || !strings.Contains(out.Warnings[0], "tags that begin with ocibridge-seen are left (4)") || b.tags() != oldTags {
				t.Errorf("%d: warnings %q, tags %q", status, out.Warnings, b.tags())
			}
			if n := b.Registry.Count(recorder.Method(http.MethodDelete)); n > 2 {
				t.Errorf("%d: %d deletes", status, n)
			}
			b.Registry.Reset()
		}
		b.plan()
		if n := b.Registry.Count(recorder.PathContains("ocibridge-seen")); n > 0 {
			t.Errorf("%d: %d requests for tags whose ages are in the state", status, n)
		}
	}
}

// TestOldAgesGoLast interrupts a sync before each of its requests in turn. It shows that each age is then still in
// the state or in its tag. The next sync removes the tags.
func TestOldAgesGoLast(t *testing.T) {
	testkit.LeaveToAll(t)
	for n := 1; ; n++ {
		b := newOldBench(t)
		s, plan := b.plan()
		reached := b.cutBefore(n)
		s.Apply(t.Context(), plan, func(*pusher.Result) {})
		b.Registry.Intercept(nil)
		for _, want := range []struct{ version, age string }{{"0.9.0", "0.9.0"}, {"1.0.0", "1.0.0"}, {"1.1.0", "1.1.0@11"}} {
			kept := slices.Contains(strings.Fields(b.ages()), want.age)
			if tagged := slices.Contains(strings.Fields(b.tags()), "ocibridge-seen."+want.version); !kept && !tagged {
				t.Errorf("ended before request %d: the age of %s is lost", n, want.version)
			}
		}
		b.mustSync(".1.2.0 .1.1.0 =1.0.0")
		if b.tags() != "1.0.0" {
			t.Errorf("ended before request %d: tags %q", n, b.tags())
		}
		if !reached() {
			return
		}
	}
}

// TestOldAgesNeedTheState shows that a sync removes no tag of an earlier release if it cannot write the state.
func TestOldAgesNeedTheState(t *testing.T) {
	b := newOldBench(t)
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		refused := r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, string(ociaddr.StateTag))
		if refused {
			w.WriteHeader(http.StatusForbidden)
		}
		return refused
	})
	b.Registry.Reset()
	_, out, err := b.sync()
	if err != nil || len(out.Failures) != 1 || !strings.Contains(hint.Of(failure(out)), "leave cooldown out") || b.tags() != oldTags {
		t.Errorf("%v, %+v (%s), tags %q", err, out, hint.Of(failure(out)), b.tags())
	}
	if n := b.Registry.Count(recorder.Method(http.MethodDelete)); n > 0 {
		t.Errorf("%d deletes", n)
	}
}

// TestOldAgesWithoutACooldown shows that a sync without a cooldown also moves the ages into the state. The next sync
// does not move them again.
func TestOldAgesWithoutACooldown(t *testing.T) {
	b := newOldBench(t)
	b.want.Cooldown = 0
	b.constraint("1.0.0")
	if out := b.mustSync("=1.0.0"); len(out.Warnings) > 0 {
		t.Errorf("warnings %q", out.Warnings)
	}
	if got := b.ages(); got != "0.9.0 1.0.0 1.1.0@11" || !b.State().Cooldown || b.tags() != "1.0.0" {
		t.Errorf("ages %q, tags %q", got, b.tags())
	}
	b.Registry.Reset()
	if b.mustSync("=1.0.0"); b.Registry.Count() != 3 {
		t.Errorf("%d requests where nothing is left to move", b.Registry.Count())
	}
}

// TestOldAgesThatAreNone gives a version a tag in which earlier releases would have recorded an age. It shows that a
// sync does not delete the version, even in a registry that deletes only by digest. The age that the tag should hold
// then counts from now.
func TestOldAgesThatAreNone(t *testing.T) {
	b := newOldBench(t)
	b.noTagDeletes()
	desc, err := b.Repo.Resolve(t.Context(), "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Repo.Tag(t.Context(), desc, "ocibridge-seen.1.1.0"); err != nil {
		t.Fatal(err)
	}
	_, plan := b.plan()
	if len(plan.Warnings) != 1 || !strings.Contains(plan.Warnings[0], "counts from now") {
		t.Errorf("warnings %q", plan.Warnings)
	}
	out := b.mustSync(".1.2.0 .1.1.0 =1.0.0")
	if got := b.ages(); got != "0.9.0 1.0.0 1.1.0@12 1.2.0@12" || b.tags() != "1.0.0 ocibridge-seen.1.1.0" || b.missing("1.0.0") != "" {
		t.Errorf("ages %q, tags %q, 1.0.0 lacks %q", got, b.tags(), b.missing("1.0.0"))
	}
	if len(out.Warnings) != 1 || !strings.Contains(out.Warnings[0], "left (1)") {
		t.Errorf("warnings %q", out.Warnings)
	}
}

// TestOldAgesWithoutAList shows that a sync fails and writes nothing while the registry lists no tags.
func TestOldAgesWithoutAList(t *testing.T) {
	b := newOldBench(t)
	b.options.First = true
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		gone := strings.HasSuffix(r.URL.Path, "/tags/list")
		if gone {
			w.WriteHeader(http.StatusNotFound)
		}
		return gone
	})
	if _, out, err := b.sync(); err != nil || len(out.Failures) != 1 || len(out.Results) > 0 || b.State() != nil {
		t.Errorf("%v, %+v", err, out)
	}
	b.Registry.Intercept(nil)
	b.mustSync(".1.2.0 .1.1.0 =1.0.0")
}

// TestOldAgesIncomplete shows that, if ociaddr.SeenAll is missing, the first sync by an earlier release counts as
// interrupted, because earlier releases wrote that tag last.
func TestOldAgesIncomplete(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0")
	b.oldAge("1.0.0", "first sync")
	b.want.Cooldown = time.Hour
	b.mustSync("+1.1.0 +1.0.0")
	if got := b.ages(); got != "1.0.0 1.1.0" || b.tags() != "1.0.0 1.1.0" {
		t.Errorf("ages %q, tags %q", got, b.tags())
	}

	b = newOldBench(t)
	if err := (registry.Repository{Repository: b.Repo}).Untag(t.Context(), "ocibridge-seen"); err != nil {
		t.Fatal(err)
	}
	if _, out, err := b.sync(); err != nil || !errors.Is(failure(out), reconcile.ErrNoAges) {
		t.Errorf("%v, %+v", err, out)
	}
	b.options.First = true
	b.mustSync("+1.2.0 +1.1.0 =1.0.0")
	if got := b.ages(); got != "0.9.0 1.0.0 1.1.0@11 1.2.0" || b.tags() != "1.0.0 1.1.0 1.2.0" {
		t.Errorf("ages %q, tags %q", got, b.tags())
	}
}
