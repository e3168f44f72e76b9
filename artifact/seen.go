package artifact

import (
	"context"
	"fmt"
	"time"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// TypeSeen is the artifact type of what keeps since when a version is known.
const TypeSeen = "application/vnd.ocibridge.seen.v1"

// annotationSeen has the time, in RFC 3339 and UTC, or firstSync.
const (
	annotationSeen = "io.github.ocibridge.seen"
	firstSync      = "first sync"
)

// Seen is since when a version of a provider is known: origins publish no dates.
type Seen struct {
	// At is when a sync first saw the version; zero for one that was there at the
	// provider's first sync, whose age nobody knows.
	At time.Time
}

// EncodeSeen returns the manifest that keeps it. Its one blob is that of [Config].
func EncodeSeen(s Seen) (Blob, error) {
	text := firstSync
	if !s.At.IsZero() {
		text = s.At.UTC().Truncate(time.Second).Format(time.RFC3339)
	}
	empty := Config().Descriptor
	return encodeManifest(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned:    specs.Versioned{SchemaVersion: 2},
		MediaType:    ocispec.MediaTypeImageManifest,
		ArtifactType: TypeSeen,
		Config:       empty,
		Layers:       []ocispec.Descriptor{empty}, // some registries take none without
		Annotations:  map[string]string{annotationSeen: text},
	})
}

// ReadSeen returns what a tag keeps. Errors are those of [Read].
func ReadSeen(ctx context.Context, store ReferenceFetcher, tag string) (Seen, error) {
	_, data, err := fetchTag(ctx, store, tag)
	if err != nil {
		return Seen{}, err
	}
	return decodeSeen(data)
}

func decodeSeen(data []byte) (Seen, error) {
	var m ocispec.Manifest
	if err := Unmarshal(data, &m); err != nil {
		return Seen{}, err
	}
	text := m.Annotations[annotationSeen]
	if text == firstSync {
		return Seen{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.IsZero() || at.UTC().Format(time.RFC3339) != text {
		return Seen{}, fmt.Errorf("%w: it does not say since when the version is known", ErrNotProvider)
	}
	return Seen{at}, nil
}
