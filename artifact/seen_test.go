package artifact_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
)

// oneTag is a store that returns the same manifest for every tag.
type oneTag []byte

func (o oneTag) FetchReference(context.Context, string) (ocispec.Descriptor, io.ReadCloser, error) {
	return ocispec.Descriptor{Digest: digest.FromBytes(o), Size: int64(len(o))}, io.NopCloser(bytes.NewReader(o)), nil
}

func (o oneTag) Fetch(context.Context, ocispec.Descriptor) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(o)), nil
}

func TestSeen(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 5, time.FixedZone("", 3600))
	for _, want := range []time.Time{{}, at} {
		blob, err := artifact.EncodeSeen(want)
		if err != nil {
			t.Fatal(err)
		}
		got, desc, err := artifact.ReadSeen(t.Context(), oneTag(blob.Data), "tag")
		if err != nil || !got.Equal(want.Truncate(time.Second)) || got.IsZero() != want.IsZero() || desc.Digest != blob.Descriptor.Digest || desc.MediaType != ocispec.MediaTypeImageManifest {
			t.Errorf("%v reads back as %v of %+v, %v", want, got, desc, err)
		}
		if again, err := artifact.EncodeSeen(got); err != nil || !bytes.Equal(again.Data, blob.Data) {
			t.Errorf("encoded anew: %s, %v", again.Data, err)
		}
	}
	for _, bad := range []string{"", "[]", "{}", `{"annotations":{"io.github.ocibridge.seen":"yesterday"}}`} {
		if got, _, err := artifact.ReadSeen(t.Context(), oneTag(bad), "tag"); !errors.Is(err, artifact.ErrNotProvider) {
			t.Errorf("%q reads as %v, %v", bad, got, err)
		}
	}
	if _, _, err := artifact.ReadSeen(t.Context(), oneTag(strings.Repeat(" ", artifact.MaxManifestBytes+1)), "tag"); !errors.Is(err, artifact.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
}
