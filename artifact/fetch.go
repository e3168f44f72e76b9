package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
)

// readBounded reads a manifest of the announced size, or of any size within the
// limit if size is not positive.
func readBounded(r io.Reader, size int64) ([]byte, error) {
	if size > MaxManifestBytes {
		return nil, fmt.Errorf("%w: %d bytes, more than %d", ErrTooLarge, size, MaxManifestBytes)
	}
	data, err := io.ReadAll(io.LimitReader(r, MaxManifestBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > MaxManifestBytes:
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, MaxManifestBytes)
	case size > 0 && int64(len(data)) != size:
		return nil, fmt.Errorf("%w: %d bytes, announced were %d", ErrDamaged, len(data), size)
	}
	return data, nil
}

// fetchVerified gets content of at most limit bytes by its descriptor.
func fetchVerified(ctx context.Context, store Fetcher, desc ocispec.Descriptor, limit int64) ([]byte, error) {
	if err := checkDescriptor(desc, limit); err != nil {
		return nil, err
	}
	body, err := store.Fetch(ctx, desc)
	if errors.Is(err, errdef.ErrNotFound) {
		// %v: whoever sees that identity takes it for the tag's absence.
		return nil, fmt.Errorf("%w: %w: %v", ErrNotProvider, ErrMissing, err)
	}
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, desc.Size+1))
	if err != nil {
		return nil, err
	}
	if got := desc.Digest.Algorithm().FromBytes(data); got != desc.Digest || int64(len(data)) != desc.Size {
		return nil, fmt.Errorf("%w: %s with %d bytes, got %s with %d", ErrDamaged, desc.Digest, desc.Size, got, len(data))
	}
	return data, nil
}

// checkDescriptor refuses what cannot describe content of at most limit bytes.
func checkDescriptor(desc ocispec.Descriptor, limit int64) error {
	if len(desc.MediaType) > maxMediaType {
		return fmt.Errorf("%w: the media type %.80q has more than %d bytes", ErrNotProvider, desc.MediaType, maxMediaType)
	}
	if err := desc.Digest.Validate(); err != nil {
		return fmt.Errorf("%w: digest %.80q: %v", ErrNotProvider, desc.Digest, err)
	}
	switch {
	case desc.Size <= 0:
		return fmt.Errorf("%w: %s has a size of %d bytes", ErrNotProvider, desc.Digest, desc.Size)
	case desc.Size > limit:
		return fmt.Errorf("%w: %s has %d bytes, more than %d", ErrTooLarge, desc.Digest, desc.Size, limit)
	}
	return nil
}

// FetchManifest returns a manifest's bytes, checked against its descriptor.
func FetchManifest(ctx context.Context, store Fetcher, desc ocispec.Descriptor) ([]byte, error) {
	return fetchVerified(ctx, store, desc, MaxManifestBytes)
}
