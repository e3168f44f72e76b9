package pull

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/fill"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// FromRegistry is [Event.From] for a package that the registry turned out to have.
const FromRegistry = "registry"

// fetch brings the package from its origin, or from the registry if that turns out to have
// it. It returns where it was.
func (d *download) fetch(ctx context.Context) (from string, err error) {
	from = d.want.subject.provider.Hostname()
	r, err := d.p.release(ctx, d.want.subject)
	if err != nil {
		return from, err
	}
	from = r.origin
	// The origin is asked before the download takes a slot: an origin that does not answer
	// takes none.
	at, unlocated := d.locate(ctx, r)
	if d.room, err = d.reserve(ctx, at.Host); err != nil {
		return from, err
	}
	body, size, from, err := d.begin(ctx, r, at, unlocated)
	if err != nil {
		return from, err
	}
	defer body.Close()
	if from == FromRegistry {
		d.room.comesFrom(nil)
	}
	if size >= 0 {
		if err := d.room.expect(size); err != nil {
			return from, err
		}
	}
	file, err := newSpoolFile(d.p.o.Spool, d.room)
	if err != nil {
		return from, err
	}
	d.Begin(file, size)
	if err := d.copy(body, from); err != nil {
		return from, err
	}
	return from, d.checkZip(ctx)
}

// locate returns the location of the package at its origin.
func (d *download) locate(ctx context.Context, r *release) (origin.Package, error) {
	if d.at != nil {
		return *d.at, nil
	}
	return d.p.locate(ctx, r, d.want)
}

// reserve takes a slot. A download without a client waits until the others have theirs.
func (d *download) reserve(ctx context.Context, host string) (*reservation, error) {
	by := demand{
		background: true, urgent: d.urgent,
		isRead:  func() bool { return d.clients.Load() > 0 },
		preempt: func() bool { return d.p.preempt(d) },
	}
	if host != "" {
		by.hosts = []string{host}
	}
	select {
	case <-d.urgent:
		by.background = false
	default:
	}
	return d.p.limit.reserve(ctx, -1, by)
}

// begin opens the package in the registry if that has it by now, because another gateway may
// have pushed it. Otherwise it opens the package at its origin. unlocated is why the origin
// does not name the package's location; nil if it does.
func (d *download) begin(ctx context.Context, r *release, at origin.Package, unlocated error) (body io.ReadCloser, size int64, from string, err error) {
	if body, size := d.openStored(ctx); body != nil {
		return body, size, FromRegistry, nil
	}
	if unlocated != nil {
		return nil, 0, r.origin, unlocated
	}
	body, size, err = d.open(ctx, at)
	return body, size, r.origin, err
}

// probeTimeout bounds the registry's time to say that it has a package. A registry that
// does not answer must not keep clients from the origin.
const probeTimeout = 5 * time.Second

// openStored opens the package in the registry, tagged or not. It returns nil if the registry
// lacks the package or fails.
func (d *download) openStored(ctx context.Context) (io.ReadCloser, int64) {
	asking, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	desc, err := d.store.Blobs().Resolve(asking, d.want.digest.String())
	if err != nil || desc.Digest != d.want.digest || desc.Size <= 0 {
		return nil, 0
	}
	body, err := d.store.Fetch(ctx, desc)
	if err != nil {
		return nil, 0
	}
	return body, desc.Size
}

// copy copies the package from the registry or from its origin into the file, and verifies its
// digest.
func (d *download) copy(body io.Reader, from string) error {
	hash := sha256.New()
	err := d.Fill(io.TeeReader(body, hash))
	s := d.State()
	var storage *fill.StorageError
	var tooLong *fill.TooLongError
	switch {
	case errors.As(err, &storage):
		return storage.Err
	case errors.As(err, &tooLong):
		return fmt.Errorf("%s: %s sends %w", d.want.filename, from, err)
	case err != nil && from == FromRegistry:
		return fmt.Errorf("%s after %d bytes from the registry: %w", d.want.filename, s.Written, err)
	case err != nil:
		return outage(fmt.Errorf("%s after %d bytes: %w", d.want.filename, s.Written, err))
	}
	got := digest.NewDigest(digest.SHA256, hash)
	if got != d.want.digest && from == FromRegistry {
		return fmt.Errorf("%s: the registry sent %d bytes with the digest %s instead of %s", d.want.filename, s.Written, got, d.want.digest)
	}
	if got != d.want.digest {
		return hint.Wrap(fmt.Errorf("%s: %w: its %d bytes are %s, and SHA256SUMS lists %s", d.want.filename, trust.ErrChecksum, s.Written, got, d.want.digest),
			"the package is not what its publisher released, or was damaged on the way; nothing was stored")
	}
	return nil
}

// checkZip refuses bytes that are no zip though their digest is right, before a client has
// all of them. A push would refuse them, too.
func (d *download) checkZip(ctx context.Context) error {
	content := d.Content()
	err := provider.CheckZip(ctx, content, content.Size())
	switch {
	case errors.Is(err, provider.ErrNotZip):
		return hint.Wrap(fmt.Errorf("%s: its %d bytes are what SHA256SUMS lists, but they are %w", d.want.filename, content.Size(), err), trust.NotZipHint)
	case err != nil:
		return spoolError(err)
	}
	return nil
}
