package artifact

import (
	"context"
	"fmt"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Earlier releases recorded the time at which they first saw each version. They stored the
// time in a manifest under its own tag ([ociaddr.Tag.Seen]). The annotation annotationSeen
// contains the time, in RFC 3339 and UTC, or the text firstSync.
const (
	annotationSeen = annotationPrefix + "seen"
	firstSync      = "first sync"
)

// ReadSeen returns the time that an earlier release recorded under a tag, and the
// descriptor of the manifest. The time is zero if the version already existed at the
// provider's first sync. ReadSeen returns the same errors as [Read].
func ReadSeen(ctx context.Context, store ReferenceFetcher, tag string) (time.Time, ocispec.Descriptor, error) {
	desc, data, err := fetchTag(ctx, store, tag)
	if err != nil {
		return time.Time{}, ocispec.Descriptor{}, err
	}
	desc.MediaType = ocispec.MediaTypeImageManifest
	at, err := decodeSeen(data)
	return at, desc, err
}

func decodeSeen(data []byte) (time.Time, error) {
	var m ocispec.Manifest
	if err := Unmarshal(data, &m); err != nil {
		return time.Time{}, err
	}
	return parseSeen(m.Annotations[annotationSeen])
}

// seenText formats the time at which a version was first seen. The zero time gives
// firstSync.
func seenText(at time.Time) string {
	if at.IsZero() {
		return firstSync
	}
	return at.UTC().Truncate(time.Second).Format(time.RFC3339)
}

// parseSeen parses a text that [seenText] returned.
func parseSeen(text string) (time.Time, error) {
	if text == firstSync {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.IsZero() || seenText(at) != text {
		return time.Time{}, fmt.Errorf("%w: %.40q is not the time at which a version was seen", ErrNotProvider, text)
	}
	return at, nil
}
