package pull

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
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

// fetch downloads the package from its origin, or from the registry if the registry has it by now. It returns the value
// for [Event.From].
func (d *download) fetch(ctx context.Context) (from string, err error) {
	from = d.want.subject.provider.Hostname()
	r, err := d.p.release(ctx, d.want.subject)
	if err != nil {
		return from, err
	}
	from = r.origin
	// The download locates the package before it waits for a slot, so that an origin that does not respond occupies no
	// slot.
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

// begin opens the package in the registry if another gateway has pushed it meanwhile, or else at its origin. The error
// unlocated, if not nil, says why the package's location at the origin is unknown.
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

// probeTimeout is how long openStored waits for the registry to say whether it has a package.
const probeTimeout = 5 * time.Second

// openStored opens the package in the registry, whether or not its version is tagged. It returns a nil body if the registry
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

// copy copies the package from the registry or from its origin into the file, and verifies its digest.
func (d *download) copy(body io.Reader, from string) error {
	hash := sha256.New()
	err := d.Fill(io.TeeReader(body, hash))
	s := d.State()
	if storage, ok := errors.AsType[*fill.StorageError](err); ok {
		return storage.Err
	}
	switch {
	case errors.As(err, new(*fill.TooLongError)):
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

// checkZip returns an error if the package is not a zip file, although its digest is right. It runs before any client can
// get the last byte. A push would refuse the package, too.
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

// maxTried is the maximum number of tried addresses that are recorded for a host while its request is not connected
// yet. A dialer tries an IPv6 address and an IPv4 address concurrently.
const maxTried = 2

// errCrowded means that a request was cancelled because its host already has its share of the slots.
var errCrowded = errors.New("the host has its share of max_concurrent")

// open opens the package at its origin. If the request goes to a host that already has its share of the slots, also
// after a redirect, the download loses its slot. It then waits until that host may have another slot, and requests the
// package again.
func (d *download) open(ctx context.Context, at origin.Package) (io.ReadCloser, int64, error) {
	for {
		// The context is not cancelled on return, because reads of the body still need it. It ends with ctx.
		asking, cancel := context.WithCancelCause(ctx)
		way := &route{room: d.room, cancel: cancel}
		body, size, err := at.Open(origin.WatchHosts(asking, way.asks))
		if !way.isCrowded(err == nil) {
			return body, size, outage(err)
		}
		if err == nil {
			body.Close()
		}
		if err := d.p.limit.waitForSlot(ctx, d.room); err != nil {
			return nil, 0, err
		}
	}
}

// route follows the requests of a download through redirects. The download counts only for the host of the last request,
// which sends the package.
type route struct {
	room   *reservation
	cancel context.CancelCauseFunc // ends the requests

	mu        sync.Mutex // guards the following
	last      []string   // the host of the last request: its name, then its addresses; never changed in place
	connected bool       // the last request is connected
	crowded   bool       // the host of the last request already has its share of the slots
	failed    bool       // the package could not be opened
	open      bool       // the package is being read
}

// asks records a host that [origin.WatchHosts] reports. It cancels the requests if the host already has its share of the
// slots, unless the package is being read, because a download that resumes keeps its slot.
func (w *route) asks(host origin.AskedHost) {
	w.mu.Lock()
	defer w.mu.Unlock()
	address := host.Address.String()
	switch {
	case w.crowded || w.failed:
		return
	case !host.Address.IsValid():
		w.last, w.connected = []string{host.Name}, false
	case len(w.last) == 0 || w.last[0] != host.Name:
		return // the address belongs to an earlier request
	case host.Connected:
		w.last, w.connected = []string{host.Name, address}, true
	case w.connected || slices.Contains(w.last, address):
		return
	default:
		tried := w.last[max(1, len(w.last)-maxTried+1):]
		w.last = slices.Concat([]string{host.Name}, tried, []string{address})
	}
	if !w.room.asks(w.last, w.open) {
		w.crowded = true
		w.cancel(errCrowded)
	}
}

// isCrowded reports whether the requests were cancelled because a host already has its share of the slots. If it returns
// false, no later request can cost the download its slot.
func (w *route) isCrowded(opened bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.crowded:
	case !opened:
		w.failed = true
	default:
		w.open = true
		if w.last != nil {
			w.room.comesFrom(w.last)
		}
	}
	return w.crowded
}
