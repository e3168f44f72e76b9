package pusher_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	orascontent "oras.land/oras-go/v2/content"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// refuseDelete makes a registry refuse to delete tags and digests that begin with the prefix.
func refuseDelete(status int, prefix string) recorder.Intercept {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete || !strings.HasPrefix(path.Base(r.URL.Path), prefix) {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, `{"errors":[{"code":"UNSUPPORTED","message":"no"}]}`)
		return true
	}
}

// TestPushesThatMayNotDelete shows that, if a login cannot delete manifests, a push announces itself only if jobs push
// the release one platform at a time.
func TestPushesThatMayNotDelete(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			b := newAnnounceBench(t)
			b.handle(refuseDelete(status, ""))
			// A push of some platforms does not announce itself.
			b.MustPush("linux_amd64")
			if len(b.sent) != 0 || b.LeftTags() != 0 {
				t.Errorf("announcements %v", b.sent)
			}
			// A push of a release that jobs push one platform at a time announces itself, and marks its announcement
			// as done.
			r, err := b.Get("darwin_arm64")
			if err != nil {
				t.Fatal(err)
			}
			r.ByPublisher = true
			if _, err := pusher.New(b.Options).Push(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if len(b.sent) != 2 || b.LeftTags() != 1 || !b.decode(b.sent[1]).Done {
				t.Errorf("%d announcements were sent, %d are left", len(b.sent), b.LeftTags())
			}
			if got := b.TaggedPlatforms(); got != "darwin_arm64 linux_amd64" {
				t.Errorf("the index has %s", got)
			}
		})
	}
}

// TestOneProbe shows that, if a Pusher pushes several versions concurrently, only one push probes whether manifests
// can be deleted.
func TestOneProbe(t *testing.T) {
	const pushes = 8
	b := newAnnounceBench(t)
	var ready sync.WaitGroup // released once all pushes send their evidence
	ready.Add(pushes)
	b.Registry.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/sha256:") {
			data, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			r.Body = io.NopCloser(bytes.NewReader(data))
			if bytes.Contains(data, []byte(`"artifactType":"`+artifact.TypeEvidence+`","config"`)) {
				ready.Done()
				ready.Wait()
			}
		}
		return false
	})
	p := pusher.New(b.Options)
	var wg sync.WaitGroup
	for minor := range pushes {
		b.Release = b.Build(fmt.Sprintf("1.%d.0", minor), "content")
		b.Origin.Add(b.Release)
		r, err := b.Get("linux_amd64")
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if _, err := p.Push(t.Context(), r); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := b.Registry.Count(recorder.Method(http.MethodPut), recorder.PathSuffix(b.probe().String())); n != 1 {
		t.Errorf("%d probes", n)
	}
	if n := b.LeftTags(); n != 0 {
		t.Errorf("%d announcements are left", n)
	}
}

// TestWholeReleasesAreNotAnnounced shows that a push does not announce itself if the release has all platforms of its
// SHA256SUMS.
func TestWholeReleasesAreNotAnnounced(t *testing.T) {
	b := newAnnounceBench(t)
	r, err := b.Get()
	if err != nil {
		t.Fatal(err)
	}
	r.Partial, r.ByPublisher = true, true // like a release folder
	if _, err := pusher.New(b.Options).Push(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if len(b.sent) != 0 || b.Registry.Count(recorder.Method(http.MethodDelete)) != 0 {
		t.Errorf("requests %s", b.manifests())
	}
}

// TestForeignAnnouncements shows that, if the manifest under an announcement tag is not a valid announcement of the
// version, a push neither uses nor deletes the manifest.
func TestForeignAnnouncements(t *testing.T) {
	change := func(do func(*artifact.Announcement)) func(*announceBench, artifact.Announcement) []byte {
		return func(b *announceBench, a artifact.Announcement) []byte {
			do(&a)
			blob, err := artifact.EncodeAnnouncement(a)
			if err != nil {
				b.T.Fatal(err)
			}
			return blob.Data
		}
	}
	for name, encode := range map[string]func(*announceBench, artifact.Announcement) []byte{
		"of another provider": change(func(a *artifact.Announcement) {
			a.Owner = provider.MustParseAddress(pushbench.Host + "/other/widget")
		}),
		"of another version": change(func(a *artifact.Announcement) { a.Version.Version = provider.MustParseVersion("2.0.0") }),
		"without an ID":      change(func(a *artifact.Announcement) { a.ID = "" }),
		"an index": func(b *announceBench, a artifact.Announcement) []byte {
			blob, err := artifact.EncodeIndex(a.Version)
			if err != nil {
				b.T.Fatal(err)
			}
			return blob.Data
		},
		"of another tool": func(*announceBench, artifact.Announcement) []byte {
			return []byte(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`)
		},
		"JSON that breaks off": func(b *announceBench, a artifact.Announcement) []byte {
			data := change(func(*artifact.Announcement) {})(b, a)
			b.handle(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodGet || path.Base(r.URL.Path) != otherTag {
					return false
				}
				broken := data[:len(data)/2]
				w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
				w.Header().Set("Docker-Content-Digest", digest.FromBytes(broken).String())
				w.Write(broken)
				return true
			})
			return data
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newAnnounceBench(t)
			v := b.whole()
			v.Packages = v.Packages[:1]
			data := encode(b, artifact.Announcement{Version: *v, ID: "aaaaaaaaaaaaaaaa", At: b.registryTime().Add(-2 * time.Hour)})
			foreign := b.PushManifest(ocispec.MediaTypeImageIndex, data, otherTag)
			b.MustPush("linux_amd64")
			if got := b.TaggedPlatforms(); got != "linux_amd64" {
				t.Errorf("the index has %s", got)
			}
			if b.LeftTags() != 1 || !b.has(foreign) {
				t.Errorf("it was deleted: %s", b.manifests())
			}
		})
	}
}

// TestRefusedAnnouncement shows that a push does not add an announced package that the release contradicts. It removes
// the announcement once the push that wrote the announcement has certainly ended.
func TestRefusedAnnouncement(t *testing.T) {
	b := newAnnounceBench(t)
	v := b.whole()
	v.Packages[0].Digest = digest.FromString("other bytes")
	b.announced(v, b.registryTime(), true, "darwin_arm64")
	b.sent = nil
	b.MustPush("linux_amd64")
	if got := b.TaggedPlatforms(); got != "linux_amd64" || b.LeftTags() != 1 {
		t.Errorf("the index has %s, and %d announcements are left", got, b.LeftTags())
	}
	b.pass(time.Hour)
	b.MustPush("linux_amd64")
	if got := b.TaggedPlatforms(); got != "linux_amd64" {
		t.Errorf("the index has %s", got)
	}
	b.wantNothingLeft()
}

// TestManyAnnouncements shows that, if the version has too many announcements, a push fails without reading any of
// them.
func TestManyAnnouncements(t *testing.T) {
	b := newAnnounceBench(t)
	v := b.whole()
	data, err := orascontent.FetchAll(t.Context(), b.Repo, v.Packages[0].Manifest)
	if err != nil {
		t.Fatal(err)
	}
	for range 201 {
		tag, err := ociaddr.AnnouncementTag(pushbench.One, ociaddr.NewAnnouncementID())
		if err != nil {
			t.Fatal(err)
		}
		b.PushManifest(v.Packages[0].Manifest.MediaType, data, string(tag))
	}
	b.Registry.Reset()
	_, err = b.Push("linux_amd64")
	if err == nil || !strings.Contains(err.Error(), "more than 200") || !strings.Contains(hint.Of(err), "remove them") {
		t.Errorf("error %v (hint %q)", err, hint.Of(err))
	}
	if n := b.Registry.Count(recorder.Method(http.MethodGet), recorder.PathContains("/manifests/ocibridge-part.")); n != 0 {
		t.Errorf("%d of them were read", n)
	}
	if n := b.LeftTags(); n != 201 {
		t.Errorf("%d tags are left", n)
	}
}

// TestRefusedPushWithdraws shows that, if a push is refused after it announced itself, the push removes its
// announcement.
func TestRefusedPushWithdraws(t *testing.T) {
	b := newAnnounceBench(t)
	v := b.whole()
	b.handle(onNth(2, http.MethodGet, "/manifests/1.0.0", func() {
		forged := *v
		forged.Packages = slices.Clone(v.Packages[1:2])
		forged.Packages[0].Digest = digest.FromString("other bytes")
		index, err := artifact.EncodeIndex(forged)
		if err != nil {
			t.Error(err)
		}
		b.Registry.Intercept(nil)
		b.PushManifest(index.Descriptor.MediaType, index.Data, "1.0.0")
		b.Registry.Intercept(b.intercept)
	}))
	if _, err := b.Push("linux_amd64"); err == nil || len(b.sent) != 1 {
		t.Errorf("error %v, %d announcements", err, len(b.sent))
	}
	b.wantNothingLeft()
}

// TestNewerAnnouncementStays shows that a push does not remove an old announcement that another push has just renewed.
// The registry refuses to delete the old manifest while a tag names it. The renewal happens before the push would
// remove the tag.
func TestNewerAnnouncementStays(t *testing.T) {
	b := newAnnounceBench(t)
	v := b.whole()
	old := b.announced(v, b.registryTime().Add(-2*time.Hour), false, "darwin_arm64")
	renewed := false
	b.handle(func(w http.ResponseWriter, r *http.Request) bool {
		if renewed || r.Method != http.MethodDelete || path.Base(r.URL.Path) != old.Digest.String() {
			return false
		}
		renewed = true
		b.Registry.Intercept(nil)
		b.announced(v, b.registryTime(), false, "darwin_arm64")
		b.Registry.Intercept(b.intercept)
		w.WriteHeader(http.StatusPreconditionFailed)
		return true
	})
	b.MustPush("linux_amd64")
	if n := b.LeftTags(); n != 1 {
		t.Errorf("%d announcements are left: %s", n, b.manifests())
	}
}

// TestTagBeforeManifest shows that, if a registry deletes a manifest only after its tag is removed, a push still
// removes announcements.
func TestTagBeforeManifest(t *testing.T) {
	b := newAnnounceBench(t)
	tagged := map[string]string{} // from the digest of a manifest to its announcement tag
	b.handle(func(w http.ResponseWriter, r *http.Request) bool {
		name := path.Base(r.URL.Path)
		switch {
		case r.Method == http.MethodPut && strings.HasPrefix(name, "ocibridge-part."):
			tagged[string(b.sent[len(b.sent)-1].digest)] = name
		case r.Method == http.MethodDelete && tagged[name] != "":
			w.WriteHeader(http.StatusPreconditionFailed)
			return true
		case r.Method == http.MethodDelete && strings.HasPrefix(name, "ocibridge-part."):
			clear(tagged)
		}
		return false
	})
	b.MustPush("linux_amd64")
	b.wantNothingLeft()
}
