package repo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// ErrListRefused means that the registry refuses the referrers API, and has no list of
// referrers under the fallback tag.
var ErrListRefused = errors.New("refuses to list referrers")

// ReferrerLister lists the referrers of a manifest. It calls fn with each page of the list.
// It uses the referrers API, or the subject's fallback tag.
type ReferrerLister interface {
	Referrers(ctx context.Context, subject ocispec.Descriptor, artifactType string, fn func(referrers []ocispec.Descriptor) error) error
}

// ListReferrers lists the referrers of a manifest. It calls add with each page of the list. If the registry
// refuses the referrers API, ListReferrers reads the list under the fallback tag itself, because oras-go reads
// that tag only if the API returns 404. If there is no such list, the error wraps ErrListRefused and the refusal.
//
// ListReferrers leaves out the manifests that the subject itself names. Some tools, such as "cosign copy" of
// cosign 3, give an index its own fallback tag. The index is then read as the list of its own referrers.
func ListReferrers(ctx context.Context, store Reader, s ocispec.Descriptor, add func([]ocispec.Descriptor) error) error {
	var named map[digest.Digest]bool
	return listAll(ctx, store, s, func(page []ocispec.Descriptor) (err error) {
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
	list, err := readIndex(ctx, store, s)
	if err != nil && !IsUnusable(err) {
		return nil, err
	}
	for _, desc := range list {
		out[desc.Digest] = true
	}
	return out, nil
}

// readIndex returns the manifests that an index names.
func readIndex(ctx context.Context, store Reader, s ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	data, err := artifact.FetchManifest(ctx, store, s)
	if err != nil {
		return nil, err
	}
	var index ocispec.Index
	err = artifact.Unmarshal(data, &index)
	return index.Manifests, err
}

// listAll implements [ListReferrers]. Its list can contain manifests that the subject names.
func listAll(ctx context.Context, store Reader, s ocispec.Descriptor, add func([]ocispec.Descriptor) error) error {
	refusal := store.Referrers(ctx, s, "", add)
	switch {
	case IsNotFound(refusal):
		return nil
	case !refusesReferrers(refusal):
		return refusal
	}
	desc, err := artifact.Resolve(ctx, store, string(ociaddr.ReferrersTag(s.Digest)))
	switch {
	case IsNotFound(err), RefusesContent(err), err == nil && desc.MediaType != ocispec.MediaTypeImageIndex:
		return fmt.Errorf("%w (%w)", ErrListRefused, refusal)
	case err != nil:
		return err
	}
	list, err := readIndex(ctx, store, desc)
	if err != nil {
		return err
	}
	return add(list)
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
