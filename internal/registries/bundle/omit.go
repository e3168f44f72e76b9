package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// omitted are the blobs that a bundle may omit.
type omitted struct {
	mu    sync.Mutex
	sizes map[digest.Digest]int64 // in bytes; nil: no blob
}

// size returns the size of an omitted blob in bytes.
func (o *omitted) size(d digest.Digest) (n int64, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, ok = o.sizes[d]
	return n, ok
}

// Omit allows the bundle to be saved without a blob that its versions need. It has no effect on a blob that the
// bundle has, and on manifests.
func (b *Bundle) Omit(desc ocispec.Descriptor) {
	b.omitted.mu.Lock()
	defer b.omitted.mu.Unlock()
	if b.omitted.sizes == nil {
		b.omitted.sizes = map[digest.Digest]int64{}
	}
	b.omitted.sizes[desc.Digest] = desc.Size
}

// Omitted returns the number of blobs that an opened bundle omits, and their total size in bytes.
func (b *Bundle) Omitted() (n int, bytes int64) {
	b.omitted.mu.Lock()
	defer b.omitted.mu.Unlock()
	for _, size := range b.omitted.sizes {
		bytes += size
	}
	return len(b.omitted.sizes), bytes
}

// isOmitted reports whether the bundle omits a blob, and does not have it either.
func (b *Bundle) isOmitted(desc ocispec.Descriptor) bool {
	size, ok := b.omitted.size(desc.Digest)
	if !ok || size != desc.Size || artifact.IsManifest(desc.MediaType) || checkDigest(desc.Digest) != nil {
		return false
	}
	_, err := b.size(desc.Digest)
	return errors.Is(err, fs.ErrNotExist)
}

// notFound returns the error for a blob that the bundle does not have. It is ErrOmitted or errdef.ErrNotFound.
func (b *Bundle) notFound(d digest.Digest) error {
	if _, ok := b.omitted.size(d); ok {
		return hint.Wrap(fmt.Errorf("%s: %s is %w", b.name, d, ErrOmitted), "it is where the bundle is copied to: read it there, or make a bundle without --since")
	}
	return fmt.Errorf("%s in %s: %w", d, b.name, errdef.ErrNotFound)
}
