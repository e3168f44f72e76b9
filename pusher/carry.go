package pusher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	orascontent "oras.land/oras-go/v2/content"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/fill"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

const (
	// maxCarried is the maximum number of manifests and blobs that are copied with one
	// version, apart from its packages.
	maxCarried = 2000
	// maxCarriedBytes is the maximum total size in bytes of these manifests and blobs.
	maxCarriedBytes = 1 << 30
	// maxCarriedNesting is the maximum depth of nested manifests.
	maxCarriedNesting = 3
)

// carrier copies the manifests and blobs of one version. It verifies them only by digest.
type carrier struct {
	target  // the destination
	from    Stored
	version provider.Version
	help    string        // the hint if the carrier exceeds a limit
	zip     digest.Digest // the zip of a module, which maxCarriedBytes does not count; "" for a provider

	mu     sync.Mutex
	count  int
	bytes  int64
	stored map[digest.Digest]bool // content that the destination has
}

const helpAttached = "--without-referrers copies versions alone"

func newCarrier(from Stored, to target, v provider.Version) *carrier {
	return &carrier{target: to, from: from, version: v, help: helpAttached, stored: map[digest.Digest]bool{}}
}

// markStored remembers that the destination has the content with the given digest.
func (c *carrier) markStored(d digest.Digest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stored[d] = true
}

// admit counts a manifest or a blob before it is read, and reports whether it still has to be copied.
func (c *carrier) admit(desc ocispec.Descriptor) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stored[desc.Digest] {
		return false, nil
	}
	if desc.Digest.Validate() != nil || desc.Size < 0 {
		return false, fmt.Errorf("%w: %.80q of %d bytes", artifact.ErrNotProvider, desc.Digest, desc.Size)
	}
	limit, before, bytes := int64(maxCarriedBytes), c.bytes, desc.Size
	if desc.Digest == c.zip {
		limit, before, bytes = provider.MaxZipBytes, 0, 0
	}
	switch {
	case c.count >= maxCarried:
		return false, c.tooMuch("more than %d manifests and blobs", maxCarried)
	case desc.Size > limit-before:
		return false, c.tooMuch("more than %d bytes", limit)
	}
	c.count++
	c.bytes += bytes
	return true, nil
}

func (c *carrier) tooMuch(format string, args ...any) error {
	return hint.Wrap(fmt.Errorf("%s in %s: %w: %s", repo.TagOf(c.version), c.from.Repository, repo.ErrTooMuchAttached, fmt.Sprintf(format, args...)), "%s", c.help)
}

// manifestParts are the descriptors that an index or a manifest contains.
type manifestParts struct {
	Manifests []ocispec.Descriptor `json:"manifests"`
	Config    *ocispec.Descriptor  `json:"config"`
	Layers    []ocispec.Descriptor `json:"layers"`
	Subject   *ocispec.Descriptor  `json:"subject"`
}

// hasSubject reports whether a manifest has a subject. A registry attaches such a manifest to its subject, no
// matter who pushed the subject.
func hasSubject(data []byte) (bool, error) {
	var m manifestParts
	err := artifact.Unmarshal(data, &m)
	return m.Subject != nil, err
}

// storeParts stores all parts of a manifest, at any depth, but not the manifest itself.
func (c *carrier) storeParts(ctx context.Context, desc ocispec.Descriptor, data []byte) error {
	return c.storePartsAt(ctx, desc, data, 1)
}

func (c *carrier) storePartsAt(ctx context.Context, desc ocispec.Descriptor, data []byte, depth int) error {
	var m manifestParts
	if err := artifact.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("%s: %w", desc.Digest, err)
	}
	if depth > maxCarriedNesting {
		return c.tooMuch("%s is nested in more than %d manifests", desc.Digest, maxCarriedNesting)
	}
	var blobs []ocispec.Descriptor
	if m.Config != nil {
		blobs = append(blobs, *m.Config)
	}
	for _, part := range slices.Concat(blobs, m.Layers, m.Manifests) {
		part = repo.Plain(part)
		admitted, err := c.admit(part)
		if err != nil {
			return err
		}
		if !admitted {
			continue
		}
		exists, err := c.Dest.Store.Exists(ctx, part)
		switch {
		case err != nil:
			err = c.Failed("look for an attachment in", err)
		case exists:
		case artifact.IsManifest(part.MediaType):
			err = c.storeManifest(ctx, part, depth)
		default:
			err = c.storeBlob(ctx, part)
		}
		if err != nil {
			return err
		}
		c.markStored(part.Digest)
	}
	return nil
}

// storeManifest stores a part that is itself a manifest, after its parts. It refuses a manifest with a subject.
func (c *carrier) storeManifest(ctx context.Context, desc ocispec.Descriptor, depth int) error {
	data, err := c.fetch(ctx, desc)
	if err != nil {
		return err
	}
	subject, err := hasSubject(data)
	if err == nil && subject {
		err = fmt.Errorf("%w: %s refers to another manifest", artifact.ErrNotProvider, desc.Digest)
	}
	if err == nil {
		err = c.storePartsAt(ctx, desc, data, depth+1)
	}
	if err == nil {
		err = c.SendBlob(ctx, "push a manifest to", artifact.Blob{Descriptor: repo.Plain(desc), Data: data})
	}
	return err
}

// fetch reads a manifest from the source.
func (c *carrier) fetch(ctx context.Context, desc ocispec.Descriptor) ([]byte, error) {
	data, err := artifact.FetchManifest(ctx, c.from.Store, repo.Plain(desc))
	if err != nil && !repo.IsUnusable(err) {
		err = c.from.failed(c.version, err)
	}
	return data, err
}

// storeBlob stores a blob. It copies the blob to a temporary file, and uploads the file after its digest was
// verified.
func (c *carrier) storeBlob(ctx context.Context, desc ocispec.Descriptor) error {
	temp, err := fill.NewTemp("", "ocibridge-*.blob")
	if err != nil {
		return hint.Wrap(fmt.Errorf("temporary file: %w", err), helpTemp)
	}
	defer temp.Close()
	transient := func(err error) bool {
		var full *fill.StorageError
		return !errors.As(err, &full) && !repo.IsUnusable(err) && worthRetrying(err)
	}
	err = c.Retry(ctx, transient, func() error {
		return c.readBlob(ctx, desc, tempWriter{io.NewOffsetWriter(temp, 0)}) // each attempt begins at the first byte
	})
	if err != nil {
		return err
	}
	// Status 404 means that the upload session has ended.
	temporary := func(err error) bool { return worthRetrying(err) || repo.IsNotFound(err) }
	err = c.Retry(ctx, temporary, func() error {
		return c.Dest.Store.Push(ctx, desc, io.NewSectionReader(temp, 0, desc.Size))
	})
	if err != nil {
		return c.Failed("push a blob to", err)
	}
	return nil
}

// readBlob copies a blob of the source to a temporary file, and then verifies its digest.
func (c *carrier) readBlob(ctx context.Context, desc ocispec.Descriptor, to tempWriter) error {
	body, err := c.from.Store.Fetch(ctx, desc)
	if err != nil {
		return c.sourceError(err)
	}
	defer body.Close()
	verified := orascontent.NewVerifyReader(body, desc)
	if _, err = io.Copy(to, verified); err == nil {
		err = verified.Verify()
	}
	var full *fill.StorageError
	if errors.As(err, &full) {
		return hint.Wrap(fmt.Errorf("temporary file: %w", err), helpTemp)
	}
	return c.sourceError(err)
}

// tempWriter writes a temporary file. Its errors are *[fill.StorageError], which are not errors of the source. It
// must have no ReadFrom method, because ReadFrom would also return errors of the source.
type tempWriter struct{ file *io.OffsetWriter }

// Write implements [io.Writer].
func (w tempWriter) Write(p []byte) (int, error) {
	n, err := w.file.Write(p)
	if err != nil {
		err = &fill.StorageError{Err: err}
	}
	return n, err
}

// sourceError converts an error from reading the source. The result wraps [artifact.ErrDamaged] if the content
// was wrong, and is a *[RegistryError] if the registry failed.
func (c *carrier) sourceError(err error) error {
	if errors.Is(err, orascontent.ErrMismatchedDigest) || errors.Is(err, orascontent.ErrTrailingData) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %w", artifact.ErrDamaged, err)
	}
	if err != nil && !repo.IsUnusable(err) {
		return c.from.failed(c.version, err)
	}
	return err
}

// supersedes reports whether a manifest has the same subject as another manifest, and all layers of the other
// manifest. cosign stores such a manifest when it adds a signature, and moves the tag to this manifest. The
// annotations of layers count, because they contain the signatures.
func supersedes(data, other []byte) bool {
	var a, b manifestParts
	if artifact.Unmarshal(data, &a) != nil || artifact.Unmarshal(other, &b) != nil || len(b.Layers) == 0 || !sameDigest(a.Subject, b.Subject) {
		return false
	}
	return !slices.ContainsFunc(b.Layers, func(l ocispec.Descriptor) bool {
		return !slices.ContainsFunc(a.Layers, func(m ocispec.Descriptor) bool {
			return m.Digest == l.Digest && maps.Equal(m.Annotations, l.Annotations)
		})
	})
}
