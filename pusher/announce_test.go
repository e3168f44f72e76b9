package pusher_test

import (
	"bytes"
	"context"
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
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/outgoing"
	"github.com/ocibridge/ocibridge/internal/registry"
	"github.com/ocibridge/ocibridge/internal/testkit/recorder"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// announceBench is a bench with two clocks. It notes the announcements that are sent.
type announceBench struct {
	*bench
	mu       sync.Mutex
	now      time.Time     // local
	ahead    time.Duration // how far the registry's clock is ahead of the local one
	sent     []sentAnnouncement
	handlers []recorder.Intercept
}

type sentAnnouncement struct {
	tag    string
	digest digest.Digest
	data   []byte
}

func newAnnounceBench(t *testing.T) *announceBench {
	b := &announceBench{bench: newBench(t), now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	b.repo.Client = &http.Client{Transport: clockReader{http.DefaultTransport.(*http.Transport).Clone()}}
	b.options.Now = b.clock
	b.options.Jobs = 1
	b.registry.Intercept(b.intercept)
	return b
}

// clockReader reads the registry's clock as the product's own client does.
type clockReader struct{ next *http.Transport }

func (c clockReader) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(req)
	if err == nil {
		outgoing.ReadClock(req, resp)
	}
	return resp, err
}

func (b *announceBench) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

// pass lets time pass.
func (b *announceBench) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

// registryTime is the time of the registry's clock.
func (b *announceBench) registryTime() time.Time { return b.clock().Add(b.ahead) }

func (b *announceBench) intercept(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Set("Date", b.registryTime().Format(http.TimeFormat))
	b.note(r)
	for _, h := range b.handlers {
		if h(w, r) {
			return true
		}
	}
	return false
}

// note keeps what is sent under the tags of announcements.
func (b *announceBench) note(r *http.Request) {
	tag := path.Base(r.URL.Path)
	if r.Method != http.MethodPut || !strings.HasPrefix(tag, "ocibridge-part.") {
		return
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		b.t.Error(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(data))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent = append(b.sent, sentAnnouncement{tag, digest.FromBytes(data), data})
}

// handle adds a handler, which may answer requests in the registry's place.
func (b *announceBench) handle(h recorder.Intercept) { b.handlers = append(b.handlers, h) }

// whole pushes all platforms, and returns the version. Then it removes the version's
// tag: what it named is there.
func (b *announceBench) whole() *artifact.Version {
	b.t.Helper()
	b.mustPush()
	v := b.tagged()
	b.untag("1.0.0")
	b.sent = nil
	b.registry.Reset()
	return v
}

func (b *announceBench) untag(tag string) {
	b.t.Helper()
	if err := (registry.Repository{Repository: b.repo}).Untag(b.t.Context(), tag); err != nil {
		b.t.Fatal(err)
	}
}

const otherTag = "ocibridge-part.1.0.0.aaaaaaaaaaaaaaaa"

// announced writes another push's announcement, and returns its manifest.
func (b *announceBench) announced(v *artifact.Version, at time.Time, done bool, platforms ...string) ocispec.Descriptor {
	b.t.Helper()
	a := artifact.Announcement{Version: *v, ID: "aaaaaaaaaaaaaaaa", At: at, Done: done}
	a.Packages = nil
	for _, p := range v.Packages {
		if slices.Contains(platforms, p.Platform.String()) {
			a.Packages = append(a.Packages, p)
		}
	}
	blob, err := artifact.EncodeAnnouncement(a)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.pushManifest(blob.Descriptor.MediaType, blob.Data, otherTag)
}

// wantNothingLeft fails if a tag of ours is left, or the manifest of an announcement.
func (b *announceBench) wantNothingLeft() {
	b.t.Helper()
	if n := b.leftTags(); n != 0 {
		b.t.Errorf("%d tags of announcements are left", n)
	}
	for _, a := range b.sent {
		if b.has(ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: a.digest, Size: int64(len(a.data))}) {
			b.t.Errorf("a manifest of %s is left", a.tag)
		}
	}
}

func (b *announceBench) has(desc ocispec.Descriptor) bool {
	b.t.Helper()
	there, err := b.repo.Exists(b.t.Context(), desc)
	if err != nil {
		b.t.Fatal(err)
	}
	return there
}

// manifests are the requests about manifests under tags, in order, and all deletes.
func (b *announceBench) manifests() string {
	var out []string
	for _, q := range b.registry.Requests() {
		name := path.Base(q.Path)
		switch {
		case strings.HasSuffix(q.Path, "/tags/list"):
			name = "tags"
		case !strings.Contains(q.Path, "/manifests/"):
			continue
		case strings.HasPrefix(name, "ocibridge-part."):
			name = "announcement"
		case name == b.probe().String():
			name = "probe"
		case b.isSent(name):
			name = "announcement's manifest"
		case strings.HasPrefix(name, "sha256:"):
			name = "another manifest"
		}
		if by := strings.HasPrefix(path.Base(q.Path), "sha256:"); by && q.Method != http.MethodDelete && name != "probe" || q.Method == http.MethodGet && name == "probe" {
			continue // oras-go looks before it deletes
		}
		out = append(out, q.Method+" "+name)
	}
	return strings.Join(out, ", ")
}

func (b *announceBench) isSent(name string) bool {
	return slices.ContainsFunc(b.sent, func(a sentAnnouncement) bool { return a.digest.String() == name })
}

// probe is the manifest by which a push finds out whether it may delete.
func (b *announceBench) probe() digest.Digest {
	p, err := artifact.Placeholder("")
	if err != nil {
		b.t.Fatal(err)
	}
	return p.Descriptor.Digest
}

// TestRequestsOfOnePush holds a push that runs alone to the order of
// TestAnnouncementsModel. It leaves nothing.
func TestRequestsOfOnePush(t *testing.T) {
	b := newAnnounceBench(t)
	b.mustPush("linux_amd64")
	round := "GET tags, GET 1.0.0, "
	want := "GET 1.0.0, GET tags, " + // what is there
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
	// A push whose platforms are in place announces nothing.
	b.registry.Reset()
	b.mustPush("linux_amd64")
	if got := b.manifests(); got != "GET 1.0.0, GET tags" {
		t.Errorf("in place: requests %s", got)
	}
}

// TestRequestsBesideAnother holds a push to the order of TestAnnouncementsModel where
// another one has announced itself.
func TestRequestsBesideAnother(t *testing.T) {
	b := newAnnounceBench(t)
	v := b.whole()
	b.announced(v, b.registryTime(), true, "darwin_arm64")
	b.sent = nil
	b.registry.Reset()
	b.mustPush("linux_amd64")
	round := "GET tags, GET announcement, GET 1.0.0, "
	want := "GET 1.0.0, GET tags, PUT probe, DELETE probe, PUT announcement, " +
		round + "PUT 1.0.0, " +
		round + "PUT announcement, DELETE announcement's manifest, " + // done
		round + "DELETE another manifest, DELETE announcement's manifest"
	if got := b.manifests(); got != want {
		t.Errorf("requests\n%s, want\n%s", got, want)
	}
	b.wantNothingLeft()
	if got := b.taggedPlatforms(); got != "darwin_arm64 linux_amd64" {
		t.Errorf("the index has %s", got)
	}
}

// TestAnnouncementOfACrash has one of a push that was ended, at any time by either clock.
func TestAnnouncementOfACrash(t *testing.T) {
	const ahead = 5 * time.Hour
	for name, tc := range map[string]struct {
		ahead, age time.Duration // by the registry's clock
		left       int           // announcements
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
			b.mustPush("linux_amd64")
			if got := b.taggedPlatforms(); got != "darwin_arm64 linux_amd64" {
				t.Errorf("the index has %s", got)
			}
			if n := b.leftTags(); n != tc.left || b.has(other) != (tc.left > 0) {
				t.Errorf("%d announcements are left, want %d", n, tc.left)
			}
			if own := b.decode(b.sent[0]); !own.At.Equal(b.registryTime()) || own.Done {
				t.Errorf("its own announcement is of %s, and the registry's time is %s", own.At, b.registryTime())
			}
			if tc.left > 0 && !b.decode(b.sent[len(b.sent)-1]).Done {
				t.Error("its own announcement is not done")
			}
			// An hour later, one more push leaves nothing, whatever it brings.
			b.pass(time.Hour)
			b.mustPush("linux_amd64")
			b.wantNothingLeft()
		})
	}
}

func (b *announceBench) decode(sent sentAnnouncement) *artifact.Announcement {
	b.t.Helper()
	a, err := artifact.ReadAnnouncement(b.t.Context(), oneTag(sent.data), sent.tag, widget, one)
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

// oneTag is a store in which every tag names the same manifest.
type oneTag []byte

func (o oneTag) FetchReference(context.Context, string) (ocispec.Descriptor, io.ReadCloser, error) {
	return orascontent.NewDescriptorFromBytes(ocispec.MediaTypeImageIndex, o), io.NopCloser(bytes.NewReader(o)), nil
}

func (o oneTag) Fetch(context.Context, ocispec.Descriptor) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(o)), nil
}

// onNth does something at the nth request that has the method and ends in name.
func onNth(n int, method, name string, do func()) recorder.Intercept {
	return func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == method && strings.HasSuffix(r.URL.Path, name) {
			if n--; n == 0 {
				do()
			}
		}
		return false
	}
}

// TestOldReadings has readings that get older than a minute: the push reads again before
// it writes, and removes nothing.
func TestOldReadings(t *testing.T) {
	twoMinutes := func(b *announceBench) func() { return func() { b.pass(2 * time.Minute) } }
	const begin = "GET 1.0.0, GET tags, PUT probe, DELETE probe, PUT announcement, "
	t.Run("before it writes", func(t *testing.T) {
		b := newAnnounceBench(t)
		b.handle(onNth(2, http.MethodGet, "/manifests/1.0.0", twoMinutes(b)))
		b.mustPush("linux_amd64")
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
		b.mustPush("linux_amd64")
		if n := b.leftTags(); n != 2 {
			t.Errorf("%d announcements are left: %s", n, b.manifests())
		}
		b.mustPush("linux_amd64")
		if n := b.leftTags(); n != 0 {
			t.Errorf("%d announcements are left by one more push", n)
		}
	})
	t.Run("an old index that is copied", func(t *testing.T) {
		b := newAnnounceBench(t)
		b.mustPush("linux_amd64", "darwin_arm64")
		b.reindex(func(i *ocispec.Index) { delete(i.Manifests[0].Annotations, annotationH1) })
		want := b.tagged().Index.Digest
		b.registry.Intercept(nil)
		from, _ := b.source()
		b.registry.Intercept(b.intercept)
		b.sent = nil
		b.handle(onNth(2, http.MethodGet, "/manifests/1.0.0", twoMinutes(b)))
		if _, err := pusher.New(b.options).Copy(t.Context(), from, one, nil); err != nil {
			t.Fatal(err)
		}
		if got := b.tagged().Index.Digest; got != want {
			t.Errorf("the tag names %s, want %s", got, want)
		}
		before, _, _ := strings.Cut(b.manifests(), "PUT 1.0.0")
		if n := strings.Count(before, "GET tags, GET 1.0.0"); n != 2 {
			t.Errorf("requests %s", b.manifests())
		}
		b.wantNothingLeft()
	})
}

// TestCopyJoinsAnnouncements copies an index as it is, of all platforms, while another
// push of the version is running. Both bring the same package: only the announcement
// tells them of each other.
func TestCopyJoinsAnnouncements(t *testing.T) {
	b := newAnnounceBench(t)
	b.mustPush()
	b.reindex(func(i *ocispec.Index) { delete(i.Manifests[0].Annotations, annotationH1) })
	v := b.tagged()
	b.registry.Intercept(nil)
	from, _ := b.source()
	b.repo.Client = &http.Client{Transport: clockReader{http.DefaultTransport.(*http.Transport).Clone()}}
	b.registry.Intercept(b.intercept)
	b.sent = nil
	b.handle(onNth(2, http.MethodGet, "/tags/list", func() {
		b.registry.Intercept(nil)
		other := *v
		other.Evidence = nil
		b.announced(&other, b.registryTime(), false, "linux_amd64")
		b.registry.Intercept(b.intercept)
	}))
	if _, err := pusher.New(b.options).Copy(t.Context(), from, one, nil); err != nil {
		t.Fatal(err)
	}
	if len(b.sent) != 2 || !b.decode(b.sent[1]).Done || b.leftTags() != 2 {
		t.Errorf("%d announcements were sent, and %d are left", len(b.sent), b.leftTags())
	}
	if got := b.tagged().Index.Digest; got != v.Index.Digest {
		t.Errorf("the tag names %s, want %s", got, v.Index.Digest)
	}
}

// TestAnnouncementIsRenewed has a push that takes half an hour, and one whose
// announcement is removed.
func TestAnnouncementIsRenewed(t *testing.T) {
	for name, event := range map[string]func(*announceBench){
		"half an hour": func(b *announceBench) { b.pass(31 * time.Minute) },
		"removed":      func(b *announceBench) { b.untag(b.sent[0].tag) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newAnnounceBench(t)
			b.handle(onNth(2, http.MethodGet, "/tags/list", func() {
				b.registry.Intercept(nil)
				event(b)
				b.registry.Intercept(b.intercept)
			}))
			b.mustPush("linux_amd64")
			if len(b.sent) != 2 || b.sent[0].tag != b.sent[1].tag {
				t.Errorf("announced as %d", len(b.sent))
			}
			b.wantNothingLeft()
		})
	}
}

// TestOwnAnnouncementStaysUntilItIsInTheIndex has a version whose tag is moved at the
// last moment by somebody who follows no rule.
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
		b.registry.Intercept(nil)
		b.pushManifest(index.Descriptor.MediaType, index.Data, "1.0.0")
		b.registry.Intercept(b.intercept)
	}))
	b.mustPush("linux_amd64")
	if got := b.taggedPlatforms(); got != "darwin_arm64" {
		t.Fatalf("the index has %s", got)
	}
	b.mustPush("darwin_arm64")
	if got := b.taggedPlatforms(); got != "darwin_arm64 linux_amd64" {
		t.Errorf("the index has %s", got)
	}
	b.wantNothingLeft()
}

// TestTagsOfEarlierReleases has tags by which earlier releases left a platform and
// evidence. A push adds both to the index, and removes the tags but not the manifests.
func TestTagsOfEarlierReleases(t *testing.T) {
	for name, refuse := range map[string]int{"tags can be deleted": 0, "400": http.StatusBadRequest, "405": http.StatusMethodNotAllowed} {
		t.Run(name, func(t *testing.T) {
			b := newAnnounceBench(t)
			v := b.whole()
			windows := v.Packages[2].Manifest
			for tag, desc := range map[string]ocispec.Descriptor{"windows_amd64": windows, "evidence": *v.Evidence} {
				data, err := orascontent.FetchAll(t.Context(), b.repo, desc)
				if err != nil {
					t.Fatal(err)
				}
				b.pushManifest(desc.MediaType, data, "ocibridge-part.1.0.0."+tag)
			}
			b.sent = nil
			if refuse > 0 {
				b.handle(refuseDelete(refuse, "ocibridge-part."))
			}
			b.mustPush("linux_amd64")
			if got := b.taggedPlatforms(); got != "linux_amd64 windows_amd64" {
				t.Errorf("the index has %s", got)
			}
			b.wantNothingLeft()
			if !b.has(windows) || !b.has(*b.tagged().Evidence) {
				t.Error("what the index names was deleted")
			}
			b.wantFinding("", "")
		})
	}
}

// refuseDelete refuses to delete tags and digests that begin with the prefix.
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

// TestPushesThatMayNotDelete has a login that may not delete manifests.
func TestPushesThatMayNotDelete(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			b := newAnnounceBench(t)
			b.handle(refuseDelete(status, ""))
			// A push of some platforms announces nothing.
			b.mustPush("linux_amd64")
			if len(b.sent) != 0 || b.leftTags() != 0 {
				t.Errorf("announcements %v", b.sent)
			}
			// A job that pushes by platform does, and says when it is done.
			r, err := b.get("darwin_arm64")
			if err != nil {
				t.Fatal(err)
			}
			r.ByPlatform = true
			if _, err := pusher.New(b.options).Push(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if len(b.sent) != 2 || b.leftTags() != 1 || !b.decode(b.sent[1]).Done {
				t.Errorf("%d announcements were sent, %d are left", len(b.sent), b.leftTags())
			}
			if got := b.taggedPlatforms(); got != "darwin_arm64 linux_amd64" {
				t.Errorf("the index has %s", got)
			}
		})
	}
}

// TestOneProbe pushes several versions at once: one of the pushes finds out whether
// manifests can be deleted.
func TestOneProbe(t *testing.T) {
	const pushes = 8
	b := newAnnounceBench(t)
	var ready sync.WaitGroup // all pushes send their evidence
	ready.Add(pushes)
	b.registry.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
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
	p := pusher.New(b.options)
	var wg sync.WaitGroup
	for minor := range pushes {
		b.release = b.build(fmt.Sprintf("1.%d.0", minor), "content")
		b.origin.Add(b.release)
		r, err := b.get("linux_amd64")
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
	if n := b.registry.Count(recorder.Method(http.MethodPut), recorder.PathSuffix(b.probe().String())); n != 1 {
		t.Errorf("%d probes", n)
	}
	if n := b.leftTags(); n != 0 {
		t.Errorf("%d announcements are left", n)
	}
}

// TestWholeReleasesAreNotAnnounced has all platforms of a SHA256SUMS.
func TestWholeReleasesAreNotAnnounced(t *testing.T) {
	b := newAnnounceBench(t)
	r, err := b.get()
	if err != nil {
		t.Fatal(err)
	}
	r.Partial, r.ByPlatform = true, true // as a release folder has it
	if _, err := pusher.New(b.options).Push(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if len(b.sent) != 0 || b.registry.Count(recorder.Method(http.MethodDelete)) != 0 {
		t.Errorf("requests %s", b.manifests())
	}
}

// TestForeignAnnouncements has what is no announcement of this version under the tag of
// one. Nothing of it counts, and nothing of it is deleted.
func TestForeignAnnouncements(t *testing.T) {
	change := func(do func(*artifact.Announcement)) func(*announceBench, artifact.Announcement) []byte {
		return func(b *announceBench, a artifact.Announcement) []byte {
			do(&a)
			blob, err := artifact.EncodeAnnouncement(a)
			if err != nil {
				b.t.Fatal(err)
			}
			return blob.Data
		}
	}
	for name, encode := range map[string]func(*announceBench, artifact.Announcement) []byte{
		"of another provider": change(func(a *artifact.Announcement) { a.Provider = provider.MustParseAddress(host + "/other/widget") }),
		"of another version":  change(func(a *artifact.Announcement) { a.Version.Version = provider.MustParseVersion("2.0.0") }),
		"without an ID":       change(func(a *artifact.Announcement) { a.ID = "" }),
		"an index": func(b *announceBench, a artifact.Announcement) []byte {
			blob, err := artifact.EncodeIndex(a.Version)
			if err != nil {
				b.t.Fatal(err)
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
			foreign := b.pushManifest(ocispec.MediaTypeImageIndex, data, otherTag)
			b.mustPush("linux_amd64")
			if got := b.taggedPlatforms(); got != "linux_amd64" {
				t.Errorf("the index has %s", got)
			}
			if b.leftTags() != 1 || !b.has(foreign) {
				t.Errorf("it was deleted: %s", b.manifests())
			}
		})
	}
}

// TestRefusedAnnouncement has one of a package that the release contradicts: it does not
// get into the index, and is removed once its push has ended for certain.
func TestRefusedAnnouncement(t *testing.T) {
	b := newAnnounceBench(t)
	v := b.whole()
	v.Packages[0].Digest = digest.FromString("other bytes")
	b.announced(v, b.registryTime(), true, "darwin_arm64")
	b.sent = nil
	b.mustPush("linux_amd64")
	if got := b.taggedPlatforms(); got != "linux_amd64" || b.leftTags() != 1 {
		t.Errorf("the index has %s, and %d announcements are left", got, b.leftTags())
	}
	b.pass(time.Hour)
	b.mustPush("linux_amd64")
	if got := b.taggedPlatforms(); got != "linux_amd64" {
		t.Errorf("the index has %s", got)
	}
	b.wantNothingLeft()
}

// TestManyAnnouncements has more tags than a push reads.
func TestManyAnnouncements(t *testing.T) {
	b := newAnnounceBench(t)
	v := b.whole()
	data, err := orascontent.FetchAll(t.Context(), b.repo, v.Packages[0].Manifest)
	if err != nil {
		t.Fatal(err)
	}
	for range 201 {
		tag, err := ociaddr.AnnouncementTag(one, ociaddr.NewAnnouncementID())
		if err != nil {
			t.Fatal(err)
		}
		b.pushManifest(v.Packages[0].Manifest.MediaType, data, string(tag))
	}
	b.registry.Reset()
	_, err = b.push("linux_amd64")
	if err == nil || !strings.Contains(err.Error(), "more than 200") || !strings.Contains(hint.Of(err), "remove them") {
		t.Errorf("error %v (hint %q)", err, hint.Of(err))
	}
	if n := b.registry.Count(recorder.Method(http.MethodGet), recorder.PathContains("/manifests/ocibridge-part.")); n != 0 {
		t.Errorf("%d of them were read", n)
	}
	if n := b.leftTags(); n != 201 {
		t.Errorf("%d tags are left", n)
	}
}

// TestRefusedPushWithdraws has a push that is refused after it has announced itself.
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
		b.registry.Intercept(nil)
		b.pushManifest(index.Descriptor.MediaType, index.Data, "1.0.0")
		b.registry.Intercept(b.intercept)
	}))
	if _, err := b.push("linux_amd64"); err == nil || len(b.sent) != 1 {
		t.Errorf("error %v, %d announcements", err, len(b.sent))
	}
	b.wantNothingLeft()
}

// TestNewerAnnouncementStays has a registry that wants a tag to be removed before its
// manifest, and an announcement that is written anew meanwhile.
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
		b.registry.Intercept(nil)
		b.announced(v, b.registryTime(), false, "darwin_arm64")
		b.registry.Intercept(b.intercept)
		w.WriteHeader(http.StatusPreconditionFailed)
		return true
	})
	b.mustPush("linux_amd64")
	if n := b.leftTags(); n != 1 {
		t.Errorf("%d announcements are left: %s", n, b.manifests())
	}
}

// TestTagBeforeManifest has a registry that wants a tag to be removed before its
// manifest.
func TestTagBeforeManifest(t *testing.T) {
	b := newAnnounceBench(t)
	tagged := map[string]string{} // by manifest
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
	b.mustPush("linux_amd64")
	b.wantNothingLeft()
}
