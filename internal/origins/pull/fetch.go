package pull

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/base/fill"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// FromRegistry is the [Event.From] of a package that was found in the registry.
const FromRegistry = "registry"

// fetch downloads the package from its origin, or from the registry if the registry has the
// package by now. It returns the value for [Event.From].
func (d *download) fetch(ctx context.Context) (from string, err error) {
	from = d.want.subject.provider.Hostname()
	r, err := d.p.release(ctx, d.want.subject)
	if err != nil {
		return from, err
	}
	from = r.origin
	// The download asks the origin for the location before it takes a slot, so that an origin
	// that does not respond occupies no slot.
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

// reserve waits for a slot and takes it. Downloads with a client get their slots first.
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

// begin opens the package in the registry if another gateway has pushed the package meanwhile.
// Otherwise it opens the package at its origin. The error unlocated, if not nil, says why the
// package's location at the origin is unknown.
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

// probeTimeout is how long openStored waits until the registry says whether it has a package.
// Clients must get the package from the origin even if the registry does not respond.
const probeTimeout = 5 * time.Second

// openStored opens the package in the registry, whether or not its version is tagged. It
// returns a nil body if the registry lacks the package or fails.
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

// checkZip returns an error if the package is not a zip file, although its digest is right. It
// runs before any client can get the last byte. A push would refuse the package, too.
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
