package pusher_test

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"

	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/testkit/release"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/trust"
)

// TestStoredIsTheSame shows that the destination of a copy gets the same index as the source, whether the version is
// copied whole or in parts.
func TestStoredIsTheSame(t *testing.T) {
	b := newBench(t)
	b.origin.About("https://git.example/acme/widget", "2026-01-02T03:04:05Z") // the evidence contains this repository and this time
	pushed := b.mustPush()
	from, _ := b.source()
	b.origin.Reset()
	versions, err := from.Versions(t.Context())
	if err != nil || len(versions) != 1 || versions[0] != one {
		t.Fatalf("versions %v, %v", versions, err)
	}
	r, err := b.copy(from)
	if err != nil {
		t.Fatal(err)
	}
	if r.Digest != pushed.Digest || r.Verdict != trust.Signed || r.Fingerprint != b.signer.Fingerprint() || r.Status != pusher.Pushed || b.leftTags() != 0 {
		t.Errorf("copied %+v, %d tags left", r, b.leftTags())
	}
	if r, err = b.copy(from); err != nil || r.Status != pusher.Unchanged {
		t.Errorf("again: %+v, %v", r, err)
	}

	b.newRegistry()
	if _, err := b.copy(from, "linux_amd64"); err != nil || b.taggedPlatforms() != "linux_amd64" || b.leftTags() != 0 || b.announcements() != 1 {
		t.Errorf("one platform: %s, %d announcements, %d tags left, %v", b.taggedPlatforms(), b.announcements(), b.leftTags(), err)
	}
	if r, err = b.copy(from); err != nil || r.Status != pusher.Completed || r.Digest != pushed.Digest {
		t.Errorf("the rest: %+v, %v", r, err)
	}
	if n := b.origin.Count(); n != 0 {
		t.Errorf("%d requests to the origin", n)
	}
}

// TestStoredInPart shows that a copy announces itself if the source has only some platforms of the version. Other
// pushes might add the other platforms at the same time.
func TestStoredInPart(t *testing.T) {
	b := newBench(t)
	pushed := b.mustPush("linux_amd64", "darwin_arm64")
	from, _ := b.source()
	r, err := b.copy(from)
	if err != nil || r.Digest != pushed.Digest || b.leftTags() != 0 || b.announcements() != 1 {
		t.Errorf("copied %+v, %d announcements, %d tags left, %v", r, b.announcements(), b.leftTags(), err)
	}
}

func TestStoredNotThere(t *testing.T) {
	b := newBench(t)
	b.mustPush()
	from, registry := b.source()
	if _, err := from.Release(t.Context(), provider.MustParseVersion("9.0.0"), nil); !errors.Is(err, origin.ErrVersionNotFound) {
		t.Errorf("version: %v", err)
	}
	if _, err := b.copy(from, "plan9_386"); !errors.Is(err, origin.ErrPlatformNotFound) {
		t.Errorf("platform: %v", err)
	}
	registry.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	var refused *pusher.RegistryError
	if _, err := b.copy(from); !errors.As(err, &refused) || refused.Repository != from.Repository {
		t.Errorf("refused: %v", err)
	}
	if _, err := from.Versions(t.Context()); !errors.As(err, &refused) {
		t.Errorf("refused: %v", err)
	}
}

// TestStoredWithoutEvidence shows that a copy of a version without evidence succeeds only if the policy allows
// unsigned versions, and if the packages have the stored digests. Other tools store versions without evidence.
func TestStoredWithoutEvidence(t *testing.T) {
	b := newBench(t)
	b.mustPush()
	v := b.tagged()
	v.Evidence = nil
	b.tag(b.repo, *v)
	from, registry := b.source()
	if _, err := b.copy(from); !errors.Is(err, trust.ErrUnsigned) {
		t.Errorf("by default: %v", err)
	}
	b.options.Policy = func(provider.Address) trust.Policy { return trust.Policy{AllowUnsigned: true} }
	serve := func(w http.ResponseWriter, body []byte) bool {
		w.Write(body)
		return true
	}
	linux := b.release.Package("linux", "amd64")
	registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, linux.SHA256) && r.Method == http.MethodGet && serve(w, bytes.Repeat([]byte("x"), int(linux.Size)))
	})
	if _, err := b.copy(from); !errors.Is(err, trust.ErrChecksum) || b.tagged() != nil {
		t.Errorf("changed on the way: %v", err)
	}
	registry.Intercept(nil)
	r, err := b.copy(from)
	if err != nil || r.Verdict != trust.ChecksumOnly || len(r.Packages) != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	first := r.Digest
	from, _ = b.source()
	if r, err = b.copy(from); err != nil || r.Digest != first {
		t.Errorf("copied on: %+v, %v; want %s", r, err, first)
	}
}

// tag stores a version's index under the tag of the bench's version.
func (b *bench) tag(repo *remote.Repository, v artifact.Version) {
	b.t.Helper()
	index, err := artifact.EncodeIndex(v)
	if err == nil {
		err = repo.PushReference(b.t.Context(), index.Descriptor, bytes.NewReader(index.Data), "1.0.0")
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// TestStoredAsAnothers shows that, if the source offers another provider's packages as the requested provider's
// packages, a copy refuses them. The same publisher has signed both providers.
func TestStoredAsAnothers(t *testing.T) {
	b := newBench(t)
	gadget := release.For(t, release.Spec{Host: host, Namespace: "acme", Type: "gadget", Version: "1.0.0", Signer: b.signer,
		Contents: []release.Content{{OS: "linux", Arch: "amd64", Files: map[string][]byte{"terraform-provider-gadget_v1.0.0": []byte("gadget")}}}})
	b.origin.Add(gadget)
	a := provider.MustParseAddress(host + "/acme/gadget")
	listing, err := b.client.Versions(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.client.Release(t.Context(), a, listing, one, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pusher.New(b.options).Push(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	v, err := artifact.Read(t.Context(), b.repo, a, one)
	if err != nil {
		t.Fatal(err)
	}
	v.Provider = widget
	b.tag(b.repo, *v)
	from, _ := b.source()
	if _, err := b.copy(from); !errors.Is(err, trust.ErrNotListed) || b.tagged() != nil {
		t.Errorf("%v", err)
	}
}

// TestStoredChanged shows that a copy fails if packages and evidence contradict each other.
func TestStoredChanged(t *testing.T) {
	b := newBench(t)
	b.mustPush()
	v := b.tagged()
	// The index now names the Windows package for Linux.
	for i := range v.Packages {
		if v.Packages[i].Platform.OS == "linux" {
			w := v.Packages[len(v.Packages)-1]
			v.Packages[i].Digest, v.Packages[i].Size, v.Packages[i].Manifest = w.Digest, w.Size, w.Manifest
		}
	}
	b.tag(b.repo, *v)
	from, _ := b.source()
	if _, err := b.copy(from); !errors.Is(err, trust.ErrChecksum) || b.tagged() != nil {
		t.Errorf("%v", err)
	}
	if _, err := b.copy(from, "darwin_arm64"); err != nil {
		t.Errorf("the unchanged platform: %v", err)
	}
}
