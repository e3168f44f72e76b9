package pull_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/origins/pull"
)

// TestMissingManifestIsAtTheOrigin shows that, if another tool has rewritten the index of a version and the
// registry lacks a platform's manifest, that platform is served from the origin.
func TestMissingManifestIsAtTheOrigin(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.publish("1.0.0")
	s := b.serve(siteOptions{})
	s.get(archivePath("1.0.0", "linux_amd64"))
	s.await(pull.Stored, 1)

	repo, stored := b.repositoryOf(widget), b.tagged("1.0.0")
	var index ocispec.Index
	data, err := artifact.FetchManifest(t.Context(), repo, stored.Index)
	if err == nil {
		err = json.Unmarshal(data, &index)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range index.Manifests {
		index.Manifests[i].Annotations = nil
	}
	if data, err = json.Marshal(index); err != nil {
		t.Fatal(err)
	}
	desc := ocispec.Descriptor{MediaType: index.MediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	if err := repo.PushReference(t.Context(), desc, bytes.NewReader(data), "1.0.0"); err != nil {
		t.Fatal(err)
	}
	if len(stored.Packages) < 2 {
		t.Fatalf("stored are %s", platformsOf(stored))
	}
	for _, p := range stored.Packages {
		if p.Platform.String() == "windows_amd64" {
			if err := repo.Delete(t.Context(), p.Manifest); err != nil {
				t.Fatal(err)
			}
		}
	}

	s = b.serve(siteOptions{})
	if got := s.hashes("1.0.0"); strings.Count(got, "zh:") != len(r.Packages) {
		t.Errorf("1.0.0.json: %s", got)
	}
	if got := s.get(archivePath("1.0.0", "windows_amd64")); got.body != string(r.Package("windows", "amd64").Data) {
		t.Errorf("%+v", got)
	}
}
