package pusher_test

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"

	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

// TestStoredIsTheSame shows that the destination of a copy gets the same index as the source, whether the version is
// copied whole or in parts.
func TestStoredIsTheSame(t *testing.T) {
	b := newBench(t)
	b.Origin.About("https://git.example/acme/widget", "2026-01-02T03:04:05Z") // the evidence contains this repository and this time
	pushed := b.MustPush()
	from, _ := b.Source()
	b.Origin.Reset()
	versions, err := from.Versions(t.Context())
	if err != nil || len(versions) != 1 || versions[0] != pushbench.One {
		t.Fatalf("versions %v, %v", versions, err)
	}
	r, err := b.Copy(from)
	if err != nil {
		t.Fatal(err)
	}
	if r.Digest != pushed.Digest || r.Verdict != trust.Signed || r.Fingerprint != b.Signer.Fingerprint() || r.Status != pusher.Pushed || b.LeftTags() != 0 {
		t.Errorf("copied %+v, %d tags left", r, b.LeftTags())
	}
	if r, err = b.Copy(from); err != nil || r.Status != pusher.Unchanged {
		t.Errorf("again: %+v, %v", r, err)
	}

	b.NewRegistry()
	if _, err := b.Copy(from, "linux_amd64"); err != nil || b.TaggedPlatforms() != "linux_amd64" || b.LeftTags() != 0 || b.Announcements() != 1 {
		t.Errorf("one platform: %s, %d announcements, %d tags left, %v", b.TaggedPlatforms(), b.Announcements(), b.LeftTags(), err)
	}
	if r, err = b.Copy(from); err != nil || r.Status != pusher.Completed || r.Digest != pushed.Digest {
		t.Errorf("the rest: %+v, %v", r, err)
	}
	if n := b.Origin.Count(); n != 0 {
		t.Errorf("%d requests to the origin", n)
	}
}

// TestStoredInPart shows that a copy announces itself if the source has only some platforms of the version. Other
// pushes might add the other platforms at the same time.
func TestStoredInPart(t *testing.T) {
	b := newBench(t)
	pushed := b.MustPush("linux_amd64", "darwin_arm64")
	from, _ := b.Source()
	r, err := b.Copy(from)
	if err != nil || r.Digest != pushed.Digest || b.LeftTags() != 0 || b.Announcements() != 1 {
		t.Errorf("copied %+v, %d announcements, %d tags left, %v", r, b.Announcements(), b.LeftTags(), err)
	}
}

func TestStoredNotThere(t *testing.T) {
	b := newBench(t)
	b.MustPush()
	from, registry := b.Source()
	if _, err := from.Release(t.Context(), provider.MustParseVersion("9.0.0"), nil); !errors.Is(err, origin.ErrVersionNotFound) {
		t.Errorf("version: %v", err)
	}
	if _, err := b.Copy(from, "plan9_386"); !errors.Is(err, origin.ErrPlatformNotFound) {
		t.Errorf("platform: %v", err)
	}
	registry.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	var refused *repo.RegistryError
	if _, err := b.Copy(from); !errors.As(err, &refused) || refused.Repository != from.Repository {
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
	b.MustPush()
	v := b.Tagged()
	v.Evidence = nil
	b.tag(b.Repo, *v)
	from, registry := b.Source()
	if _, err := b.Copy(from); !errors.Is(err, trust.ErrUnsigned) {
		t.Errorf("by default: %v", err)
	}
	b.Options.Policy = func(provider.Address) trust.Policy { return trust.Policy{AllowUnsigned: true} }
	serve := func(w http.ResponseWriter, body []byte) bool {
		w.Write(body)
		return true
	}
	linux := b.Release.Package("linux", "amd64")
	registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, linux.SHA256) && r.Method == http.MethodGet && serve(w, bytes.Repeat([]byte("x"), int(linux.Size)))
	})
	if _, err := b.Copy(from); !errors.Is(err, trust.ErrChecksum) || b.Tagged() != nil {
		t.Errorf("changed on the way: %v", err)
	}
	registry.Intercept(nil)
	r, err := b.Copy(from)
	if err != nil || r.Verdict != trust.ChecksumOnly || len(r.Packages) != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	first := r.Digest
	from, _ = b.Source()
	if r, err = b.Copy(from); err != nil || r.Digest != first {
		t.Errorf("copied on: %+v, %v; want %s", r, err, first)
	}
}

// tag stores a version's index under the tag of the bench's version.
func (b *bench) tag(repo *remote.Repository, v artifact.Version) {
	b.T.Helper()
	index, err := artifact.EncodeIndex(v)
	if err == nil {
		err = repo.PushReference(b.T.Context(), index.Descriptor, bytes.NewReader(index.Data), "1.0.0")
	}
	if err != nil {
		b.T.Fatal(err)
	}
}

// TestStoredAsAnothers shows that, if the source offers another provider's packages as the requested provider's
// packages, a copy refuses them. The same publisher has signed both providers.
func TestStoredAsAnothers(t *testing.T) {
	b := newBench(t)
	gadget := release.For(t, release.Spec{Host: pushbench.Host, Namespace: "acme", Type: "gadget", Version: "1.0.0", Signer: b.Signer,
		Contents: []release.Content{{OS: "linux", Arch: "amd64", Files: map[string][]byte{"terraform-provider-gadget_v1.0.0": []byte("gadget")}}}})
	b.Origin.Add(gadget)
	a := provider.MustParseAddress(pushbench.Host + "/acme/gadget")
	listing, err := b.Client.Versions(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.Client.Release(t.Context(), a, listing, pushbench.One, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pusher.New(b.Options).Push(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	v, err := artifact.Read(t.Context(), b.Repo, a, pushbench.One)
	if err != nil {
		t.Fatal(err)
	}
	v.Owner = pushbench.Widget
	b.tag(b.Repo, *v)
	from, _ := b.Source()
	if _, err := b.Copy(from); !errors.Is(err, trust.ErrNotListed) || b.Tagged() != nil {
		t.Errorf("%v", err)
	}
}

// TestStoredChanged shows that a copy fails if packages and evidence contradict each other.
func TestStoredChanged(t *testing.T) {
	b := newBench(t)
	b.MustPush()
	v := b.Tagged()
	// The index now names the Windows package for Linux.
	for i := range v.Packages {
		if v.Packages[i].Platform.OS == "linux" {
			w := v.Packages[len(v.Packages)-1]
			v.Packages[i].Digest, v.Packages[i].Size, v.Packages[i].Manifest = w.Digest, w.Size, w.Manifest
		}
	}
	b.tag(b.Repo, *v)
	from, _ := b.Source()
	if _, err := b.Copy(from); !errors.Is(err, trust.ErrChecksum) || b.Tagged() != nil {
		t.Errorf("%v", err)
	}
	if _, err := b.Copy(from, "darwin_arm64"); err != nil {
		t.Errorf("the unchanged platform: %v", err)
	}
}
