package repo

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// onlyManifest is a store whose tags all name the same manifest.
type onlyManifest artifact.Blob

func (m onlyManifest) Fetch(context.Context, ocispec.Descriptor) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(m.Data)), nil
}

func (m onlyManifest) FetchReference(context.Context, string) (ocispec.Descriptor, io.ReadCloser, error) {
	return m.Descriptor, io.NopCloser(bytes.NewReader(m.Data)), nil
}

// TestManifestBeforeDone shows that the reader of a done announcement can compute which manifest the tag named
// before. If the push was killed, no other data says which manifest that was.
func TestManifestBeforeDone(t *testing.T) {
	manifest := func(s string) ocispec.Descriptor {
		return ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromString(s), Size: 7}
	}
	h1, err := provider.ParseHash("h1:iHi/jx1wb6AtsVzfBk9MNFGSNv9qSdeH4qlPgaeHlYk=")
	if err != nil {
		t.Fatal(err)
	}
	evidence := artifact.DescribeEvidence(manifest("evidence"), trust.Signed)
	a := artifact.Announcement{ID: ociaddr.NewAnnouncementID(), At: time.Now(), Version: artifact.Version{
		Owner: provider.MustParseAddress("registry.acme.example/acme/widget"), Version: provider.MustParseVersion("1.0.0"), Protocols: []string{"5.0"}, Evidence: &evidence,
		Packages: []artifact.Package{{Platform: provider.MustParsePlatform("linux_amd64"), Filename: "widget.zip", Digest: digest.FromString("zip"), Size: 3, H1: h1, Manifest: manifest("linux")}},
	}}
	open, err := artifact.EncodeAnnouncement(a)
	if err != nil {
		t.Fatal(err)
	}
	a.Done = true
	done, err := artifact.EncodeAnnouncement(a)
	if err != nil {
		t.Fatal(err)
	}
	tag, err := ociaddr.AnnouncementTag(a.Version.Version, a.ID)
	if err != nil {
		t.Fatal(err)
	}
	got, err := readAnnouncement(t.Context(), onlyManifest(done), a.Owner.(provider.Address), a.Version.Version, tag)
	if err != nil || !got.done || got.before == nil || got.before.Digest != open.Descriptor.Digest {
		t.Errorf("%+v, %v, want %s", got, err, open.Descriptor.Digest)
	}
	got, err = readAnnouncement(t.Context(), onlyManifest(open), a.Owner.(provider.Address), a.Version.Version, tag)
	if err != nil || got.done || got.before != nil {
		t.Errorf("not done: %+v, %v", got, err)
	}
}
