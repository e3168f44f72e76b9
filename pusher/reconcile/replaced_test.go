package reconcile_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// newReplaced returns a repository with one version, and the old index of the version. A push has added platforms to
// the version, and has moved the version's tag away from the old index.
func newReplaced(t *testing.T) (*syncBench, ocispec.Descriptor) {
	b := newSyncBench(t, "1.0.0")
	b.options.Prune = true
	b.want.Platforms = []provider.Platform{provider.MustParsePlatform("linux_amd64")}
	b.mustSync("+1.0.0")
	lost := b.Tagged().Index
	b.want.Platforms = nil
	b.options.Prune = false
	b.mustSync("~1.0.0")
	b.options.Prune = true
	if !b.has(lost) {
		t.Fatal("the replaced index is gone")
	}
	return b, lost
}

// has reports whether the repository has a manifest.
func (b *syncBench) has(desc ocispec.Descriptor) bool {
	b.T.Helper()
	_, err := b.Repo.Resolve(b.T.Context(), desc.Digest.String())
	if err != nil && !errors.Is(err, errdef.ErrNotFound) {
		b.T.Fatal(err)
	}
	return err == nil
}

// TestPruneOfNothingButReplacedIndexes shows that a prune deletes replaced indexes even if it removes no version. A
// prune with nothing to do sends four requests.
func TestPruneOfNothingButReplacedIndexes(t *testing.T) {
	b, lost := newReplaced(t)
	out := b.mustSync("=1.0.0")
	if b.has(lost) || len(out.Warnings) > 0 || b.missing("1.0.0") != "" || b.TaggedPlatforms() != pushbench.AllPlatforms {
		t.Errorf("the replaced index is there: %t, warnings %q, 1.0.0 lacks %q", b.has(lost), out.Warnings, b.missing("1.0.0"))
	}
	b.mustSync("=1.0.0")
	b.Registry.Reset()
	b.mustSync("=1.0.0")
	if n := b.Registry.Count(); n != 4 {
		t.Errorf("%d requests, want a list of tags, the version, and the state for the summary and for the prune: %v", n, b.Registry.Requests())
	}
}

// TestPruneLeavesTaggedIndexes shows that a prune deletes a noted index only once no tag names it.
func TestPruneLeavesTaggedIndexes(t *testing.T) {
	b, lost := newReplaced(t)
	b.tag(lost, "stable")
	b.mustSync("=1.0.0")
	if !b.has(lost) || b.tags() != "1.0.0 stable" {
		t.Fatalf("an index that a tag resolves to is there: %t, tags %q", b.has(lost), b.tags())
	}
	if err := (registry.Repository{Repository: b.Repo}).Untag(t.Context(), "stable"); err != nil {
		t.Fatal(err)
	}
	if b.mustSync("=1.0.0"); b.has(lost) {
		t.Error("the index is left although it has no tag any more")
	}
}

// TestPruneWithATagThatCannotBeRead shows that, while a tag cannot be read, a prune succeeds but keeps the noted
// index, because the tag may name the index.
func TestPruneWithATagThatCannotBeRead(t *testing.T) {
	b, lost := newReplaced(t)
	b.tag(b.Tagged().Index, "stable")
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/manifests/stable") {
			return false
		}
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	if out := b.mustSync("=1.0.0"); !b.has(lost) || len(out.Warnings) != 1 || !strings.Contains(out.Warnings[0], "are left (3)") { // with two older states
		t.Errorf("the replaced index is there: %t, warnings %q", b.has(lost), out.Warnings)
	}
	b.Registry.Intercept(nil)
	if b.mustSync("=1.0.0"); b.has(lost) {
		t.Error("the replaced index is left")
	}
}

// TestPruneLeavesReferredIndexes shows that a prune deletes a noted index only once it has no referrers.
func TestPruneLeavesReferredIndexes(t *testing.T) {
	b, lost := newReplaced(t)
	empty := ocispec.DescriptorEmptyJSON
	empty.Data = nil
	data, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: "application/vnd.acme.notes",
		Config: empty, Layers: []ocispec.Descriptor{empty}, Subject: &lost,
	})
	if err != nil {
		t.Fatal(err)
	}
	referrer := b.PushManifest(ocispec.MediaTypeImageManifest, data, "notes")
	if b.mustSync("=1.0.0"); !b.has(lost) {
		t.Fatal("an index that a manifest refers to is gone")
	}
	if err := b.Repo.Delete(t.Context(), referrer); err != nil {
		t.Fatal(err)
	}
	if b.mustSync("=1.0.0"); b.has(lost) {
		t.Error("the index is left although nothing refers to it any more")
	}
}

// TestPruneLeavesWhatIsNotOurs shows that a prune does not delete a noted index that names another provider or no
// provider.
func TestPruneLeavesWhatIsNotOurs(t *testing.T) {
	for _, of := range []string{"registry.acme.example/acme/gadget", ""} {
		b, lost := newReplaced(t)
		index, err := artifact.FetchManifest(t.Context(), b.Repo, lost)
		if err != nil {
			t.Fatal(err)
		}
		foreign := b.PushManifest(lost.MediaType, bytes.ReplaceAll(index, []byte(`"`+pushbench.Widget.Path()+`"`), []byte(`"`+of+`"`)), "foreign")
		if err := (registry.Repository{Repository: b.Repo}).Untag(t.Context(), "foreign"); err != nil {
			t.Fatal(err)
		}
		b.MustRemember(repo.StateChange{Replaced: []artifact.Replaced{{Manifest: foreign, Version: provider.MustParseVersion("1.0.0")}}})
		if out := b.mustSync("=1.0.0"); !b.has(foreign) || b.has(lost) || len(out.Warnings) > 0 {
			t.Errorf("%q: an index of another provider is there: %t, warnings %q", of, b.has(foreign), out.Warnings)
		}
		if noted := b.State().Replaced; len(noted) != 1 || !noted[0].Version.IsZero() {
			t.Errorf("%q: noted in the end: %+v", of, noted)
		}
	}
}

// TestPruneBesideATagThatMovesBack shows that, if a push moves a tag back to an index that a prune is about to delete,
// the prune restores the tag. Some registries delete the tag together with the index.
func TestPruneBesideATagThatMovesBack(t *testing.T) {
	b, lost := newReplaced(t)
	b.beforeDelete(1, func() { b.tag(lost, "1.0.0") })
	b.mustSync("=1.0.0")
	if got := b.Tagged(); got == nil || got.Index.Digest != lost.Digest || b.missing("1.0.0") != "" {
		t.Errorf("the tag resolves to %+v", got)
	}

	// If the tag cannot be restored, the prune fails.
	b, lost = newReplaced(t)
	b.beforeDelete(1, func() {
		b.tag(lost, "1.0.0")
		b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut {
				w.WriteHeader(http.StatusForbidden)
			}
			return r.Method == http.MethodPut
		})
	})
	_, out, err := b.sync()
	if err != nil || len(out.Failures) != 1 || !strings.Contains(hint.Of(out.Failures[0].Err), "Push 1.0.0 again") {
		t.Errorf("%v, %+v", err, out)
	}
}

// TestPruneOfEverything shows that a prune of all versions also deletes the state, and all manifests that the state
// notes.
func TestPruneOfEverything(t *testing.T) {
	b, lost := newReplaced(t)
	b.constraint("< 0.0.0")
	b.options.PruneLimit = 1
	first, _, err := artifact.ReadState(t.Context(), b.Repo, pushbench.Widget)
	if err != nil || len(first.Replaced) == 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	b.mustSync("-1.0.0")
	var left []string
	if err := b.Repo.Tags(t.Context(), "", func(page []string) error { left = append(left, page...); return nil }); err != nil && !errors.Is(err, errdef.ErrNotFound) {
		t.Fatal(err)
	}
	if b.has(lost) || len(left) > 0 {
		t.Errorf("the replaced index is there: %t, tags %q", b.has(lost), left)
	}
	for _, r := range first.Replaced {
		if b.has(r.Manifest) {
			t.Errorf("%+v is left", r)
		}
	}
}

// TestLeftAnnouncementCannotBeRemoved shows that a push does not announce itself if a rule protects the tag of an
// announcement that an earlier push has left behind. Only a push of a release folder announces itself nevertheless.
func TestLeftAnnouncementCannotBeRemoved(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0")
	held := func(w http.ResponseWriter, r *http.Request) bool {
		refused := r.Method == http.MethodDelete && b.isAnnouncement(path.Base(r.URL.Path))
		if refused {
			w.WriteHeader(http.StatusPreconditionFailed)
		}
		return refused
	}
	b.Registry.Intercept(held)
	b.want.Platforms = []provider.Platform{provider.MustParsePlatform("linux_amd64")}
	b.constraint("1.0.0")
	b.mustSync("+1.0.0")
	if n := b.LeftTags(); n != 1 {
		t.Fatalf("%d announcements are left: %q", n, b.tags())
	}
	b.now = b.now.Add(2 * time.Hour)
	b.constraint("1.1.0")
	b.mustSync("+1.1.0")
	if n := b.LeftTags(); n != 1 {
		t.Errorf("there is another announcement: %q", b.tags())
	}
	// Once the announcement can be removed, pushes announce themselves again.
	b.Registry.Intercept(nil)
	b.mustSync("=1.1.0")
	if n := b.LeftTags(); n != 0 {
		t.Errorf("%d announcements are left: %q", n, b.tags())
	}
}

// isAnnouncement reports whether a reference names an announcement.
func (b *syncBench) isAnnouncement(reference string) bool {
	if !strings.HasPrefix(reference, "sha256:") {
		return strings.HasPrefix(reference, "ocibridge-part.")
	}
	tags, _ := artifact.ListTags(b.T.Context(), b.Repo) // empty for a new repository
	return slices.ContainsFunc(tags, func(tag ociaddr.Tag) bool {
		desc, err := b.Repo.Resolve(b.T.Context(), string(tag))
		return err == nil && desc.Digest.String() == reference && strings.HasPrefix(string(tag), "ocibridge-part.")
	})
}

func (b *syncBench) tag(desc ocispec.Descriptor, tag string) {
	b.T.Helper()
	if err := b.Repo.Tag(b.T.Context(), desc, tag); err != nil {
		b.T.Fatal(err)
	}
}
