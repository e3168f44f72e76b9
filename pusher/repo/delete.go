package repo

import (
	"bytes"
	"context"
	"errors"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// DeleteAny deletes a manifest, if it exists.
func DeleteAny(ctx context.Context, store Store, manifest ocispec.Descriptor) error {
	if err := store.Delete(ctx, manifest); !IsNotFound(err) {
		return err
	}
	return nil
}

// DeleteWithTag deletes a manifest that only one tag names. Some registries require that
// the tag is removed first.
func DeleteWithTag(ctx context.Context, store Store, manifest ocispec.Descriptor, tag ociaddr.Tag) error {
	err := DeleteAny(ctx, store, manifest)
	if err == nil {
		return nil
	}
	named, rerr := artifact.Resolve(ctx, store, string(tag))
	if rerr != nil || named.Digest != manifest.Digest { // the tag names a newer announcement, which Untag would remove
		return err
	}
	if store.Untag(ctx, string(tag)) != nil {
		return err
	}
	return DeleteAny(ctx, store, manifest)
}

// RemoveOldTag removes a tag, but keeps the manifest that the tag names. If the registry
// deletes only by digest, RemoveOldTag moves the tag to a placeholder, and deletes the
// placeholder.
func RemoveOldTag(ctx context.Context, store Store, tag ociaddr.Tag) error {
	err := store.Untag(ctx, string(tag))
	if err == nil || IsNotFound(err) {
		return nil
	}
	if !errors.Is(err, errdef.ErrUnsupported) {
		return err
	}
	instead, err := artifact.Placeholder(ociaddr.NewAnnouncementID())
	if err != nil {
		return err
	}
	if err := store.PushReference(ctx, instead.Descriptor, bytes.NewReader(instead.Data), string(tag)); err != nil {
		return err
	}
	return store.Delete(ctx, instead.Descriptor)
}
