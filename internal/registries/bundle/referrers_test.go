package bundle_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/registries/bundle"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// attach pushes a manifest with the given subject, and returns the manifest's digest.
func attach(t *testing.T, r *bundle.Repository, subject digest.Digest, artifactType, note string) digest.Digest {
	t.Helper()
	m := ocispec.Manifest{
		MediaType: ocispec.MediaTypeImageManifest, ArtifactType: artifactType, Config: artifact.Config().Descriptor, Layers: []ocispec.Descriptor{},
		Subject: &ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: subject, Size: 1}, Annotations: map[string]string{"note": note},
	}
	m.SchemaVersion = 2
	data, err := json.Marshal(m)
	if err == nil {
		err = r.Push(t.Context(), artifact.Config().Descriptor, bytes.NewReader(artifact.Config().Data))
	}
	desc := content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, data)
	if err == nil {
		err = r.Push(t.Context(), desc, bytes.NewReader(data))
	}
	if err != nil {
		t.Fatal(err)
	}
	return desc.Digest
}

func wantReferrers(t *testing.T, r *bundle.Repository, subject digest.Digest, artifactType string, want ...digest.Digest) {
	t.Helper()
	var got []digest.Digest
	if err := r.Referrers(t.Context(), ocispec.Descriptor{Digest: subject}, artifactType, func(page []ocispec.Descriptor) error {
		for _, d := range page {
			got = append(got, d.Digest)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("referrers of %s (%s): %v, want %v", subject, artifactType, got, want)
	}
}

// TestReferrers shows that referrers are stored by provider and subject, and that new referrers are added to the
// existing ones.
func TestReferrers(t *testing.T) {
	for name, archive := range map[string]bool{"folder": false, "archive": true} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "bundle")
			made, err := bundle.Create(t.Context(), file, archive)
			if err != nil {
				t.Fatal(err)
			}
			push(t, made, "1.0.0", widget, gadget)
			repo := made.Repository(widget)
			desc, err := artifact.Resolve(t.Context(), repo, "1.0.0")
			if err != nil {
				t.Fatal(err)
			}
			subject := desc.Digest
			signature, sbom := attach(t, repo, subject, "application/x.signature", "1"), attach(t, repo, subject, "", "2")
			ofSBOM := attach(t, repo, sbom, "application/x.signature", "3")
			if attach(t, repo, subject, "application/x.signature", "1") != signature { // pushed twice, listed once
				t.Error("a second push has a different digest")
			}
			wantReferrers(t, repo, subject, "", signature, sbom)
			if err := made.Save(t.Context()); err != nil {
				t.Fatal(err)
			}
			made.Close()
			b, err := bundle.Open(t.Context(), file, archive)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			wantReferrers(t, b.Repository(widget), subject, "", signature, sbom)
			wantReferrers(t, b.Repository(widget), subject, "application/x.signature", signature)
			wantReferrers(t, b.Repository(widget), subject, ocispec.MediaTypeEmptyJSON, sbom)
			wantReferrers(t, b.Repository(widget), sbom, "", ofSBOM)
			wantReferrers(t, b.Repository(gadget), subject, "")
			if archive {
				return
			}
			more, err := bundle.Create(t.Context(), file, false)
			if err != nil {
				t.Fatal(err)
			}
			later := attach(t, more.Repository(widget), subject, "", "later")
			if err := more.Save(t.Context()); err != nil {
				t.Fatal(err)
			}
			more.Close()
			again, err := bundle.Open(t.Context(), file, false)
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			wantReferrers(t, again.Repository(widget), subject, "", signature, sbom, later)
		})
	}
}

// TestAttachedEntries shows which entries of index.json Open accepts. A version and a list of referrers must be
// indexes. Only the tags of versions and of attachments are allowed.
func TestAttachedEntries(t *testing.T) {
	d := digest.FromString("x")
	fallback, cosign := string(ociaddr.ReferrersTag(d)), string(ociaddr.CosignTags(d)[0])
	for _, tc := range []struct {
		tag, mediaType string
		ok             bool
	}{
		{fallback, ocispec.MediaTypeImageIndex, true},
		{fallback, ocispec.MediaTypeImageManifest, false},
		{cosign, ocispec.MediaTypeImageManifest, true},
		{cosign, ocispec.MediaTypeImageIndex, true},
		{cosign, "application/zip", false},
		{"1.2.3", ocispec.MediaTypeImageManifest, false},
		{"latest", ocispec.MediaTypeImageIndex, false},
		{"sha256-00", ocispec.MediaTypeImageIndex, false},
		{fallback + ".other", ocispec.MediaTypeImageIndex, false},
	} {
		t.Run(fmt.Sprint(tc.tag, tc.mediaType), func(t *testing.T) {
			dir := create(t, false)
			index := readIndex(t, dir)
			entry := index.Manifests[0] // a version of the gadget
			entry.MediaType, entry.ArtifactType = tc.mediaType, ""
			entry.Annotations = map[string]string{ocispec.AnnotationRefName: host + "/acme/gadget/" + tc.tag}
			index.Manifests = slices.Insert(index.Manifests, 0, entry)
			writeIndex(t, dir, index)
			relist(t, dir, func(versions, _ map[string]any) { versions[host+"/acme/gadget/"+tc.tag] = entry.Digest })
			b, err := bundle.Open(t.Context(), dir, false)
			if (err == nil) != tc.ok {
				t.Errorf("%v", err)
			}
			if err == nil {
				b.Close()
			}
		})
	}
}

// TestListOfReferrersThatIsTooLong shows that a push refuses a referrer that would make the list of referrers
// too long, and that the bundle is saved without this referrer. The list can grow in one run or in several runs.
func TestListOfReferrersThatIsTooLong(t *testing.T) {
	testkit.LeaveToAll(t)
	dir := create(t, false)
	subject := digest.FromString("subject")
	long := strings.Repeat("x", 3<<20)
	var kept digest.Digest
	for i := range 2 {
		b, err := bundle.Create(t.Context(), dir, false)
		if err != nil {
			t.Fatal(err)
		}
		repo := b.Repository(widget)
		if i == 0 {
			kept = attach(t, repo, subject, "", long)
		}
		data := []byte(fmt.Sprintf(`{"subject":{"digest":%q},"annotations":{"note%d":%q}}`, subject, i, long))
		err = repo.Push(t.Context(), content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, data), bytes.NewReader(data))
		if !errors.Is(err, artifact.ErrTooLarge) {
			t.Errorf("%d: %v", i, err)
		}
		if err := b.Save(t.Context()); err != nil {
			t.Errorf("%d: %v", i, err)
		}
		b.Close()
	}
	b, err := bundle.Open(t.Context(), dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	wantReferrers(t, b.Repository(widget), subject, "", kept)
}
