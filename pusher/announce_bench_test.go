package pusher_test

import (
	"bytes"
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

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
)

// announceBench is a bench with a local clock and a registry clock. It records the
// announcements that pushes write.
type announceBench struct {
	*bench
	mu       sync.Mutex
	now      time.Time     // the local time
	ahead    time.Duration // the registry's time minus the local time
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
	b.Repo.Client = &http.Client{Transport: clockReader{http.DefaultTransport.(*http.Transport).Clone()}}
	b.Options.Now = b.clock
	b.Options.Jobs = 1
	b.Registry.Intercept(b.intercept)
	return b
}

// clockReader reads the registry's clock from responses, in the same way as the product's
// HTTP client.
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

// pass advances both clocks.
func (b *announceBench) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

// registryTime returns the time by the registry's clock.
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

// note records manifests that are pushed under announcement tags.
func (b *announceBench) note(r *http.Request) {
	tag := path.Base(r.URL.Path)
	if r.Method != http.MethodPut || !strings.HasPrefix(tag, "ocibridge-part.") {
		return
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		b.T.Error(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(data))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent = append(b.sent, sentAnnouncement{tag, digest.FromBytes(data), data})
}

// handle adds a handler that can respond to requests in place of the registry.
func (b *announceBench) handle(h recorder.Intercept) { b.handlers = append(b.handlers, h) }

// whole pushes all platforms, and returns the version. It then removes the version's tag,
// but keeps the manifests.
func (b *announceBench) whole() *artifact.Version {
	b.T.Helper()
	b.MustPush()
	v := b.Tagged()
	b.untag("1.0.0")
	b.sent = nil
	b.Registry.Reset()
	return v
}

func (b *announceBench) untag(tag string) {
	b.T.Helper()
	if err := (registry.Repository{Repository: b.Repo}).Untag(b.T.Context(), tag); err != nil {
		b.T.Fatal(err)
	}
}

const otherTag = "ocibridge-part.1.0.0.aaaaaaaaaaaaaaaa"

// announced writes the announcement of another push, and returns its manifest.
func (b *announceBench) announced(v *artifact.Version, at time.Time, done bool, platforms ...string) ocispec.Descriptor {
	b.T.Helper()
	a := artifact.Announcement{Version: *v, ID: "aaaaaaaaaaaaaaaa", At: at, Done: done}
	a.Packages = nil
	for _, p := range v.Packages {
		if slices.Contains(platforms, p.Platform.String()) {
			a.Packages = append(a.Packages, p)
		}
	}
	blob, err := artifact.EncodeAnnouncement(a)
	if err != nil {
		b.T.Fatal(err)
	}
	return b.PushManifest(blob.Descriptor.MediaType, blob.Data, otherTag)
}

// wantNothingLeft fails the test if the registry still has a tag or a manifest of an
// announcement.
func (b *announceBench) wantNothingLeft() {
	b.T.Helper()
	if n := b.LeftTags(); n != 0 {
		b.T.Errorf("%d tags of announcements are left", n)
	}
	for _, a := range b.sent {
		if b.has(ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: a.digest, Size: int64(len(a.data))}) {
			b.T.Errorf("a manifest of %s is left", a.tag)
		}
	}
}

func (b *announceBench) has(desc ocispec.Descriptor) bool {
	b.T.Helper()
	there, err := b.Repo.Exists(b.T.Context(), desc)
	if err != nil {
		b.T.Fatal(err)
	}
	return there
}

// manifests returns the requests that list tags, that use a manifest's tag, or that delete a
// manifest. The requests are in the order in which the registry received them.
func (b *announceBench) manifests() string {
	var out []string
	for _, q := range b.Registry.Requests() {
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
			continue // oras-go sends a HEAD before it deletes
		}
		out = append(out, q.Method+" "+name)
	}
	return strings.Join(out, ", ")
}

func (b *announceBench) isSent(name string) bool {
	return slices.ContainsFunc(b.sent, func(a sentAnnouncement) bool { return a.digest.String() == name })
}

// probe returns the digest of the manifest that a push sends to find out whether it can
// delete manifests.
func (b *announceBench) probe() digest.Digest {
	p, err := artifact.Placeholder("")
	if err != nil {
		b.T.Fatal(err)
	}
	return p.Descriptor.Digest
}

func (b *announceBench) decode(sent sentAnnouncement) *artifact.Announcement {
	b.T.Helper()
	a, err := artifact.ReadAnnouncement(b.T.Context(), oneTag(sent.data), sent.tag, pushbench.Widget, pushbench.One)
	if err != nil {
		b.T.Fatal(err)
	}
	return a
}

// onNth returns a handler that calls do before the nth request that has the given method and
// whose path ends in name.
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
