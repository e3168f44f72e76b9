package quirks_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/contents"
	"github.com/ocibridge/ocibridge/internal/test/testkit/quirks"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
)

// foreignTag is a tag that another tool wrote.
const foreignTag = "release-notes"

// deletesTags reports whether tags can be deleted, either alone or together with their manifests.
func (b *bench) deletesTags() bool {
	return !b.profile.NoDelete && (b.profile.NoDeleteTag == nil || b.profile.NoDeleteTagged == nil)
}

// contents returns the contents of the provider's repository.
func (b *bench) contents() *contents.Contents {
	b.t.Helper()
	addr, err := b.set.Repository(widget)
	if err != nil {
		b.t.Fatal(err)
	}
	c, err := b.registry.Contents(addr.Name)
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// checkTags checks that the repository has exactly the wanted tags. It ignores the tag of the state.
func (b *bench) checkTags(when string, want ...string) {
	b.t.Helper()
	got := slices.DeleteFunc(b.contents().TagNames(), func(tag string) bool { return tag == "ocibridge-state" })
	slices.Sort(want)
	if !slices.Equal(got, want) {
		b.t.Errorf("%s: tags %q, want %q", when, got, want)
	}
}

// index returns the digest that a version's tag resolves to.
func (b *bench) index(version string) digest.Digest {
	b.t.Helper()
	d, ok := b.contents().Tags[version]
	if !ok {
		b.t.Fatalf("no tag %s", version)
	}
	return d
}

// mustPush pushes the given platforms of a version, or all platforms if none are given. It fails the test if
// the push fails. byPlatform is true if other jobs push the other platforms.
func (b *bench) mustPush(version string, byPlatform, force bool, platforms ...string) *pusher.Result {
	b.t.Helper()
	result, err := b.tryPush(version, byPlatform, force, platforms...)
	if err != nil {
		b.t.Fatalf("push %s %q: %v (%s)", version, platforms, err, hint.Of(err))
	}
	return result
}

// pushError pushes a version, and returns its error with the hint that users see.
func (b *bench) pushError(version string, force bool) error {
	b.t.Helper()
	_, err := b.tryPush(version, false, force)
	return b.explain(err)
}

func (b *bench) tryPush(version string, byPlatform, force bool, platforms ...string) (*pusher.Result, error) {
	b.t.Helper()
	var want []provider.Platform
	for _, p := range platforms {
		want = append(want, provider.MustParsePlatform(p))
	}
	listing, err := b.origin.Versions(b.t.Context(), widget)
	if err != nil {
		b.t.Fatal(err)
	}
	r, err := b.origin.Release(b.t.Context(), widget, listing, provider.MustParseVersion(version), want)
	if err != nil {
		b.t.Fatal(err)
	}
	r.ByPublisher = byPlatform
	o := b.pushOptions()
	o.Force = force
	return pusher.New(o).Push(b.t.Context(), r)
}

// sync runs a sync with --prune.
func (b *bench) sync(want reconcile.Want, constraint string) *reconcile.Outcome {
	b.t.Helper()
	plan, out := b.plannedSync(want, constraint)
	if len(plan.Failures) != 0 {
		b.t.Fatalf("the plan has failures: %+v", plan)
	}
	return out
}

// plannedSync runs a sync with --prune, like sync, but the plan may contain failures.
func (b *bench) plannedSync(want reconcile.Want, constraint string) (*reconcile.Plan, *reconcile.Outcome) {
	b.t.Helper()
	var err error
	if want.Versions, err = provider.ParseConstraint(constraint); err != nil {
		b.t.Fatal(err)
	}
	want.Subject, want.Source = widget, b.origin
	syncer := reconcile.NewSyncer(reconcile.Options{Push: b.pushOptions(), Prune: true, PruneLimit: 10, First: true})
	plan, err := syncer.Plan(b.t.Context(), []reconcile.Want{want})
	if err != nil {
		b.t.Fatal(err)
	}
	out, err := syncer.Apply(b.t.Context(), plan, func(*pusher.Result) {})
	if err != nil {
		b.t.Fatal(err)
	}
	for i, f := range out.Failures {
		out.Failures[i].Err = b.explain(f.Err)
	}
	return plan, out
}

// saysRightToDelete reports whether a hint names the right to delete, in general terms or in Harbor's terms.
func (b *bench) saysRightToDelete(hint string) bool {
	if b.profile.Harbor {
		return strings.Contains(hint, "lacks the right to delete in the project")
	}
	return strings.Contains(hint, "must have that right")
}

// attach stores two manifests of another tool, and returns their digests. The first manifest has the tag
// foreignTag. The second manifest refers to the index of a version.
func (b *bench) attach(subject string) map[digest.Digest]bool {
	b.t.Helper()
	_, repo, err := b.repository(b.t.Context(), widget)
	if err != nil {
		b.t.Fatal(err)
	}
	desc, err := repo.Resolve(b.t.Context(), subject)
	if err != nil {
		b.t.Fatal(err)
	}
	out := map[digest.Digest]bool{}
	empty := ocispec.DescriptorEmptyJSON
	empty.Data = nil
	for _, s := range []*ocispec.Descriptor{nil, &desc} {
		m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
			ArtifactType: "application/vnd.acme.notes", Config: empty, Layers: []ocispec.Descriptor{empty}, Subject: s}
		data, err := json.Marshal(m)
		if err != nil {
			b.t.Fatal(err)
		}
		mine := content.NewDescriptorFromBytes(m.MediaType, data)
		tag := foreignTag
		if s != nil {
			tag = "referrer"
		}
		if err := repo.PushReference(b.t.Context(), mine, bytes.NewReader(data), tag); err != nil {
			b.t.Fatal(err)
		}
		out[mine.Digest] = true
	}
	return out
}

// ours returns the digests of all manifests except those in foreign, sorted.
func ours(c *contents.Contents, foreign map[digest.Digest]bool) []digest.Digest {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(c.Manifests)), func(d digest.Digest) bool { return foreign[d] })
}

// announcements returns the number of tags of announcements.
func announcements(c *contents.Contents) int {
	return len(slices.DeleteFunc(c.TagNames(), func(tag string) bool { return !strings.HasPrefix(tag, "ocibridge-part.") }))
}

// TestTagsInTheEnd shows which tags and manifests are left after pushes, syncs and prunes. If the registry
// allows deletions, only the tags of versions, at most one state, and the tags of other tools are left. If the
// registry also stores the state, a prune of everything leaves only the manifests of other tools.
func TestTagsInTheEnd(t *testing.T) {
	forEach(t, func(t *testing.T, b *bench) {
		takesState := b.profile.Allowed == nil
		var others, said []string
		foreign := map[digest.Digest]bool{}
		tags := func(when string, versions ...string) {
			t.Helper()
			b.checkTags(when, slices.Concat(versions, others)...)
		}
		// 1. Sync one platform, and then push all platforms.
		out := b.sync(reconcile.Want{Platforms: []provider.Platform{provider.MustParsePlatform("linux_amd64")}}, "1.0.0")
		if err := failure(out); err != nil {
			t.Fatal(err)
		}
		tags("some platforms", "1.0.0")
		replaced := b.index("1.0.0")
		said = append(said, b.mustPush("1.0.0", false, false).Warnings...)
		tags("completed", "1.0.0")
		if takesState {
			foreign = b.attach("1.0.0")
			others = slices.DeleteFunc(b.contents().TagNames(), func(tag string) bool { return tag == "1.0.0" || tag == "ocibridge-state" })
			for _, tag := range others {
				foreign[b.contents().Tags[tag]] = true // including the fallback tag of a registry without the referrers API
			}
		}
		// 2. Push a release folder, one platform at a time.
		said = append(said, b.mustPush("1.1.0", true, false, "linux_amd64").Warnings...)
		said = append(said, b.mustPush("1.1.0", true, false, "darwin_amd64").Warnings...)
		if b.deletesTags() {
			tags("by platform", "1.0.0", "1.1.0")
		} else if n := announcements(b.contents()); n != 2 {
			t.Errorf("%d announcements of a release folder, want 2", n)
		}
		// 3. Sync with a cooldown, and prune older versions.
		want := reconcile.Want{Latest: 2}
		if takesState {
			want.Cooldown = time.Hour
		}
		out = b.sync(want, "~> 1.0")
		said = append(said, out.Warnings...)
		if err := failure(out); (err == nil) != b.deletesTags() || err != nil && hint.Of(err) == "" {
			t.Errorf("sync: %v (%s)", err, hint.Of(err))
		}
		if b.deletesTags() {
			tags("cooldown", "1.1.0", "1.10.0")
		}
		_, there := b.contents().Manifests[replaced]
		if kept := !takesState || b.profile.NoDelete; there != kept {
			t.Errorf("the replaced index exists: %t, want %t", there, kept)
		}
		// 4. Prune everything, first with a cooldown and then without a cooldown. The cooldown keeps the state.
		if takesState && b.deletesTags() {
			if err := failure(b.sync(want, "< 0.0.0")); err != nil {
				t.Error(err)
			}
			tags("everything, with a cooldown")
			if left := ours(b.contents(), foreign); b.contents().Tags["ocibridge-state"] == "" || len(left) > 2 {
				t.Errorf("with a cooldown, %q are left, and the tags %q", left, b.contents().TagNames())
			}
		}
		before := b.contents()
		out = b.sync(reconcile.Want{}, "< 0.0.0")
		said = append(said, out.Warnings...)
		after := b.contents()
		for d := range foreign {
			if _, ok := after.Manifests[d]; !ok {
				t.Errorf("the prune deleted %s, which belongs to another tool", d)
			}
		}
		switch {
		case b.profile.NoDelete: // GHCR
			if failure(out) == nil || hint.Of(failure(out)) == "" || !slices.Equal(after.TagNames(), before.TagNames()) || len(after.Manifests) != len(before.Manifests) {
				t.Errorf("%v (%s), tags %q, then %q", failure(out), hint.Of(failure(out)), before.TagNames(), after.TagNames())
			}
			if len(out.Warnings) != 2 || !strings.Contains(out.Warnings[0], "ocibridge-part are left") || !strings.Contains(out.Warnings[1], "The operation is unsupported") {
				t.Errorf("warnings %q", out.Warnings)
			}
		case !b.deletesTags(): // Docker Hub
			if failure(out) == nil || hint.Of(failure(out)) == "" || !slices.Equal(after.TagNames(), before.TagNames()) ||
				len(out.Warnings) != 1 || !strings.Contains(out.Warnings[0], "ocibridge-part are left") {
				t.Errorf("%v (%s), tags %q, then %q, warnings %q", failure(out), hint.Of(failure(out)), before.TagNames(), after.TagNames(), out.Warnings)
			}
		case failure(out) != nil:
			t.Errorf("prune of everything: %v (%s)", failure(out), hint.Of(failure(out)))
		case takesState:
			if left := ours(after, foreign); len(left) > 0 || len(out.Warnings) > 0 {
				t.Errorf("%q are left, warnings %q", left, out.Warnings)
			}
			tags("everything")
		default: // GitLab accepts no state, so warnings must have named the manifests that no prune finds
			for _, d := range ours(after, foreign) {
				if !slices.ContainsFunc(said, func(w string) bool { return strings.Contains(w, d.String()) }) {
					t.Errorf("%s is left, and no warning says so: %q", d, said)
				}
			}
			tags("everything")
		}
	})
}

// TestPruneReplacedIndexes shows that a prune deletes the indexes that pushes have replaced, and the packages
// that only those indexes name. If the login may not delete, a sync warns that these manifests stay until the
// next prune.
func TestPruneReplacedIndexes(t *testing.T) {
	forEach(t, func(t *testing.T, b *bench) {
		b.mustPush("1.0.0", false, false, "linux_amd64") // completed: the new index also names the package of the old index
		b.mustPush("1.0.0", false, false)
		b.mustPush("1.1.0", false, false) // replaced: only the old index names its packages
		b.content = "other "
		b.publish("1.1.0")
		b.mustPush("1.1.0", false, true)
		if n := len(b.contents().Unreachable()); n < 4 {
			t.Fatalf("%d manifests lost their tags", n)
		}
		before := b.contents()
		b.registry.Set(func(s *quirks.Settings) { s.Lacks, s.NoDelete = []string{"delete"}, b.profile.User == "" })
		out := b.sync(reconcile.Want{}, "~> 1.0, < 1.10")
		if err := failure(out); err != nil || len(out.Warnings) != 1 || !strings.Contains(out.Warnings[0], "the next sync --prune tries again") {
			t.Errorf("sync without versions to prune, without the right to delete: %v, %q", err, out.Warnings)
		}
		after := b.contents().Manifests // the sync has added a state with a summary
		for d := range before.Manifests {
			if _, ok := after[d]; !ok {
				t.Errorf("%s is deleted without the right to delete", d)
			}
		}
		out = b.sync(reconcile.Want{}, "1.1.0")
		if err := failure(out); err == nil || !b.saysRightToDelete(hint.Of(err)) || len(out.Pruned) > 0 {
			t.Errorf("without the right to delete: %v (%s), pruned %d", err, hint.Of(err), len(out.Pruned))
		}
		b.checkTags("without the right to delete", "1.0.0", "1.1.0")

		b.registry.Set(func(s *quirks.Settings) { s.Lacks, s.NoDelete = nil, false })
		out = b.sync(reconcile.Want{}, "1.1.0")
		if err := failure(out); err != nil || len(out.Warnings) > 0 || len(out.Pruned) != 1 {
			t.Errorf("with the right: %v (%s), %q, pruned %d", err, hint.Of(err), out.Warnings, len(out.Pruned))
		}
		b.checkTags("in the end", "1.1.0")
		if left := b.contents().Unreachable(); len(left) > 1 { // an older state
			t.Errorf("%q are left without a tag", left)
		}
		if status, body := b.serve()(host + "/acme/widget/1.1.0.json"); status != 200 || !strings.Contains(body, "zh:"+b.releases["1.1.0"].Package("linux", "amd64").SHA256) {
			t.Errorf("1.1.0.json: %d %s", status, body)
		}
	}, "distribution", "distribution-2.8", "harbor")
}

// TestPruneAfterPushOnlyLogin shows that if a login that may not delete pushes first one platform and then the
// whole version, a later prune of the version leaves no manifest behind.
func TestPruneAfterPushOnlyLogin(t *testing.T) {
	forEach(t, func(t *testing.T, b *bench) {
		b.registry.Set(func(s *quirks.Settings) { s.Lacks, s.NoDelete = []string{"delete"}, b.profile.User == "" })
		b.mustPush("1.0.0", false, false, "linux_amd64")
		b.mustPush("1.0.0", false, false)
		b.registry.Set(func(s *quirks.Settings) { s.Lacks, s.NoDelete = nil, false })
		out := b.sync(reconcile.Want{}, "< 0.0.0")
		if err := failure(out); err != nil || len(out.Pruned) != 1 {
			t.Errorf("%v (%s), %q, pruned %d", err, hint.Of(err), out.Warnings, len(out.Pruned))
		}
		for d := range b.contents().Manifests {
			t.Errorf("%s is left", d)
		}
	}, "distribution", "distribution-2.8", "harbor")
}
