package pusher_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	realorigin "github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/trust"
)

// TestPartialPushEndedBesideAnother pauses a push of one platform before each of its requests. It then pushes another
// platform from start to end, and interrupts the paused push soon afterwards. It shows that one more push of the first
// platform gives the version both platforms.
func TestPartialPushEndedBesideAnother(t *testing.T) {
	testkit.LeaveToAll(t)
	for pause := 1; ; pause++ {
		for after := 0; after < 3; after++ {
			b := newBench(t)
			ctx, cancel := context.WithCancel(t.Context())
			requests, reached := 0, false
			b.Options.Jobs = 1
			b.Registry.Intercept(func(http.ResponseWriter, *http.Request) bool {
				requests++
				switch {
				case requests == pause:
					reached = true
					b.Registry.Intercept(nil)
					b.MustPush("darwin_arm64")
					left := after
					b.Registry.Intercept(func(http.ResponseWriter, *http.Request) bool {
						if left--; left < 0 {
							cancel()
							panic(http.ErrAbortHandler)
						}
						return false
					})
				}
				return false
			})
			r, err := b.Get("linux_amd64")
			if err != nil {
				t.Fatal(err)
			}
			_, err = pusher.New(b.Options).Push(ctx, r)
			cancel()
			b.Registry.Intercept(nil)
			if !reached {
				if err != nil || b.LeftTags() != 0 {
					t.Fatalf("alone: %d announcements are left, %v", b.LeftTags(), err)
				}
				return
			}
			b.MustPush("linux_amd64")
			if got := b.TaggedPlatforms(); got != "darwin_arm64 linux_amd64" {
				t.Fatalf("paused before request %d, ended %d later: the index has %s", pause, after, got)
			}
		}
	}
}

// unsigned returns the bench's release with hashes instead of a signature, like a release from a mirror folder.
func (b *bench) unsigned() *realorigin.Release {
	b.T.Helper()
	r, err := b.Get()
	if err != nil {
		b.T.Fatal(err)
	}
	hashes := map[string][]provider.Hash{}
	for _, p := range b.Release.Packages {
		h, err := provider.ParseHash("zh:" + p.SHA256)
		if err != nil {
			b.T.Fatal(err)
		}
		hashes[p.Filename] = []provider.Hash{h}
	}
	r.Claims = trust.Claims{Provider: r.Provider(), Version: r.Version(), Hashes: hashes}
	r.Partial, r.Origin = true, "mirror folder"
	return r
}

// TestEvidenceIsNeverReplacedByWeaker pauses an unsigned push before each of its requests, and runs a signed push of
// the same packages from start to end. It shows that the version keeps the signed evidence.
func TestEvidenceIsNeverReplacedByWeaker(t *testing.T) {
	testkit.LeaveToAll(t)
	for pause, reached := 1, true; reached; pause++ {
		b := newBench(t)
		reached = false
		requests := 0
		var signed *pusher.Result
		b.Registry.Intercept(func(http.ResponseWriter, *http.Request) bool {
			if requests++; requests == pause {
				reached = true
				signed = b.MustPush()
			}
			return false
		})
		b.Options.Jobs, b.Options.Policy = 1, pushbench.AllowUnsigned
		if _, err := pusher.New(b.Options).Push(t.Context(), b.unsigned()); err != nil {
			t.Fatalf("paused before request %d: %v", pause, err)
		}
		b.Registry.Intercept(nil)
		if !reached {
			break
		}
		if signed.EvidenceKept {
			continue // the unsigned push ran first, and the signed push found everything in place
		}
		e, err := artifact.ReadEvidence(t.Context(), b.Repo, *b.Tagged().Evidence)
		if err != nil || e.Record.Verdict != trust.Signed || b.TaggedPlatforms() != pushbench.AllPlatforms {
			t.Fatalf("paused before request %d: evidence %+v, %v", pause, e, err)
		}
	}
}

// TestWeakerPushKeepsEvidence shows that a version keeps its signed evidence when an unsigned push adds platforms.
func TestWeakerPushKeepsEvidence(t *testing.T) {
	b := newBench(t)
	b.MustPush("linux_amd64")
	b.Options.Policy = pushbench.AllowUnsigned
	r, err := pusher.New(b.Options).Push(t.Context(), b.unsigned())
	if err != nil || r.Status != pusher.Completed || !r.EvidenceKept {
		t.Errorf("%+v, %v", r, err)
	}
	e, err := artifact.ReadEvidence(t.Context(), b.Repo, *b.Tagged().Evidence)
	if err != nil || e.Record.Verdict != trust.Signed {
		t.Errorf("evidence %+v, %v", e, err)
	}
}

// TestUnlistedAnnouncementIsIgnored shows that a push ignores an announced package if the release does not list the
// package for the announced platform. The announcement tags have the format of earlier releases of ocibridge.
func TestUnlistedAnnouncementIsIgnored(t *testing.T) {
	b := newBench(t)
	b.MustPush("linux_amd64")
	linux := b.Tagged().Packages[0].Manifest
	data, err := artifact.FetchManifest(t.Context(), b.Repo, linux)
	if err != nil {
		t.Fatal(err)
	}
	b.PushManifest(linux.MediaType, data, "ocibridge-part.1.0.0.windows_amd64") // the package for linux
	b.PushManifest(linux.MediaType, data, "ocibridge-part.1.0.0.plan9_mips")
	b.MustPush("darwin_arm64")
	if got := b.TaggedPlatforms(); got != "darwin_arm64 linux_amd64" {
		t.Errorf("the index has %s", got)
	}
}

// TestMisnamedPackage shows that a push refuses a package that belongs to another version or platform, even if the
// origin offers it with a valid signature.
func TestMisnamedPackage(t *testing.T) {
	old := func(b *bench) *release.Release { return b.Build("0.9.0", "old content") }
	for name, spoil := range map[string]func(*bench){
		"other version": func(b *bench) {
			r := old(b)
			r.Version = "1.0.0"
			b.Origin.Add(r)
		},
		"other platform": func(b *bench) {
			linux, windows := b.Release.Package("linux", "amd64"), b.Release.Package("windows", "amd64")
			linux.Filename, linux.Data, linux.SHA256, linux.Size = windows.Filename, windows.Data, windows.SHA256, windows.Size
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			spoil(b)
			b.Registry.Reset()
			if _, err := b.Push(); !errors.Is(err, pusher.ErrMisnamed) {
				t.Errorf("error %v", err)
			}
			if n := b.Registry.Count(recorder.Writes()); n != 0 {
				t.Errorf("%d requests that write", n)
			}
		})
	}
}

// TestAnnouncedTooLong shows that, if the origin announces more bytes than a package may have, a push refuses the
// package without reading it.
func TestAnnouncedTooLong(t *testing.T) {
	b := newBench(t)
	r, err := b.Get()
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Packages {
		r.Packages[i].Open = func(context.Context) (io.ReadCloser, int64, error) {
			return io.NopCloser(iotest.ErrReader(errors.New("it is read"))), 1 << 50, nil
		}
	}
	if _, err := pusher.New(b.Options).Push(t.Context(), r); !errors.Is(err, pusher.ErrTooLong) {
		t.Errorf("error %v", err)
	}
}

// TestLongerThanAnnounced shows that a push fails if the origin sends more bytes than it announced.
func TestLongerThanAnnounced(t *testing.T) {
	b := newBench(t)
	r, err := b.Get()
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Packages {
		open := r.Packages[i].Open
		r.Packages[i].Open = func(ctx context.Context) (io.ReadCloser, int64, error) {
			body, size, err := open(ctx)
			return body, size - 1, err
		}
	}
	if _, err := pusher.New(b.Options).Push(t.Context(), r); !errors.Is(err, pusher.ErrTooLong) {
		t.Errorf("error %v", err)
	}
}

// TestTagsThatBreakOff shows that a push fails if a later page of the list of tags is missing. The push would otherwise
// not see all announcements.
func TestTagsThatBreakOff(t *testing.T) {
	b := newBench(t)
	b.MustPush("linux_amd64")
	before := b.Tagged().Index.Digest
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/tags/list") {
			return false
		}
		if r.URL.Query().Has("last") {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"errors":[{"code":"NAME_UNKNOWN"}]}`)
			return true
		}
		w.Header().Set("Link", "<"+r.URL.Path+`?last=0.9.0>; rel="next"`)
		fmt.Fprint(w, `{"name":"acme/widget","tags":["0.9.0"]}`)
		return true
	})
	if r, err := b.Push("darwin_arm64"); !errors.Is(err, artifact.ErrTagsBrokeOff) {
		t.Errorf("%+v, %v", r, err)
	}
	if after := b.Tagged().Index.Digest; after != before {
		t.Errorf("tagged %s, before %s", after, before)
	}
}
