package quirks_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/quirks"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
)

// remove removes a version, or some of its platforms.
func (b *bench) remove(referrers bool, version string, platforms ...provider.Platform) *reconcile.RemoveOutcome {
	b.t.Helper()
	r := reconcile.NewRemover(b.pushOptions(), referrers)
	plan, err := r.Plan(b.t.Context(), []reconcile.RemoveRequest{{Subject: widget, Version: provider.MustParseVersion(version), Platforms: platforms}})
	if err != nil {
		b.t.Fatal(err)
	}
	out, err := r.Apply(b.t.Context(), plan)
	if err != nil {
		b.t.Fatal(err)
	}
	for i, f := range out.Failures {
		out.Failures[i].Err = b.explain(f.Err)
	}
	return out
}

// failureOf returns the error and the hint of the only failure of a removal, or "".
func failureOf(out *reconcile.RemoveOutcome) string {
	if len(out.Failures) != 1 {
		return ""
	}
	return out.Failures[0].Err.Error() + " (" + hint.Of(out.Failures[0].Err) + ")"
}

// TestRemove shows what a removal of a platform, and then of a whole version, leaves behind in each registry. If the
// registry deletes no tags, the version stays whole, and the error says why.
func TestRemove(t *testing.T) {
	forEach(t, func(t *testing.T, b *bench) {
		takesState := b.profile.Allowed == nil
		b.mustPush("1.0.0", false, false)
		b.mustPush("1.1.0", false, false)
		others := map[digest.Digest]bool{}
		if takesState {
			others = b.attach("1.0.0")
		}
		out := b.remove(false, "1.0.0", provider.MustParsePlatform("linux_amd64"))
		if len(out.Removed) != 1 || len(out.Failures) > 0 {
			t.Fatalf("remove a platform: %+v", out)
		}
		c := b.contents()
		if n := len(c.Manifests[b.index("1.0.0")]); n != len(c.Manifests[b.index("1.1.0")])-1 {
			t.Errorf("the index has %d entries: %v", n, out.Warnings)
		}
		for _, version := range []string{"1.0.0", "1.1.0"} {
			for _, d := range c.Manifests[b.index(version)] {
				if _, ok := c.Manifests[d]; !ok {
					t.Errorf("%s lacks %s", version, d)
				}
			}
		}

		out = b.remove(true, "1.0.0")
		c = b.contents()
		if !b.deletesTags() {
			if len(out.Removed) > 0 || !strings.Contains(failureOf(out), "(") || b.profile.Name == "ghcr" && !strings.Contains(failureOf(out), "on GitHub") || c.Tags["1.0.0"] == "" {
				t.Errorf("%+v, tags %q", out, c.TagNames())
			}
			return
		}
		if len(out.Removed) != 1 || len(out.Failures) > 0 || c.Tags["1.0.0"] != "" {
			t.Fatalf("%s: %+v, tags %q", failureOf(out), out, c.TagNames())
		}
		if takesState {
			reached := map[digest.Digest]bool{c.Tags["ocibridge-state"]: true, c.Tags[foreignTag]: true, b.index("1.1.0"): true}
			for _, d := range c.Manifests[b.index("1.1.0")] {
				reached[d] = true
			}
			left := slices.DeleteFunc(slices.Collect(maps.Keys(c.Manifests)), func(d digest.Digest) bool { return reached[d] || others[d] })
			if len(left) > 1 { // an earlier state
				t.Errorf("%v are left, warnings %q", left, out.Warnings)
			}
		}
	})
}

// TestRemoveImmutable shows that the error of a removal names Harbor's rule if a rule makes the tag immutable, and that
// the version stays whole.
func TestRemoveImmutable(t *testing.T) {
	b := newBench(t, profile(t, "harbor"))
	b.registry.Create(b.profile.Create)
	b.mustPush("1.0.0", false, false)
	index := b.index("1.0.0")
	b.registry.Set(func(s *quirks.Settings) {
		s.Immutable, s.ImmutableCode, s.ImmutableHolds = 412, "PRECONDITION", true
		s.Mutable = func(tag string) bool { return strings.HasPrefix(tag, "ocibridge-") }
	})
	for _, platforms := range [][]provider.Platform{nil, {provider.MustParsePlatform("linux_amd64")}} {
		out := b.remove(false, "1.0.0", platforms...)
		if got := failureOf(out); len(out.Removed) > 0 || !strings.Contains(got, "mmutab") || b.index("1.0.0") != index {
			t.Errorf("%v: %s, %+v", platforms, got, out)
		}
	}
}
