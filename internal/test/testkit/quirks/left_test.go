package quirks_test

import (
	"slices"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/quirks"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
)

// checkLeft fails the test if a manifest is reachable from no tag and the state does not record the manifest
// for the next prune. Unfinished forms of announcements are allowed. If the login may not delete, its probe is
// allowed, too.
func (b *bench) checkLeft(when string, mayDelete bool) {
	b.t.Helper()
	_, repo, err := b.repository(b.t.Context(), widget)
	if err != nil {
		b.t.Fatal(err)
	}
	said := map[digest.Digest]bool{}
	if _, ok := b.contents().Tags["ocibridge-state"]; ok {
		state, _, err := artifact.ReadState(b.t.Context(), repo, widget)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, r := range state.Replaced {
			said[r.Manifest.Digest] = true
			for _, child := range b.contents().Manifests[r.Manifest.Digest] {
				said[child] = true
			}
		}
	}
	for _, tag := range b.contents().TagNames() { // if the login may not delete, the unfinished form of an announcement stays
		of, ok := ociaddr.Tag(tag).PartOf()
		if !ok {
			continue
		}
		a, err := artifact.ReadAnnouncement(b.t.Context(), repo, tag, widget, of)
		if err != nil {
			b.t.Fatal(err)
		}
		a.Done = false
		before, err := artifact.EncodeAnnouncement(*a)
		if err != nil {
			b.t.Fatal(err)
		}
		said[before.Descriptor.Digest] = true
	}
	probe, err := artifact.Placeholder("")
	if err != nil {
		b.t.Fatal(err)
	}
	said[probe.Descriptor.Digest] = !mayDelete
	for _, d := range b.contents().Unreachable() {
		if !said[d] {
			b.t.Errorf("%s: %s is left, and no record leads the next prune to it", when, d)
		}
	}
}

// TestLeftManifestsAreRecorded shows that after pushes by platform, a prune and another push by a Harbor
// robot, the next prune finds all manifests that are left.
func TestLeftManifestsAreRecorded(t *testing.T) {
	for name, lacks := range map[string][]string{"pull and push": {"delete"}, "delete, too": nil} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, profile(t, "harbor"))
			b.registry.Create(b.profile.Create)
			b.registry.Set(func(s *quirks.Settings) { s.Lacks = lacks })
			mayDelete := lacks == nil
			for _, platform := range []string{"linux_amd64", "darwin_amd64"} {
				b.mustPush("1.0.0", false, false, platform)
				b.mustPush("1.1.0", true, false, platform) // from a release folder
			}
			b.checkLeft("by platform", mayDelete)
			announced := announcements(b.contents())
			if (announced == 0) != mayDelete {
				t.Errorf("%d announcements", announced)
			}
			out := b.sync(reconcile.Want{}, "~> 1.1, < 1.10")
			if err := failure(out); (err == nil) != mayDelete || len(out.Pruned) == 1 != mayDelete || err != nil && hint.Of(err) == "" {
				t.Errorf("sync: %v (%s), pruned %d, warnings %q", err, hint.Of(err), len(out.Pruned), out.Warnings)
			}
			if !mayDelete && len(out.Warnings) == 0 {
				t.Error("sync does not warn about the manifests that are left")
			}
			if tags := b.contents().TagNames(); slices.Contains(tags, "1.0.0") == mayDelete {
				t.Errorf("tags %q", tags)
			}
			b.checkLeft("pruned", mayDelete)
			b.mustPush("1.0.0", false, false)
			b.checkLeft("pushed again", mayDelete)
			if !mayDelete {
				return
			}
			out = b.sync(reconcile.Want{}, "< 0.0.0")
			if err := failure(out); err != nil || len(out.Warnings) > 0 || len(b.contents().Manifests) > 0 {
				t.Errorf("everything: %v, %q, %d manifests left", err, out.Warnings, len(b.contents().Manifests))
			}
		})
	}
}
