package pusher_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	orascontent "oras.land/oras-go/v2/content"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/pusher"
)

// TestRequestsOfOnePush shows that, if a push runs alone, it sends its requests in the order of
// TestAnnouncementsModel, and leaves no announcement.
func TestRequestsOfOnePush(t *testing.T) {
	b := newAnnounceBench(t)
	b.MustPush("linux_amd64")
	round := "GET tags, GET 1.0.0, "
	want := "GET 1.0.0, GET tags, " + // the stored version
		"PUT probe, DELETE probe, PUT announcement, " +
		round + "PUT 1.0.0, " +
		round + "DELETE announcement's manifest, " +
		"GET tags"
	if got := b.manifests(); got != want {
		t.Errorf("requests\n%s, want\n%s", got, want)
	}
	b.wantNothingLeft()
	if b.has(ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: b.probe()}) {
		t.Error("the probe is left")
	}
	// A push whose platforms are in place does not announce itself.
	b.Registry.Reset()
	b.MustPush("linux_amd64")
	if got := b.manifests(); got != "GET 1.0.0, GET tags" {
		t.Errorf("in place: requests %s", got)
	}
}

// TestRequestsBesideAnother shows that, if another push has announced itself, a push sends its requests in the order
// of TestAnnouncementsModel.
func TestRequestsBesideAnother(t *testing.T) {
	b := newAnnounceBench(t)
	v := b.whole()
	b.announced(v, b.registryTime(), true, "darwin_arm64")
	b.sent = nil
	b.Registry.Reset()
	b.MustPush("linux_amd64")
	round := "GET tags, GET announcement, GET 1.0.0, "
	want := "GET 1.0.0, GET tags, PUT probe, DELETE probe, PUT announcement, " +
		round + "PUT 1.0.0, " +
		round + "PUT announcement, DELETE announcement's manifest, " + // done
		round + "DELETE another manifest, DELETE announcement's manifest"
	if got := b.manifests(); got != want {
		t.Errorf("requests\n%s, want\n%s", got, want)
	}
	b.wantNothingLeft()
	if got := b.TaggedPlatforms(); got != "darwin_arm64 linux_amd64" {
		t.Errorf("the index has %s", got)
	}
}

// TestAnnouncementOfACrash shows that a push adds the packages that a crashed push announced. It removes the
// announcement if the announcement's time differs from the registry's time by at least an hour. The local clock has
// no effect.
func TestAnnouncementOfACrash(t *testing.T) {
	const ahead = 5 * time.Hour
	for name, tc := range map[string]struct {
		ahead, age time.Duration // the registry's time minus the local time, and the announcement's age by the registry's clock
		left       int           // number of announcements that are left
	}{
		"old":                           {0, 2 * time.Hour, 0},
		"fresh":                         {0, 10 * time.Minute, 2},
		"old, registry ahead":           {ahead, 2 * time.Hour, 0},
		"fresh, registry ahead":         {ahead, 10 * time.Minute, 2},
		"old, registry behind":          {-ahead, 2 * time.Hour, 0},
		"fresh, registry behind":        {-ahead, 10 * time.Minute, 2},
		"from the future":               {0, -2 * time.Hour, 0},
		"at the very hour":              {0, time.Hour, 0},
		"a second less, registry ahead": {ahead, time.Hour - time.Second, 2},
	} {
		t.Run(name, func(t *testing.T) {
			b := newAnnounceBench(t)
			b.ahead = tc.ahead
			v := b.whole()
			other := b.announced(v, b.registryTime().Add(-tc.age), false, "darwin_arm64")
			b.sent = nil
			b.MustPush("linux_amd64")
			if got := b.TaggedPlatforms(); got != "darwin_arm64 linux_amd64" {
				t.Errorf("the index has %s", got)
			}
			if n := b.LeftTags(); n != tc.left || b.has(other) != (tc.left > 0) {
				t.Errorf("%d announcements are left, want %d", n, tc.left)
			}
			if own := b.decode(b.sent[0]); !own.At.Equal(b.registryTime()) || own.Done {
				t.Errorf("its own announcement is of %s, and the registry's time is %s", own.At, b.registryTime())
			}
			if tc.left > 0 && !b.decode(b.sent[len(b.sent)-1]).Done {
				t.Error("its own announcement is not done")
			}
			// A push that runs an hour later leaves no announcement.
			b.pass(time.Hour)
			b.MustPush("linux_amd64")
			b.wantNothingLeft()
		})
	}
}

// oneTag is a store whose tags all name the same manifest.
type oneTag []byte

func (o oneTag) FetchReference(context.Context, string) (ocispec.Descriptor, io.ReadCloser, error) {
	return orascontent.NewDescriptorFromBytes(ocispec.MediaTypeImageIndex, o), io.NopCloser(bytes.NewReader(o)), nil
}

func (o oneTag) Fetch(context.Context, ocispec.Descriptor) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(o)), nil
}

// TestOldReadings shows that, if a push's data is older than a minute, the push reads again before it writes. It
// removes nothing on the basis of this data.
func TestOldReadings(t *testing.T) {
	twoMinutes := func(b *announceBench) func() { return func() { b.pass(2 * time.Minute) } }
	const begin = "GET 1.0.0, GET tags, PUT probe, DELETE probe, PUT announcement, "
	t.Run("before it writes", func(t *testing.T) {
		b := newAnnounceBench(t)
		b.handle(onNth(2, http.MethodGet, "/manifests/1.0.0", twoMinutes(b)))
		b.MustPush("linux_amd64")
		want := begin + "GET tags, GET 1.0.0, GET tags, GET 1.0.0, PUT 1.0.0, "
		if got := b.manifests(); !strings.HasPrefix(got, want) {
			t.Errorf("requests\n%s, want\n%s", got, want)
		}
		b.wantNothingLeft()
	})
	t.Run("before it removes", func(t *testing.T) {
		b := newAnnounceBench(t)
		b.announced(b.whole(), b.registryTime(), true, "darwin_arm64")
		b.handle(onNth(4, http.MethodGet, "/manifests/1.0.0", twoMinutes(b)))
		b.MustPush("linux_amd64")
		if n := b.LeftTags(); n != 2 {
			t.Errorf("%d announcements are left: %s", n, b.manifests())
		}
		b.MustPush("linux_amd64")
		if n := b.LeftTags(); n != 0 {
			t.Errorf("the next push leaves %d announcements", n)
		}
	})
	t.Run("before it restores a version", func(t *testing.T) {
		b := newAnnounceBench(t)
		v := b.whole()
		b.handle(onNth(1, http.MethodPut, "/manifests/1.0.0", func() {
			b.Registry.Intercept(nil)
			b.announced(v, b.registryTime(), false, "linux_amd64")
			b.Registry.Intercept(b.intercept)
		}))
		b.handle(onNth(3, http.MethodGet, "/manifests/1.0.0", twoMinutes(b)))
		if _, err := b.pushRelease(b.mirrorRelease("darwin_arm64", "something else")); !errors.Is(err, pusher.ErrConflict) {
			t.Fatal(err)
		}
		puts := strings.Split(b.manifests(), "PUT 1.0.0")
		if len(puts) != 3 || strings.Count(puts[1], "GET tags, GET announcement, GET 1.0.0") != 2 {
			t.Errorf("requests %s", b.manifests())
		}
		if got := b.TaggedPlatforms(); got != "linux_amd64" {
			t.Errorf("tagged %s", got)
		}
	})
	t.Run("an old index that is copied", func(t *testing.T) {
		b := newAnnounceBench(t)
		b.MustPush("linux_amd64", "darwin_arm64")
		b.Reindex(func(i *ocispec.Index) { delete(i.Manifests[0].Annotations, pushbench.AnnotationH1) })
		want := b.Tagged().Index.Digest
		b.Registry.Intercept(nil)
		from, _ := b.Source()
		b.Registry.Intercept(b.intercept)
		b.sent = nil
		b.handle(onNth(2, http.MethodGet, "/manifests/1.0.0", twoMinutes(b)))
		if _, err := pusher.New(b.Options).Copy(t.Context(), from, pushbench.One, nil); err != nil {
			t.Fatal(err)
		}
		if got := b.Tagged().Index.Digest; got != want {
			t.Errorf("the tag names %s, want %s", got, want)
		}
		before, _, _ := strings.Cut(b.manifests(), "PUT 1.0.0")
		if n := strings.Count(before, "GET tags, GET 1.0.0"); n != 2 {
			t.Errorf("requests %s", b.manifests())
		}
		b.wantNothingLeft()
	})
}

// TestTagMovesBeforeTheAnnouncement shows that a push whose platform was in place reads the index again once it has
// announced itself. The other push may have replaced the index and ended in the meantime.
func TestTagMovesBeforeTheAnnouncement(t *testing.T) {
	b := newAnnounceBench(t)
	v := b.whole()
	b.MustPush("darwin_arm64")
	replaced := b.Tagged().Index
	b.untag("1.0.0")
	b.MustPush("linux_amd64")
	b.announced(v, b.registryTime(), false, "darwin_arm64")
	var once sync.Once
	b.handle(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/ocibridge-part.") {
			once.Do(func() {
				b.untag(otherTag)
				if err := b.Repo.Tag(t.Context(), replaced, "1.0.0"); err != nil {
					t.Error(err)
				}
			})
		}
		return false
	})
	b.MustPush("linux_amd64")
	if got := b.TaggedPlatforms(); got != "darwin_arm64 linux_amd64" {
		t.Errorf("the index has %s", got)
	}
}

// TestCopyJoinsAnnouncements shows that, if another push of the version has announced itself, a copy of a whole
// index byte for byte announces itself, too. The push and the copy bring the same package, so they can see each
// other only by their announcements.
func TestCopyJoinsAnnouncements(t *testing.T) {
	b := newAnnounceBench(t)
	b.MustPush()
	b.Reindex(func(i *ocispec.Index) { delete(i.Manifests[0].Annotations, pushbench.AnnotationH1) })
	v := b.Tagged()
	b.Registry.Intercept(nil)
	from, _ := b.Source()
	b.Repo.Client = &http.Client{Transport: clockReader{http.DefaultTransport.(*http.Transport).Clone()}}
	b.Registry.Intercept(b.intercept)
	b.sent = nil
	b.handle(onNth(2, http.MethodGet, "/tags/list", func() {
		b.Registry.Intercept(nil)
		other := *v
		other.Evidence = nil
		b.announced(&other, b.registryTime(), false, "linux_amd64")
		b.Registry.Intercept(b.intercept)
	}))
	if _, err := pusher.New(b.Options).Copy(t.Context(), from, pushbench.One, nil); err != nil {
		t.Fatal(err)
	}
	if len(b.sent) != 2 || !b.decode(b.sent[1]).Done || b.LeftTags() != 2 {
		t.Errorf("%d announcements were sent, and %d are left", len(b.sent), b.LeftTags())
	}
	if got := b.Tagged().Index.Digest; got != v.Index.Digest {
		t.Errorf("the tag names %s, want %s", got, v.Index.Digest)
	}
}

// TestAnnouncementIsRenewed shows that a push renews its announcement if the push takes half an hour, or if another
// client removes the announcement.
func TestAnnouncementIsRenewed(t *testing.T) {
	for name, event := range map[string]func(*announceBench){
		"half an hour": func(b *announceBench) { b.pass(31 * time.Minute) },
		"removed":      func(b *announceBench) { b.untag(b.sent[0].tag) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newAnnounceBench(t)
			b.handle(onNth(2, http.MethodGet, "/tags/list", func() {
				b.Registry.Intercept(nil)
				event(b)
				b.Registry.Intercept(b.intercept)
			}))
			b.MustPush("linux_amd64")
			if len(b.sent) != 2 || b.sent[0].tag != b.sent[1].tag {
				t.Errorf("%d announcements were written, want 2 under one tag", len(b.sent))
			}
			b.wantNothingLeft()
		})
	}
}

// TestOwnAnnouncementStaysUntilItIsInTheIndex shows that a push keeps its announcement as long as the index lacks
// the announced packages. In this test, another client breaks the protocol, and moves the version's tag at the last
// moment.
func TestOwnAnnouncementStaysUntilItIsInTheIndex(t *testing.T) {
	b := newAnnounceBench(t)
	v := b.whole()
	b.announced(v, b.registryTime(), true, "darwin_arm64")
	other := *v
	other.Packages = v.Packages[:1] // for darwin
	index, err := artifact.EncodeIndex(other)
	if err != nil {
		t.Fatal(err)
	}
	b.handle(onNth(4, http.MethodGet, "/manifests/1.0.0", func() {
		b.Registry.Intercept(nil)
		b.PushManifest(index.Descriptor.MediaType, index.Data, "1.0.0")
		b.Registry.Intercept(b.intercept)
	}))
	b.MustPush("linux_amd64")
	if got := b.TaggedPlatforms(); got != "darwin_arm64" {
		t.Fatalf("the index has %s", got)
	}
	b.MustPush("darwin_arm64")
	if got := b.TaggedPlatforms(); got != "darwin_arm64 linux_amd64" {
		t.Errorf("the index has %s", got)
	}
	b.wantNothingLeft()
}

// TestTagsOfEarlierReleases shows that, if tags of earlier releases announce a platform and evidence, a push adds
// the platform and the evidence to the index. The push then removes the tags, but keeps the manifests.
func TestTagsOfEarlierReleases(t *testing.T) {
	for name, refuse := range map[string]int{"tags can be deleted": 0, "400": http.StatusBadRequest, "405": http.StatusMethodNotAllowed} {
		t.Run(name, func(t *testing.T) {
			b := newAnnounceBench(t)
			v := b.whole()
			windows := v.Packages[2].Manifest
			for tag, desc := range map[string]ocispec.Descriptor{"windows_amd64": windows, "evidence": *v.Evidence} {
				data, err := orascontent.FetchAll(t.Context(), b.Repo, desc)
				if err != nil {
					t.Fatal(err)
				}
				b.PushManifest(desc.MediaType, data, "ocibridge-part.1.0.0."+tag)
			}
			b.sent = nil
			if refuse > 0 {
				b.handle(refuseDelete(refuse, "ocibridge-part."))
			}
			b.MustPush("linux_amd64")
			if got := b.TaggedPlatforms(); got != "linux_amd64 windows_amd64" {
				t.Errorf("the index has %s", got)
			}
			b.wantNothingLeft()
			if !b.has(windows) || !b.has(*b.Tagged().Evidence) {
				t.Error("a manifest of the index was deleted")
			}
			b.wantFinding("", "")
		})
	}
}
