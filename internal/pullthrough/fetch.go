package pullthrough

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// fetch brings the package, from the registry if that turns out to have it, and says
// from where.
func (d *download) fetch(ctx context.Context) (from string, err error) {
	from = d.want.subject.provider.Hostname()
	r, err := d.p.release(ctx, d.want.subject)
	if err != nil {
		return from, err
	}
	from = r.origin
	at, lost := d.locate(ctx, r)
	room, err := d.reserve(ctx, at.Host)
	if err != nil {
		return from, err
	}
	d.change(func() { d.room = room })
	// A file may take as long to be made as an origin to answer.
	file := make(chan error, 1)
	go func() {
		f, err := newSpoolFile(d.p.o.Spool)
		if err == nil {
			d.change(func() { d.file = &f })
		}
		file <- err
	}()
	body, size, from, err := d.begin(ctx, r, at, lost)
	if err == nil {
		defer body.Close()
	}
	if ferr := <-file; err == nil {
		err = ferr
	}
	if err != nil {
		return from, err
	}
	if from == FromRegistry {
		d.room.comesFrom(nil)
	}
	if size >= 0 {
		if err := d.room.expect(size); err != nil {
			return from, err
		}
	}
	d.change(func() { d.length, d.begun = size, true })
	runtime.Gosched()
	if err := d.copy(body, size); err != nil {
		return from, err
	}
	return from, d.checkZip(ctx)
}

// locate returns the package as its origin has it. It asks the origin before the
// download takes a place, so that an origin that does not answer takes none.
func (d *download) locate(ctx context.Context, r *release) (origin.Package, error) {
	if d.at != nil {
		return *d.at, nil
	}
	return d.p.place(ctx, r, d.want)
}

// checkZip refuses verified bytes that are no zip, before a client gets the last of
// them: a push would refuse them, too.
func (d *download) checkZip(ctx context.Context) error {
	err := provider.CheckZip(ctx, d.file, d.have)
	switch {
	case errors.Is(err, provider.ErrNotZip):
		return hint.Wrap(fmt.Errorf("%s: its %d bytes are what SHA256SUMS lists, but they are %w", d.want.filename, d.have, err), trust.NotZipHint)
	case err != nil:
		return spoolError(err)
	}
	return nil
}

// reserve takes a place. A download that no client waits for lets others go first.
func (d *download) reserve(ctx context.Context, host string) (*reservation, error) {
	by := party{
		background: true, urgent: d.urgent,
		isRead: func() bool { return d.clients.Load() > 0 },
		yield:  func() bool { return d.p.yield(d) },
	}
	if host != "" {
		by.hosts = []string{host}
	}
	d.p.mu.Lock()
	by.background = !d.hurried
	d.p.mu.Unlock()
	return d.p.limit.reserve(ctx, -1, by)
}

// begin starts reading the package: at its origin, unless the registry has it
// meanwhile, as by another gateway that pushed it. Where a client waits, the origin
// is asked first, and the registry too unless that answers at once. lost is why the
// origin does not say where it has the package.
func (d *download) begin(ctx context.Context, r *release, at origin.Package, lost error) (body io.ReadCloser, size int64, from string, err error) {
	known := d.probe(ctx)
	if d.at != nil {
		known.ask()
	} else {
		defer time.AfterFunc(probeAfter, known.ask).Stop()
	}
	if d.at != nil || lost != nil {
		if body, size := known.open(ctx); body != nil {
			return body, size, FromRegistry, nil
		}
	}
	if lost != nil {
		return nil, 0, r.origin, lost
	}
	body, size, err = d.open(ctx, at)
	if err != nil || known.answered() {
		if there, size := known.open(ctx); there != nil {
			if body != nil {
				body.Close()
			}
			return there, size, FromRegistry, nil
		}
	}
	return body, size, r.origin, err
}

// probeAfter is how long an origin may take before the registry is asked beside it:
// both at once would slow down an origin that is near.
const probeAfter = 5 * time.Millisecond

// probe is what the registry says of a package that is not tagged.
type probe struct {
	store *store
	ask   func() // begins it, once
	done  chan struct{}
	desc  *ocispec.Descriptor // once done; nil: it does not have it
}

func (d *download) probe(ctx context.Context) *probe {
	p := &probe{store: d.store, done: make(chan struct{})}
	p.ask = sync.OnceFunc(func() {
		go func() {
			defer close(p.done)
			ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
			defer cancel()
			p.desc = d.store.stored(ctx, d.want.digest)
		}()
	})
	return p
}

func (p *probe) answered() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// open opens the package in the registry, once that has answered; nil where that does
// not have it.
func (p *probe) open(ctx context.Context) (io.ReadCloser, int64) {
	p.ask()
	<-p.done
	if p.desc == nil {
		return nil, 0
	}
	body, err := p.store.Store.Fetch(ctx, *p.desc)
	if err != nil {
		return nil, 0 // then the origin has it
	}
	return body, p.desc.Size
}

// FromRegistry stands for the origin of what is stored already.
const FromRegistry = "registry"

// copy brings the bytes into the file, hashing them, and fails unless they are those
// wanted.
func (d *download) copy(body io.Reader, size int64) error {
	limit := size
	if size < 0 {
		limit = maxUnannounced
	}
	hash := sha256.New()
	buf := make([]byte, pieceBytes)
	var have int64
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if have+int64(n) > limit {
				return fmt.Errorf("%s: its origin sends more than %d bytes", d.want.filename, limit)
			}
			if err := d.room.write(int64(n)); err != nil {
				return err
			}
			if _, err := d.file.Write(buf[:n]); err != nil {
				return spoolError(err)
			}
			hash.Write(buf[:n])
			have += int64(n)
			d.change(func() { d.have = have })
			if have == int64(n) && have < size {
				time.Sleep(headStart)
			}
			// Who reads along goes first: where bytes come faster than they are read, this
			// would not stop for them for long.
			runtime.Gosched()
		}
		switch {
		case err == io.EOF && size >= 0 && have < size:
			return trouble(fmt.Errorf("%s: %w after %d of %d bytes", d.want.filename, io.ErrUnexpectedEOF, have, size))
		case err == io.EOF:
			if got := digest.NewDigest(digest.SHA256, hash); got != d.want.digest {
				return hint.Wrap(fmt.Errorf("%s: %w: its %d bytes are %s, and SHA256SUMS lists %s", d.want.filename, trust.ErrChecksum, have, got, d.want.digest),
					"the package is not what its publisher released, or was damaged on the way; nothing was stored")
			}
			return nil
		case err != nil:
			return trouble(fmt.Errorf("%s after %d bytes: %w", d.want.filename, have, err))
		}
	}
}
