package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
)

// Repository is the part of a bundle that belongs to one provider or module. A push can use this Repository in place of
// a registry's repository.
type Repository struct {
	bundle *Bundle
	path   string // the address of the provider or module
}

// Repository returns the repository of a provider or a module. The repository can be empty.
func (b *Bundle) Repository(a subject.Address) *Repository { return &Repository{b, a.Path()} }

// tagName returns the name of a tag in index.json.
func (r *Repository) tagName(tag string) string { return r.path + "/" + tag }

// checkDigest returns an error unless d is a valid SHA-256 digest. The bundle stores blobs only under such digests.
func checkDigest(d digest.Digest) error {
	if err := d.Validate(); err != nil || d.Algorithm() != digest.SHA256 {
		return fmt.Errorf("%.100q is no SHA-256 digest", d)
	}
	return nil
}

// Fetch opens a blob. If the blob does not exist, the error is ErrOmitted or errdef.ErrNotFound.
func (b *Bundle) Fetch(_ context.Context, target ocispec.Descriptor) (io.ReadCloser, error) {
	if err := checkDigest(target.Digest); err != nil {
		return nil, err
	}
	body, _, err := b.storage.open(blobName(target.Digest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, b.notFound(target.Digest)
	}
	return body, err
}

func (b *Bundle) exists(target ocispec.Descriptor) (bool, error) {
	if err := checkDigest(target.Digest); err != nil {
		return false, err
	}
	n, err := b.size(target.Digest)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return n == target.Size, err
}

// push checks the content of a blob and stores it. It does nothing if the blob already exists.
func (b *Bundle) push(desc ocispec.Descriptor, body io.Reader) error {
	if there, err := b.exists(desc); err != nil || there {
		return err
	}
	verified := content.NewVerifyReader(body, desc)
	return b.storage.write(blobName(desc.Digest), desc.Size, verified, verified.Verify)
}

// Fetch opens a blob of the bundle.
func (r *Repository) Fetch(ctx context.Context, target ocispec.Descriptor) (io.ReadCloser, error) {
	return r.bundle.Fetch(ctx, target)
}

// FetchReference opens the manifest that a tag names.
func (r *Repository) FetchReference(ctx context.Context, reference string) (ocispec.Descriptor, io.ReadCloser, error) {
	desc, err := r.Resolve(ctx, reference)
	if err != nil {
		return desc, nil, err
	}
	body, err := r.Fetch(ctx, desc)
	return desc, body, err
}

// Resolve returns the descriptor of the manifest that a tag names.
func (r *Repository) Resolve(_ context.Context, reference string) (ocispec.Descriptor, error) {
	r.bundle.mu.Lock()
	desc, ok := r.bundle.tags[r.tagName(reference)]
	r.bundle.mu.Unlock()
	if !ok {
		return desc, fmt.Errorf("%s:%s in %s: %w", r.path, reference, r.bundle.name, errdef.ErrNotFound)
	}
	return desc, nil
}

// Exists reports whether the bundle contains a blob of the given digest and size.
func (r *Repository) Exists(_ context.Context, target ocispec.Descriptor) (bool, error) {
	return r.bundle.exists(target)
}

// Push checks the content of a blob or manifest and stores it. It adds a manifest to the referrers of its subject.
func (r *Repository) Push(ctx context.Context, expected ocispec.Descriptor, body io.Reader) error {
	if !artifact.IsManifest(expected.MediaType) {
		return r.bundle.push(expected, body)
	}
	if expected.Size > artifact.MaxManifestBytes {
		return fmt.Errorf("%w: %s has %d bytes, more than %d", artifact.ErrTooLarge, expected.Digest, expected.Size, artifact.MaxManifestBytes)
	}
	data, err := content.ReadAll(body, expected)
	if err == nil {
		err = r.bundle.push(expected, bytes.NewReader(data))
	}
	if err != nil {
		return err
	}
	return r.refer(ctx, expected, data)
}

// PushReference stores a manifest under a tag.
func (r *Repository) PushReference(ctx context.Context, expected ocispec.Descriptor, content io.Reader, reference string) error {
	if err := r.Push(ctx, expected, content); err != nil {
		return err
	}
	r.bundle.mu.Lock()
	defer r.bundle.mu.Unlock()
	r.bundle.tags[r.tagName(reference)] = expected
	return nil
}

// Tags calls fn once with all tags that sort after last.
func (r *Repository) Tags(_ context.Context, last string, fn func(tags []string) error) error {
	var tags []string
	r.bundle.mu.Lock()
	for name := range r.bundle.tags {
		// HOSTNAME/NAMESPACE/TYPE can also be the beginning of a module's address.
		if tag, ok := strings.CutPrefix(name, r.tagName("")); ok && tag > last && !strings.Contains(tag, "/") {
			tags = append(tags, tag)
		}
	}
	r.bundle.mu.Unlock()
	slices.Sort(tags)
	return fn(tags)
}

// Remote returns nil, because a bundle is not a repository of a registry.
func (r *Repository) Remote() *remote.Repository { return nil }

// Blobs returns the blobs of the bundle. Their references are digests.
func (r *Repository) Blobs() registry.BlobStore { return blobs{r} }

type blobs struct{ *Repository }

// Resolve returns the size of a blob, even if the blob is omitted. The error wraps errdef.ErrNotFound if the bundle has
// no such blob.
func (b blobs) Resolve(_ context.Context, reference string) (ocispec.Descriptor, error) {
	desc := ocispec.Descriptor{Digest: digest.Digest(reference)}
	if err := checkDigest(desc.Digest); err != nil {
		return desc, err
	}
	var err error
	desc.Size, err = b.bundle.size(desc.Digest)
	if errors.Is(err, fs.ErrNotExist) {
		var omitted bool
		if desc.Size, omitted = b.bundle.omitted.size(desc.Digest); omitted {
			return desc, nil
		}
		err = b.bundle.notFound(desc.Digest)
	}
	return desc, err
}

// FetchReference opens a blob.
func (b blobs) FetchReference(ctx context.Context, reference string) (ocispec.Descriptor, io.ReadCloser, error) {
	desc, err := b.Resolve(ctx, reference)
	if err != nil {
		return desc, nil, err
	}
	body, err := b.Fetch(ctx, desc)
	return desc, body, err
}

// Untag returns errdef.ErrUnsupported, because nothing is removed from a bundle.
func (r *Repository) Untag(context.Context, string) error { return errdef.ErrUnsupported }

// Delete returns errdef.ErrUnsupported, because nothing is removed from a bundle.
func (r *Repository) Delete(context.Context, ocispec.Descriptor) error { return errdef.ErrUnsupported }

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

// Omit allows the bundle to be saved without a blob that its versions need. It has no effect on manifests, nor on a
// blob that the bundle has.
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

// isOmitted reports whether the bundle may omit a blob, and does not have it.
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
