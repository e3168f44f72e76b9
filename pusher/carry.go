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
	"github.com/ocibridge/ocibridge/internal/hint"
)

const (
	// maxCarried bounds the manifests and blobs that are copied with one version beside
	// its packages.
	maxCarried = 2000
	// maxCarriedBytes bounds their size together.
	maxCarriedBytes = 1 << 30
	// maxCarriedNesting bounds manifests within one another.
	maxCarriedNesting = 3
	// smallBlob is the size up to which a blob is read whole before it is sent.
	smallBlob = artifact.MaxManifestBytes
)

// ErrTooMuchAttached means that more is attached to a version than a copy takes.
var ErrTooMuchAttached = errors.New("too much is attached to the version")

// carrier copies content that nobody verifies but by its digest, for one version.
type carrier struct {
	from Stored
	to   *push

	mu    sync.Mutex
	count int
	bytes int64
	there map[digest.Digest]bool // in the destination
}

func newCarrier(from Stored, to *push) *carrier {
	return &carrier{from: from, to: to, there: map[digest.Digest]bool{}}
}

// has notes that the destination has some content.
func (c *carrier) has(d digest.Digest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.there[d] = true
}

// take counts content before it is read. It reports whether the content is still to
// be copied.
func (c *carrier) take(desc ocispec.Descriptor) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.there[desc.Digest] {
		return false, nil
	}
	if desc.Digest.Validate() != nil || desc.Size < 0 {
		return false, fmt.Errorf("%w: %.80q of %d bytes", artifact.ErrNotProvider, desc.Digest, desc.Size)
	}
	switch {
	case c.count >= maxCarried:
		return false, c.tooMuch("more than %d manifests and blobs", maxCarried)
	case desc.Size > maxCarriedBytes-c.bytes:
		return false, c.tooMuch("more than %d bytes", maxCarriedBytes)
	}
	c.count++
	c.bytes += desc.Size
	return true, nil
}

func (c *carrier) tooMuch(format string, args ...any) error {
	return hint.Wrap(fmt.Errorf("%s in %s: %w: %s", c.to.tag, c.from.Repository, ErrTooMuchAttached, fmt.Sprintf(format, args...)),
		"--without-referrers copies versions alone")
}

// manifestParts is what a manifest is made of.
type manifestParts struct {
	Manifests []ocispec.Descriptor `json:"manifests"`
	Config    *ocispec.Descriptor  `json:"config"`
	Layers    []ocispec.Descriptor `json:"layers"`
	Subject   *ocispec.Descriptor  `json:"subject"`
}

// hasSubject reports whether a manifest refers to another one. A registry attaches it to
// that, whoever pushed that.
func hasSubject(data []byte) (bool, error) {
	var m manifestParts
	err := artifact.Unmarshal(data, &m)
	return m.Subject != nil, err
}

// content stores every part of a manifest, at any depth, but not the manifest itself.
func (c *carrier) content(ctx context.Context, desc ocispec.Descriptor, data []byte) error {
	return c.parts(ctx, desc, data, 1)
}

func (c *carrier) parts(ctx context.Context, desc ocispec.Descriptor, data []byte, depth int) error {
	var m manifestParts
	if err := artifact.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("%s: %w", desc.Digest, err)
	}
	if depth > maxCarriedNesting {
		return c.tooMuch("%s lies in more than %d manifests within one another", desc.Digest, maxCarriedNesting)
	}
	blobs := m.Layers
	if m.Config != nil {
		blobs = append([]ocispec.Descriptor{*m.Config}, blobs...)
	}
	for _, part := range slices.Concat(blobs, m.Manifests) {
		wanted, err := c.take(part)
		if err == nil && wanted {
			if artifact.IsManifest(part.MediaType) {
				err = c.child(ctx, part, depth)
			} else {
				err = c.blob(ctx, part)
			}
		}
		if err != nil {
			return err
		}
		c.has(part.Digest)
	}
	return nil
}

// child stores a manifest that another one names. It refuses one that refers to another
// manifest.
func (c *carrier) child(ctx context.Context, desc ocispec.Descriptor, depth int) error {
	exists, err := c.to.dest.Store.Exists(ctx, desc)
	if err != nil {
		return c.to.registryError("look for a manifest in", err)
	}
	if exists {
		return nil
	}
	data, err := c.fetch(ctx, desc)
	if err == nil {
		var names bool
		if names, err = hasSubject(data); err == nil && names {
			err = fmt.Errorf("%w: %s refers to another manifest", artifact.ErrNotProvider, desc.Digest)
		}
	}
	if err == nil {
		err = c.parts(ctx, desc, data, depth+1)
	}
	if err == nil {
		err = c.to.sendBlob(ctx, "push a manifest to", artifact.Blob{Descriptor: plain(desc), Data: data})
	}
	return err
}

// plain is a descriptor without what depends on who describes.
func plain(desc ocispec.Descriptor) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: desc.MediaType, Digest: desc.Digest, Size: desc.Size}
}

// fetch reads a manifest from the source.
func (c *carrier) fetch(ctx context.Context, desc ocispec.Descriptor) ([]byte, error) {
	data, err := artifact.FetchManifest(ctx, c.from.Store, plain(desc))
	if err != nil && !isUnusable(err) {
		err = c.from.failed(c.to.release.Version(), err)
	}
	return data, err
}

// blob stores a blob, unless it is there.
func (c *carrier) blob(ctx context.Context, desc ocispec.Descriptor) error {
	desc = plain(desc)
	exists, err := c.to.dest.Store.Exists(ctx, desc)
	if err != nil {
		return c.to.registryError("look for a blob in", err)
	}
	if exists {
		return nil
	}
	if desc.Size <= smallBlob {
		data, err := c.readBlob(ctx, desc)
		if err != nil {
			return err
		}
		return c.to.sendBlob(ctx, "push a blob to", artifact.Blob{Descriptor: desc, Data: data})
	}
	pause := c.to.o.RetryPause
	for attempt := 1; ; attempt++ {
		err := c.stream(ctx, desc)
		if err == nil || attempt == sendAttempts || isUnusable(err) || !worthRetrying(err) {
			return err
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		pause *= 2
	}
}

func (c *carrier) readBlob(ctx context.Context, desc ocispec.Descriptor) ([]byte, error) {
	body, err := c.from.Store.Fetch(ctx, desc)
	if err != nil {
		return nil, c.readError(err)
	}
	defer body.Close()
	data, err := orascontent.ReadAll(body, desc)
	return data, c.readError(err)
}

// stream sends a blob while it is read. The destination gets the last of it only when
// all of it has the right digest.
func (c *carrier) stream(ctx context.Context, desc ocispec.Descriptor) error {
	body, err := c.from.Store.Fetch(ctx, desc)
	if err != nil {
		return c.readError(err)
	}
	defer body.Close()
	verified := &wholeReader{r: orascontent.NewVerifyReader(body, desc), left: desc.Size}
	err = c.to.dest.Store.Push(ctx, desc, verified)
	switch {
	case verified.err != nil:
		return c.readError(verified.err)
	case err != nil:
		return c.to.registryError("push a blob to", err)
	}
	return nil
}

// readError is an error of reading from the source.
func (c *carrier) readError(err error) error {
	if errors.Is(err, orascontent.ErrMismatchedDigest) || errors.Is(err, orascontent.ErrTrailingData) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %w", artifact.ErrDamaged, err)
	}
	if err != nil && !isUnusable(err) {
		return c.from.failed(c.to.release.Version(), err)
	}
	return err
}

// wholeReader gives out the last byte only if the whole is what its descriptor says.
type wholeReader struct {
	r    *orascontent.VerifyReader
	left int64
	err  error
}

func (w *wholeReader) Read(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.r.Read(p)
	w.left -= int64(n)
	if w.left <= 0 && (err == nil || err == io.EOF) {
		if verr := w.r.Verify(); verr != nil {
			n, err = 0, verr
		}
	}
	if err == io.EOF && w.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && err != io.EOF {
		w.err = err
	}
	return n, err
}

// supersedes reports whether a manifest has every layer that another one has, and the
// same subject: cosign adds signatures to a manifest, and moves the tag. A layer's
// annotations hold the signature of its bytes.
func supersedes(data, other []byte) bool {
	var a, b manifestParts
	if artifact.Unmarshal(data, &a) != nil || artifact.Unmarshal(other, &b) != nil || len(b.Layers) == 0 || !sameSubject(a.Subject, b.Subject) {
		return false
	}
	return !slices.ContainsFunc(b.Layers, func(l ocispec.Descriptor) bool {
		return !slices.ContainsFunc(a.Layers, func(m ocispec.Descriptor) bool {
			return m.Digest == l.Digest && maps.Equal(m.Annotations, l.Annotations)
		})
	})
}

func sameSubject(a, b *ocispec.Descriptor) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Digest == b.Digest
}

// push stores a manifest by its digest. A store without the referrers API lists it
// under its subject's fallback tag, too.
func (c *carrier) push(ctx context.Context, desc ocispec.Descriptor, data []byte) error {
	if err := c.to.put(ctx, plain(desc), data, ""); err != nil {
		return c.to.registryError("push a referrer to", err)
	}
	return nil
}
