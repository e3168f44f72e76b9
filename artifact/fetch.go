package artifact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/internal/base/document"
)

// readBounded reads a manifest, and checks that it has the given size in bytes. If size is
// not positive, the manifest can have any size up to [MaxManifestBytes].
func readBounded(r io.Reader, size int64) ([]byte, error) {
	if size > MaxManifestBytes {
		return nil, fmt.Errorf("%w: %d bytes, more than %d", ErrTooLarge, size, MaxManifestBytes)
	}
	data, err := document.ReadAll(r, MaxManifestBytes)
	switch {
	case errors.Is(err, document.ErrTooLarge):
		return nil, fmt.Errorf("%w: %v", ErrTooLarge, err)
	case err != nil:
		return nil, err
	case size > 0 && int64(len(data)) != size:
		return nil, fmt.Errorf("%w: %d bytes, announced were %d", ErrDamaged, len(data), size)
	}
	return data, nil
}

// fetchVerified fetches and verifies the content of a descriptor. The content can have at
// most limit bytes.
func fetchVerified(ctx context.Context, store Fetcher, desc ocispec.Descriptor, limit int64) ([]byte, error) {
	if err := checkDescriptor(desc, limit); err != nil {
		return nil, err
	}
	var data bytes.Buffer
	if err := download(ctx, store, desc, &data); err != nil {
		return nil, err
	}
	return data.Bytes(), nil
}

// download writes the content of a descriptor to w, and then checks its size and digest.
func download(ctx context.Context, store Fetcher, desc ocispec.Descriptor, w io.Writer) error {
	body, err := store.Fetch(ctx, desc)
	if errors.Is(err, errdef.ErrNotFound) {
		// The error does not wrap errdef.ErrNotFound. To the callers of this package,
		// errdef.ErrNotFound means that a tag does not exist.
		return fmt.Errorf("%w: %w: %v", ErrNotProvider, ErrMissing, err)
	}
	if err != nil {
		return err
	}
	defer body.Close()
	hash := desc.Digest.Algorithm().Digester()
	n, err := io.Copy(io.MultiWriter(w, hash.Hash()), io.LimitReader(body, desc.Size+1))
	if err != nil {
		return err
	}
	if n != desc.Size || hash.Digest() != desc.Digest {
		return fmt.Errorf("%w: %s with %d bytes, got %s with %d", ErrDamaged, desc.Digest, desc.Size, hash.Digest(), n)
	}
	return nil
}

// checkDescriptor returns an error unless desc is a valid descriptor of at most limit
// bytes of content.
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

// FetchManifest fetches a manifest and verifies it against its descriptor.
func FetchManifest(ctx context.Context, store Fetcher, desc ocispec.Descriptor) ([]byte, error) {
	return fetchVerified(ctx, store, desc, MaxManifestBytes)
}
