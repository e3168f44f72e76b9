package repo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// A registry without a referrers API has the list of a manifest's referrers under the manifest's fallback tag. OCI tags
// have no compare-and-swap, so of two writers that extend the list at the same time, one can overwrite the other's
// entry. A writer therefore waits after it has written the list, longer than another writer takes between reading and
// writing, and reads the list again until its own change is there.

// attachRounds is the maximum number of times that [Writer.Attach] and [Writer.Detach] write a list of referrers.
const attachRounds = 20

// Attach stores a manifest that has a subject, and makes sure that the registry lists it as a referrer of the subject. If
// the registry lists no referrers by itself, Attach adds the manifest to the list under the subject's fallback tag, again
// and again until it stays there.
//
// entry describes the manifest in that list, with its artifact type and annotations. The blobs of the manifest must be
// stored. The error is a *[RegistryError] that wraps [ErrImmutable] if the registry does not move the fallback tag.
func (w Writer) Attach(ctx context.Context, subject ocispec.Descriptor, manifest artifact.Blob, entry ocispec.Descriptor) error {
	if err := w.SendBlob(ctx, "push a signature to", manifest); err != nil {
		return err
	}
	has := func(list []ocispec.Descriptor) bool { return hasDigest(list, entry.Digest) }
	listed, err := w.isListed(ctx, subject, entry.Digest)
	if err != nil || listed && !w.Dest.FallbackTags {
		return err
	}
	return w.changeList(ctx, subject, has, func(list []ocispec.Descriptor) []ocispec.Descriptor { return append(list, entry) })
}

// Detach removes a referrer of a manifest: from the list under the subject's fallback tag, and then from the repository.
// It succeeds if the referrer does not exist. Some registries delete no manifests. If the registry then does not list the
// referrer any more, Detach only warns.
func (w Writer) Detach(ctx context.Context, subject, manifest ocispec.Descriptor, warn func(format string, args ...any)) error {
	hasNot := func(list []ocispec.Descriptor) bool { return !hasDigest(list, manifest.Digest) }
	err := w.changeList(ctx, subject, hasNot, func(list []ocispec.Descriptor) []ocispec.Descriptor {
		return slices.DeleteFunc(list, func(d ocispec.Descriptor) bool { return d.Digest == manifest.Digest })
	})
	if err != nil {
		return err
	}
	err = DeleteAny(ctx, w.Dest.Store, manifest)
	if err == nil || !CannotDelete(err) {
		return w.wrap("remove a signature from", err)
	}
	if listed, rerr := w.isListed(ctx, subject, manifest.Digest); rerr != nil || listed {
		return w.wrap("remove a signature from", err)
	}
	warn("%s@%s is left, and nothing names it any more: %v", w.Dest.Repository, manifest.Digest, err)
	return nil
}

// wrap returns the [RegistryError] of an operation, or nil if err is nil.
func (w Writer) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return w.Failed(op, err)
}

func hasDigest(list []ocispec.Descriptor, d digest.Digest) bool {
	return slices.ContainsFunc(list, func(desc ocispec.Descriptor) bool { return desc.Digest == d })
}

// isListed reports whether the registry lists a manifest as a referrer of the subject. A registry that refuses to list
// referrers lists none.
func (w Writer) isListed(ctx context.Context, subject ocispec.Descriptor, d digest.Digest) (bool, error) {
	found, n := false, 0
	err := ListReferrers(ctx, w.Dest.Store, subject, func(page []ocispec.Descriptor) error {
		if n += len(page); n > MaxReferrers {
			return fmt.Errorf("%w: more than %d referrers of %s", ErrTooMuchAttached, MaxReferrers, subject.Digest)
		}
		found = found || hasDigest(page, d)
		return nil
	})
	if errors.Is(err, ErrListRefused) {
		err = nil
	}
	return found, w.wrap("list referrers in", err)
}

// changeList changes the list of referrers under the subject's fallback tag until done reports that the list needs no
// change. A list without referrers is deleted.
func (w Writer) changeList(ctx context.Context, subject ocispec.Descriptor, done func([]ocispec.Descriptor) bool, change func([]ocispec.Descriptor) []ocispec.Descriptor) error {
	tag := ociaddr.ReferrersTag(subject.Digest)
	for range attachRounds {
		list, desc, err := w.fallbackList(ctx, tag, subject)
		if err != nil || done(list) {
			return err
		}
		if err := w.writeList(ctx, tag, desc, change(list)); err != nil || w.Dest.FallbackTags {
			return err // a registry that lists referrers by itself does not depend on the tag
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(w.retryPause + rand.N(w.retryPause)):
		}
	}
	return hint.New(fmt.Sprintf("%s:%s changes faster than it can be written", w.Dest.Repository, tag), "let fewer programs sign versions of this repository at a time")
}

// fallbackList returns the list under a fallback tag, and its descriptor, which is nil if there is no list. A tag that
// names the subject itself is no list: "cosign copy" of cosign 3 writes such tags.
func (w Writer) fallbackList(ctx context.Context, tag ociaddr.Tag, subject ocispec.Descriptor) ([]ocispec.Descriptor, *ocispec.Descriptor, error) {
	desc, err := artifact.Resolve(ctx, w.Dest.Store, string(tag))
	switch {
	case IsNotFound(err), err == nil && (desc.MediaType != ocispec.MediaTypeImageIndex || desc.Digest == subject.Digest):
		return nil, nil, nil
	case err != nil:
		return nil, nil, w.Failed("read "+string(tag)+" in", err)
	}
	list, err := artifact.Named(ctx, w.Dest.Store, desc)
	switch {
	case IsGone(err):
		return nil, nil, nil // another writer has replaced the list since
	case err != nil:
		return nil, nil, w.Failed("read "+string(tag)+" in", err)
	case len(list) > MaxReferrers:
		return nil, nil, fmt.Errorf("%s:%s: %w: more than %d referrers", w.Dest.Repository, tag, ErrTooMuchAttached, MaxReferrers)
	}
	return list, &desc, nil
}

// writeList writes the list under a fallback tag. It deletes the list before, desc, if the new list is empty.
func (w Writer) writeList(ctx context.Context, tag ociaddr.Tag, desc *ocispec.Descriptor, list []ocispec.Descriptor) error {
	if len(list) == 0 && desc != nil {
		if err := DeleteWithTag(ctx, w.Dest.Store, *desc, tag); err == nil || !CannotDelete(err) {
			return w.wrap("remove the tag "+string(tag)+" from", err)
		}
		list = []ocispec.Descriptor{} // the registry deletes nothing, so it gets an empty list
	}
	data, err := json.Marshal(ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: list})
	if err == nil && len(data) > artifact.MaxManifestBytes {
		err = fmt.Errorf("%s:%s: %w: the list of referrers has more than %d bytes", w.Dest.Repository, tag, ErrTooMuchAttached, artifact.MaxManifestBytes)
	}
	if err != nil {
		return err
	}
	index := artifact.Blob{Descriptor: content.NewDescriptorFromBytes(ocispec.MediaTypeImageIndex, data), Data: data}
	return w.SendTag(ctx, "tag "+string(tag)+" in", index, string(tag), helpImmutableList)
}

const helpImmutableList = "the registry lists referrers only under a tag, and does not let this tag be moved. Exempt tags that begin with sha256- from the rule (Harbor: exclude sha256-* from the project's tag immutability rules)"
