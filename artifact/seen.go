package artifact

import (
	"context"
	"fmt"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Earlier releases kept the age of each version in a manifest with its own tag
// ([ociaddr.Tag.Seen]). The annotation has the time, in RFC 3339 and UTC, or firstSync.
const (
	annotationSeen = annotationPrefix + "seen"
	firstSync      = "first sync"
)

// ReadSeen returns the time that a tag of an earlier release keeps, and the descriptor of
// its manifest. The time is zero for a version that was there at the provider's first
// sync. Errors are those of [Read].
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

// seenText returns how the time at which a version was first seen is written.
func seenText(at time.Time) string {
	if at.IsZero() {
		return firstSync
	}
	return at.UTC().Truncate(time.Second).Format(time.RFC3339)
}

// parseSeen reads what [seenText] writes.
func parseSeen(text string) (time.Time, error) {
	if text == firstSync {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.IsZero() || seenText(at) != text {
		return time.Time{}, fmt.Errorf("%w: %.40q is no time at which a version was seen", ErrNotProvider, text)
	}
	return at, nil
}
