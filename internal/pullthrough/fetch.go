package pullthrough

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/origin"
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
	room, err := d.reserve(ctx)
	if err != nil {
		return from, err
	}
	d.change(func() { d.room, d.start = room, time.Now() })
	// A file may take as long to be made as an origin to answer.
	file := make(chan error, 1)
	go func() {
		f, err := newSpoolFile(d.p.o.Spool)
		if err == nil {
			d.change(func() { d.file = &f })
		}
		file <- err
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(stallTimeout, func() { cancel(errStalled) })
	defer stall.Stop()
	body, size, from, err := d.begin(ctx, r)
	if err == nil {
		defer body.Close()
	}
	if ferr := <-file; err == nil {
		err = ferr
	}
	if err != nil {
		return from, err
	}
	if size >= 0 {
		if err := d.room.expect(size); err != nil {
			return from, err
		}
		d.change(func() { d.length = size })
		runtime.Gosched()
	}
	if err = d.copy(body, size, func() { stall.Reset(stallTimeout) }); err != nil && context.Cause(ctx) == errStalled {
		err = trouble(errStalled)
	}
	return from, err
}

var errStalled = fmt.Errorf("a download brought nothing for %s", stallTimeout)

// reserve takes a place. What nobody waits for lets others go first, until somebody
// does.
func (d *download) reserve(ctx context.Context) (*reservation, error) {
	d.p.mu.Lock()
	hurried := d.hurried
	d.p.mu.Unlock()
	if hurried {
		return d.p.limit.reserve(ctx, -1, false)
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	got := make(chan struct{})
	defer close(got)
	go func() {
		select {
		case <-d.urgent:
			cancel()
		case <-got:
		}
	}()
	room, err := d.p.limit.reserve(waiting, -1, true)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		return d.p.limit.reserve(ctx, -1, false)
	}
	return room, err
}

// begin starts reading the package: at its origin, unless the registry has it
// meanwhile, as by another gateway that pushed it. Where a client waits, the origin
// is asked first, and the registry too unless that answers at once.
func (d *download) begin(ctx context.Context, r *release) (body io.ReadCloser, size int64, from string, err error) {
	known := d.probe(ctx)
	if d.open != nil {
		known.ask()
	} else {
		defer time.AfterFunc(probeAfter, known.ask).Stop()
	}
	open := d.open
	if open == nil {
		var at origin.Package
		if at, err = d.p.place(ctx, r, d.want); err == nil {
			open = at.Open
		}
	}
	if d.open != nil || err != nil || known.answered() {
		if body, size := known.open(ctx); body != nil {
			return body, size, FromRegistry, nil
		}
	}
	if err != nil {
		return nil, 0, r.origin, err
	}
	body, size, err = open(ctx)
	if err != nil || known.answered() {
		if there, size := known.open(ctx); there != nil {
			if body != nil {
				body.Close()
			}
			return there, size, FromRegistry, nil
		}
	}
	return body, size, r.origin, trouble(err)
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
func (d *download) copy(body io.Reader, size int64, progress func()) error {
	limit := size
	if size < 0 {
		limit = maxUnannounced
	}
	hash := sha256.New()
	buf := make([]byte, pieceBytes)
	var have int64
	for {
		n, err := body.Read(buf)
		progress()
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
