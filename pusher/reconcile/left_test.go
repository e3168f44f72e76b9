package reconcile_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// leave stores an announcement of one package of a version, like an announcement that a push has left behind. change
// can alter the package first.
func (b *bench) leave(id string, at time.Time, done bool, v *artifact.Version, platform string, change func(*artifact.Package)) {
	b.T.Helper()
	p := *find(b.T, v, platform)
	change(&p)
	a := artifact.Announcement{ID: id, At: at, Done: done, Version: *v}
	a.Owner, a.Packages = pushbench.Widget, []artifact.Package{p}
	a.Version.Version = pushbench.One
	blob, err := artifact.EncodeAnnouncement(a)
	if err != nil {
		b.T.Fatal(err)
	}
	tag, err := ociaddr.AnnouncementTag(pushbench.One, id)
	if err != nil {
		b.T.Fatal(err)
	}
	b.PushManifest(ocispec.MediaTypeImageIndex, blob.Data, string(tag))
}

func find(t *testing.T, v *artifact.Version, platform string) *artifact.Package {
	t.Helper()
	for i := range v.Packages {
		if v.Packages[i].Platform.String() == platform {
			return &v.Packages[i]
		}
	}
	t.Fatalf("no package for %s", platform)
	return nil
}

// TestAnnouncementHidesNoOther shows that a push adds an announced package even if another announcement has a different
// package for the same platform. No release lists that other package.
func TestAnnouncementHidesNoOther(t *testing.T) {
	b := newBench(t)
	b.MustPush()
	all := b.Tagged()
	if err := b.Repo.Delete(t.Context(), all.Index); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * time.Hour)
	b.leave("bbbbbbbbbbbbbbbb", old, true, all, "darwin_arm64", func(*artifact.Package) {})
	b.leave("aaaaaaaaaaaaaaaa", old, false, all, "darwin_arm64", func(p *artifact.Package) { p.Digest = digest.FromString("another") })
	b.MustPush("linux_amd64")
	if got := b.TaggedPlatforms(); got != "darwin_arm64 linux_amd64" || b.LeftTags() != 0 {
		t.Errorf("the index has %s, %d tags are left", got, b.LeftTags())
	}
}

// TestNotesThatLie shows that a prune does not delete a version's index if the repository's state wrongly notes that
// index as another version's replaced index, or as an older state. Otherwise a login that can push but not delete could
// make a prune delete the index.
func TestNotesThatLie(t *testing.T) {
	for _, says := range []string{"", "1.0.0"} {
		b := newSyncBench(t, "1.0.0", "1.1.0")
		b.mustSync("+1.1.0 +1.0.0")
		desc, err := b.Repo.Resolve(t.Context(), "1.1.0")
		if err != nil {
			t.Fatal(err)
		}
		r := artifact.Replaced{Manifest: ocispec.Descriptor{MediaType: desc.MediaType, Digest: desc.Digest, Size: desc.Size}}
		if says != "" {
			r.Version = provider.MustParseVersion(says)
		}
		b.MustRemember(repo.StateChange{Replaced: []artifact.Replaced{r}})
		b.options.Prune = true
		b.mustSync("=1.1.0 =1.0.0")
		if b.tags() != "1.0.0 1.1.0" {
			t.Errorf("the state says %q: tags %s", says, b.tags())
		}
	}
}

// lagging is a store whose list of tags lacks announcement tags, like a list that is out of date.
type lagging struct{ registry.Repository }

func (l lagging) Tags(ctx context.Context, last string, fn func([]string) error) error {
	return l.Repository.Tags(ctx, last, func(page []string) error {
		var out []string
		for _, t := range page {
			if !strings.HasPrefix(t, "ocibridge-part.") {
				out = append(out, t)
			}
		}
		return fn(out)
	})
}

func TestListThatLagsBehindAnnouncements(t *testing.T) {
	b := newBench(t)
	b.Options.Destination = func(context.Context, subject.Address) (repo.Destination, error) {
		return pushbench.Destination(lagging{registry.Repository{Repository: b.Repo}}), nil
	}
	if _, err := b.Push("linux_amd64"); err != nil || b.Announcements() != 1 || b.LeftTags() != 0 {
		t.Errorf("%v, %d announcements, %d left", err, b.Announcements(), b.LeftTags())
	}
}

// refuseDeletes makes the registry return the given status for a delete if match returns true for the request's path.
func (b *bench) refuseDeletes(status int, match func(path string) bool) {
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete || !match(r.URL.Path) {
			return false
		}
		w.WriteHeader(status)
		return true
	})
}

func anyPath(string) bool { return true }

// TestPushWhenDeletesFail shows that a push succeeds even if all deletes fail.
func TestPushWhenDeletesFail(t *testing.T) {
	for _, status := range []int{http.StatusNotImplemented, http.StatusInternalServerError} {
		b := newBench(t)
		b.refuseDeletes(status, anyPath)
		if r := b.MustPush("linux_amd64"); r.Status != pusher.Pushed || b.LeftTags() != 0 {
			t.Errorf("%d: %s, %d tags left", status, r.Status, b.LeftTags())
		}
	}
}

// TestRepeatedPushesWithoutDeletes shows that, if the registry refuses to delete announcements, repeated pushes of one
// platform leave only one announcement.
func TestRepeatedPushesWithoutDeletes(t *testing.T) {
	placeholder, err := artifact.Placeholder("")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		match      func(string) bool
		byPlatform bool
	}{
		"release folder":            {anyPath, true},
		"only the probe is deleted": {func(path string) bool { return !strings.HasSuffix(path, placeholder.Descriptor.Digest.String()) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.refuseDeletes(http.StatusForbidden, tt.match)
			for range 4 {
				r, err := b.Get("linux_amd64")
				if err != nil {
					t.Fatal(err)
				}
				r.ByPublisher = tt.byPlatform
				if _, err := pusher.New(b.Options).Push(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			if n := b.LeftTags(); n != 1 {
				t.Errorf("%d tags are left", n)
			}
		})
	}
}

// TestPlaceholderIsDeletedLater shows that a sync removes an announcement tag of an earlier release once the registry
// allows deletes by digest. Before that, another sync has moved the tag to a placeholder, and could not delete the
// placeholder.
func TestPlaceholderIsDeletedLater(t *testing.T) {
	b := newSyncBench(t, "1.0.0")
	b.mustSync("+1.0.0")
	linux := find(t, b.Tagged(), "linux_amd64")
	data, err := artifact.FetchManifest(t.Context(), b.Repo, linux.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	b.PushManifest(linux.Manifest.MediaType, data, "ocibridge-part.1.0.0.linux_amd64")
	byTag := func(path string) bool { return !strings.Contains(path, "sha256:") }
	b.refuseDeletes(http.StatusMethodNotAllowed, anyPath)
	b.mustSync("=1.0.0")
	if b.LeftTags() != 1 {
		t.Fatalf("%d tags are left", b.LeftTags())
	}
	b.refuseDeletes(http.StatusMethodNotAllowed, byTag)
	b.mustSync("=1.0.0")
	if b.LeftTags() != 0 || b.missing("1.0.0") != "" {
		t.Errorf("%d tags are left, 1.0.0 lacks %q", b.LeftTags(), b.missing("1.0.0"))
	}
}

// TestPruneOfUnreadableAnnouncements shows that a prune removes the tags of announcements that cannot be read. No other
// command removes these tags.
func TestPruneOfUnreadableAnnouncements(t *testing.T) {
	for _, tag := range []string{"ocibridge-part.1.0.0.linux_amd64", "ocibridge-part.1.0.0.abcdefghij234567"} {
		b := newSyncBench(t, "1.0.0")
		b.mustSync("+1.0.0")
		blob, err := artifact.EncodeIndex(artifact.Version{Packages: b.Tagged().Packages})
		if err != nil {
			t.Fatal(err)
		}
		b.PushManifest(ocispec.MediaTypeImageIndex, blob.Data, tag)
		b.options.Prune, b.options.PruneLimit = true, 5
		b.constraint("< 0.0.0")
		b.mustSync("-1.0.0")
		if b.tags() != "" {
			t.Errorf("tags %s", b.tags())
		}
	}
}

// TestClockThatWasAhead shows that, if the clock was ahead in the sync that first saw a version, the version's cooldown
// begins with the next sync.
func TestClockThatWasAhead(t *testing.T) {
	b := newSyncBench(t, "1.0.0")
	b.want.Cooldown = time.Hour
	b.mustSync("+1.0.0")
	b.offer("1.1.0")
	now := b.now
	b.now = now.AddDate(73, 0, 0)
	b.mustSync(".1.1.0 =1.0.0")
	b.now = now
	b.mustSync(".1.1.0 =1.0.0")
	b.now = now.Add(time.Hour)
	b.mustSync("+1.1.0 =1.0.0")
}

// TestPruneBesideAnOpenAnnouncement shows that a prune does not remove a version while a push of the version is in
// progress.
func TestPruneBesideAnOpenAnnouncement(t *testing.T) {
	b := newSyncBench(t, "1.0.0")
	b.mustSync("+1.0.0")
	b.leave("aaaaaaaaaaaaaaaa", b.now, false, b.Tagged(), "linux_amd64", func(*artifact.Package) {})
	b.options.Prune, b.options.PruneLimit = true, 5
	b.constraint("< 0.0.0")
	out := b.mustSync("-1.0.0")
	if len(out.Pruned) != 0 || len(out.Warnings) != 1 || !strings.Contains(out.Warnings[0], "is being pushed") || b.tags() != "1.0.0 ocibridge-part.1.0.0.aaaaaaaaaaaaaaaa" {
		t.Errorf("pruned %v, warnings %q, tags %s", out.Pruned, out.Warnings, b.tags())
	}
	b.now = b.now.Add(time.Hour)
	if out := b.mustSync("-1.0.0"); len(out.Pruned) != 1 || b.tags() != "" {
		t.Errorf("an hour later: pruned %v, warnings %q, tags %s", out.Pruned, out.Warnings, b.tags())
	}
}

// TestOverwrittenIndexesAreNoted shows that the state notes an index even if a push overwrote the index without having
// read it. Two pushes find no tag, and then tag their indexes one after the other.
func TestOverwrittenIndexesAreNoted(t *testing.T) {
	b := newBench(t)
	other, err := b.Get("darwin_arm64")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	step := 0
	waits, tags, tagged := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	b.Registry.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		putsTag := r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/manifests/1.0.0")
		mu.Lock()
		now := step
		if now < 2 && putsTag || now >= 2 && now < 4 {
			step++
		}
		mu.Unlock()
		switch {
		case now == 0 && putsTag: // the first push waits for the second push
			wg.Go(func() {
				if _, err := pusher.New(b.Options).Push(t.Context(), other); err != nil {
					t.Error(err)
				}
			})
			<-waits
		case now == 1 && putsTag: // the second push waits until the first push has tagged its index
			close(waits)
			<-tags
		case now == 2: // the first push waits until the second push has tagged its index
			close(tags)
			<-tagged
		case now == 3:
			close(tagged)
		}
		return false
	})
	first := b.MustPush("linux_amd64")
	wg.Wait()
	b.Registry.Intercept(nil)
	state, _, err := artifact.ReadState(t.Context(), b.Repo, pushbench.Widget)
	if err != nil || len(state.Replaced) != 1 || b.TaggedPlatforms() != "darwin_arm64 linux_amd64" || first.Digest != b.Tagged().Index.Digest.String() {
		t.Errorf("%+v, %v, the index has %s", state, err, b.TaggedPlatforms())
	}
	if b.LeftTags() != 0 {
		t.Errorf("%d tags are left", b.LeftTags())
	}
}

// TestEvidenceThatTheIndexLacks shows that, if the index lacks the signed evidence of an announcement, a sync does not
// remove the announcement. The next push adds the evidence, and removes the announcement.
func TestEvidenceThatTheIndexLacks(t *testing.T) {
	b := newSyncBench(t, "1.0.0")
	b.mustSync("+1.0.0")
	b.leave("aaaaaaaaaaaaaaaa", b.now.Add(-2*time.Hour), true, b.Tagged(), "linux_amd64", func(*artifact.Package) {})
	b.Reindex(func(i *ocispec.Index) { i.Manifests = i.Manifests[:3] })
	if b.Tagged().Evidence != nil {
		t.Fatal("the index has evidence")
	}
	b.mustSync("=1.0.0")
	if b.LeftTags() != 1 {
		t.Errorf("%d tags are left", b.LeftTags())
	}
	b.MustPush("linux_amd64")
	if b.Tagged().Evidence == nil || b.LeftTags() != 0 {
		t.Errorf("evidence %v, %d tags are left", b.Tagged().Evidence, b.LeftTags())
	}
}

// TestPruneOfEverythingByEarlierReleases shows that a prune of all versions also removes all tags that earlier releases
// of ocibridge wrote.
func TestPruneOfEverythingByEarlierReleases(t *testing.T) {
	b := newSyncBench(t, "1.0.0")
	b.mustSync("+1.0.0")
	for _, p := range b.Tagged().Packages {
		data, err := artifact.FetchManifest(t.Context(), b.Repo, p.Manifest)
		if err != nil {
			t.Fatal(err)
		}
		b.PushManifest(p.Manifest.MediaType, data, "ocibridge-part.1.0.0."+p.Platform.String())
	}
	b.noTagDeletes()
	b.options.Prune, b.options.PruneLimit = true, 5
	b.constraint("< 0.0.0")
	out := b.mustSync("-1.0.0")
	if len(out.Warnings) > 0 || b.tags() != "" || b.State() != nil {
		t.Errorf("warnings %q, tags %q, state %v", out.Warnings, b.tags(), b.State())
	}
}

// TestStateThatIsNotFound shows that a sync fails while the registry lists the state's tag but does not find the state.
// Otherwise the sync would count as a first sync, and no version would wait.
func TestStateThatIsNotFound(t *testing.T) {
	b := newSyncBench(t, "1.0.0")
	b.want.Cooldown = time.Hour
	b.constraint("< 0.0.0")
	b.mustSync("")
	b.constraint("> 1.0.0")
	b.offer("1.1.0")
	b.mustSync(".1.1.0")
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/manifests/ocibridge-state") {
			w.WriteHeader(http.StatusNotFound)
			return true
		}
		return false
	})
	if _, out, err := b.sync(); err != nil || len(out.Failures) != 1 || !strings.Contains(out.Failures[0].Err.Error(), "does not find it") {
		t.Errorf("%v, %+v", err, out)
	}
	b.Registry.Intercept(nil)
	b.mustSync(".1.1.0")
}

// TestRegistryThatTakesNoPlaceholder shows that, if a registry refuses the probe, a push of some platforms announces
// itself nevertheless. GitLab refuses the probe because it accepts only OpenTofu's artifact types.
func TestRegistryThatTakesNoPlaceholder(t *testing.T) {
	placeholder, err := artifact.Placeholder("")
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, placeholder.Descriptor.Digest.String()) {
			w.WriteHeader(http.StatusBadRequest)
			return true
		}
		return false
	})
	b.MustPush("linux_amd64")
	if b.Announcements() != 1 || b.LeftTags() != 0 {
		t.Errorf("%d announcements, %d left", b.Announcements(), b.LeftTags())
	}
}

// TestCopyWhileIndexIsReplaced shows that a copy reads a version again if the version's old index and its evidence
// disappear during the copy. A push has replaced the index, and a prune has deleted the old index and its evidence.
func TestCopyWhileIndexIsReplaced(t *testing.T) {
	b := newBench(t)
	b.MustPush()
	old := b.Tagged()
	from, source := b.Source()
	source.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, old.Evidence.Digest.String()) {
			return false
		}
		source.Intercept(nil)
		index, err := artifact.EncodeIndex(artifact.Version{Owner: pushbench.Widget, Version: pushbench.One, Packages: old.Packages})
		if err == nil {
			err = from.Store.(interface {
				PushReference(context.Context, ocispec.Descriptor, io.Reader, string) error
			}).PushReference(t.Context(), index.Descriptor, bytes.NewReader(index.Data), "1.0.0")
		}
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusNotFound)
		return true
	})
	b.Options.Policy = pushbench.AllowUnsigned
	if r, err := pusher.New(b.Options).Copy(t.Context(), from, pushbench.One, nil); err != nil || r.Verdict != artifact.NoEvidence || b.TaggedPlatforms() != pushbench.AllPlatforms {
		t.Errorf("%+v, %v", r, err)
	}
}

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
