package repo

import (
	"context"
	"errors"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
)

// ErrListRefused is artifact's error.
var ErrListRefused = artifact.ErrListRefused

// ReferrerLister lists the referrers of a manifest.
type ReferrerLister = artifact.ReferrerLister

// ListReferrers is like [artifact.ListReferrers], but it leaves out the manifests that the subject itself names.
func ListReferrers(ctx context.Context, store Reader, s ocispec.Descriptor, add func([]ocispec.Descriptor) error) error {
	var named map[digest.Digest]bool
	return artifact.ListReferrers(ctx, store, s, func(page []ocispec.Descriptor) (err error) {
		if named == nil && len(page) > 0 {
			if named, err = namedBy(ctx, store, s); err != nil {
				return err
			}
		}
		return add(slices.DeleteFunc(page, func(desc ocispec.Descriptor) bool { return named[desc.Digest] }))
	})
}

// namedBy returns the digests of the manifests that an index names. If s is not an index or no longer
// exists, the map is empty, and not nil.
func namedBy(ctx context.Context, store Reader, s ocispec.Descriptor) (map[digest.Digest]bool, error) {
	out := map[digest.Digest]bool{}
	if s.MediaType != ocispec.MediaTypeImageIndex {
		return out, nil
	}
	list, err := artifact.Named(ctx, store, s)
	if err != nil && !IsUnusable(err) {
		return nil, err
	}
	for _, desc := range list {
		out[desc.Digest] = true
	}
	return out, nil
}

// ErrTooMuchAttached means that more content is attached to a version than a copy accepts.
var ErrTooMuchAttached = errors.New("too much is attached to the version")

// Subject is a manifest that both the source and the destination have.
type Subject struct {
	Desc  ocispec.Descriptor
	Depth int
}

const (
	// MaxReferrers is the maximum number of referrers of one version, at any depth.
	MaxReferrers = 1000
	// MaxReferrerDepth is the maximum depth of referrers of referrers.
	MaxReferrerDepth = 8
	// MaxReferrerType is the maximum length in bytes of the media type and of the artifact
	// type of a referrer. A media type of RFC 6838 has at most 127 + 1 + 127 characters.
	MaxReferrerType = 255
)
