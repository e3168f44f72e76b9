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
	"github.com/ocibridge/ocibridge/trust"
)

const (
	// pieceBytes is how much of a package is read and written at once.
	pieceBytes = 64 << 10
	// lingers is how long a package that is there is kept for those who come next.
	lingers = 10 * time.Second
	// failureLasts is how long a package that could not be had is not tried again.
	failureLasts = 5 * time.Second
	// stallTimeout is how long a download may bring nothing.
	stallTimeout = 90 * time.Second
	// maxUnannounced bounds a package whose size its origin does not say.
	maxUnannounced = 4 << 30
)

// opener starts reading a package, as [origin.Package] does.
type opener = func(context.Context) (io.ReadCloser, int64, error)

// download is a package on its way into a temporary file, which all who want it read
// along.
type download struct {
	p      *Puller
	store  *store
	want   wanted
	open   opener        // nil: the origin is asked where it is
	urgent chan struct{} // closed once a client waits for it

	// Guarded by Puller.mu.
	users   int
	hurried bool               // a client waits for it, or did
	cancel  context.CancelFunc // ends it; nil: it has ended
	idle    *time.Timer

	mu      sync.Mutex // guards the following
	file    *spoolFile
	room    *reservation
	have    int64
	length  int64 // -1: not known
	done    bool  // all is there, and verified
	err     error // why nothing comes any more
	changed chan struct{}
}

// underway returns the download of a package, which the caller leaves; nil for none.
func (p *Puller) underway(w wanted) *download {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.downloads[w.digest]
	if d != nil {
		p.enter(d, true)
	}
	return d
}

// enter counts a user. It is called with mu held.
func (p *Puller) enter(d *download, client bool) {
	d.users++
	if d.idle != nil {
		d.idle.Stop()
		d.idle = nil
	}
	if client && !d.hurried {
		d.hurried = true
		close(d.urgent)
	}
}

// join returns the download of a package, begun if need be; the caller leaves it.
// A client's (open is nil) has the version pushed, too.
func (p *Puller) join(s *store, w wanted, open opener) (*download, error) {
	client := open == nil
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.downloads[w.digest]; d != nil {
		p.enter(d, client)
		if client {
			p.pushLocked(s, d)
		}
		return d, nil
	}
	if p.closed {
		return nil, trouble(errClosed)
	}
	now := time.Now()
	if f := p.failed[w.digest]; f.err != nil {
		if now.Before(f.until) {
			return nil, f.err
		}
		delete(p.failed, w.digest)
	}
	d := &download{p: p, store: s, want: w, open: open, urgent: make(chan struct{}), length: -1, changed: make(chan struct{})}
	p.downloads[w.digest] = d
	p.enter(d, client)
	d.users++ // the download itself
	ctx, cancel := context.WithCancel(p.ctx)
	d.cancel = cancel
	p.tasks.Go(func() { d.run(ctx) })
	if client {
		p.pushLocked(s, d)
	}
	return d, nil
}

// leave ends one use.
func (p *Puller) leave(d *download) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d.users--
	if d.users == 1 && d.cancel != nil && !d.hurried {
		// Its push has ended, and no client wants it.
		delete(p.downloads, d.want.digest)
		d.cancel()
	}
	if d.users > 0 {
		return
	}
	// What failed is no use to anybody; what is there may be to who comes next.
	if p.downloads[d.want.digest] != d || p.closed {
		d.drop()
		return
	}
	d.idle = time.AfterFunc(lingers, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if d.users == 0 && p.downloads[d.want.digest] == d {
			delete(p.downloads, d.want.digest)
			d.drop()
		}
	})
}

// drop removes the file. It is called with Puller.mu held, and without users.
func (d *download) drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.file != nil {
		d.file.Close()
		d.file = nil
	}
	if d.room != nil {
		d.room.drop()
		d.room = nil
	}
}

// run downloads, and tells what came of it.
func (d *download) run(ctx context.Context) {
	p := d.p
	from, err := d.fetch(ctx)
	have := int64(0)
	d.change(func() {
		d.done, d.err = err == nil, err
		if err == nil {
			d.length = d.have
		}
		have = d.have
		if d.room != nil {
			d.room.done()
		}
	})
	r := p.current(d.want.subject)
	if err == nil && r != nil {
		r.setSize(d.want.digest, have)
	}
	p.mu.Lock()
	ended := ctx.Err() != nil
	d.cancel()
	d.cancel = nil
	if err != nil {
		if p.downloads[d.want.digest] == d {
			delete(p.downloads, d.want.digest)
		}
		var busy *BusyError
		if !ended && !errors.As(err, &busy) {
			p.fail(d.want.digest, err)
		}
	}
	p.mu.Unlock()
	p.leave(d)
	if ended {
		return
	}
	e := Event{Kind: Fetched, Provider: d.want.subject.provider, Version: d.want.subject.version, Platform: d.want.platform, Bytes: have, Err: err}
	if r != nil {
		r.describe(&e)
	}
	e.From = from
	if err != nil {
		p.o.Log.Error("pulled through: a package cannot be had", "version", d.want.subject.String(), "platform", d.want.platform.String(), "from", from, "bytes", have, "err", err)
	} else {
		p.o.Log.Info("pulled through: a package is here", "version", d.want.subject.String(), "platform", d.want.platform.String(), "from", from, "bytes", have)
	}
	p.o.Events(e)
}

// maxFailed bounds how many failures are remembered.
const maxFailed = 1024

// fail remembers a failure for a moment. It is called with mu held.
func (p *Puller) fail(d digest.Digest, err error) {
	if len(p.failed) >= maxFailed {
		clear(p.failed)
	}
	p.failed[d] = failure{err, time.Now().Add(failureLasts)}
}

// fetch brings the package, from the registry if that turns out to have it, and says
// from where.
func (d *download) fetch(ctx context.Context) (from string, err error) {
	from = d.want.subject.provider.Hostname()
	r, err := d.p.release(ctx, d.want.subject)
	if err != nil {
		return from, err
	}
	from = r.origin
	if d.room, err = d.reserve(ctx); err != nil {
		return from, err
	}
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
// is asked without waiting for what the registry says.
func (d *download) begin(ctx context.Context, r *release) (body io.ReadCloser, size int64, from string, err error) {
	known := d.probe(ctx)
	open := d.open
	if open == nil {
		var at origin.Package
		if at, err = d.p.place(ctx, r, d.want); err == nil {
			open = at.Open
		}
	}
	if d.open != nil || err != nil || known.answered() {
		if body, size := known.open(ctx); body != nil {
			return body, size, fromRegistry, nil
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
			return there, size, fromRegistry, nil
		}
	}
	return body, size, r.origin, trouble(err)
}

// probe is what the registry says of a package that is not tagged.
type probe struct {
	store *store
	done  chan struct{}
	desc  *ocispec.Descriptor // once done; nil: it does not have it
}

func (d *download) probe(ctx context.Context) *probe {
	p := &probe{store: d.store, done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	go func() {
		defer close(p.done)
		defer cancel()
		p.desc = d.store.stored(ctx, d.want.digest)
	}()
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

// fromRegistry stands for the origin of what is stored already.
const fromRegistry = "registry"

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
				return hint.Wrap(fmt.Errorf("package under way: %w", err), "is the disk full?")
			}
			hash.Write(buf[:n])
			have += int64(n)
			d.change(func() { d.have = have })
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

func (d *download) change(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
	close(d.changed)
	d.changed = make(chan struct{})
}

// wait waits until a condition holds, which is asked with mu held, or nothing comes
// any more.
func (d *download) wait(ctx context.Context, holds func() bool) error {
	for {
		d.mu.Lock()
		ok, err, changed := holds(), d.err, d.changed
		d.mu.Unlock()
		switch {
		case err != nil:
			return err
		case ok:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// size waits for the package's size in bytes.
func (d *download) size(ctx context.Context) (size int64, err error) {
	err = d.wait(ctx, func() bool { size = d.length; return size >= 0 })
	return size, err
}

// wellBegun is how much of a package is there before its push begins.
const wellBegun = 1 << 20

// begun waits until the package is well under way, or will not be.
func (d *download) begun(ctx context.Context) {
	_ = d.wait(ctx, func() bool { return d.done || d.have >= wellBegun }) // its end is for those who read it
}

// over waits until the download has ended, well or not.
func (d *download) over(ctx context.Context) error {
	err := d.wait(ctx, func() bool { return d.done })
	if ctx.Err() != nil {
		return err
	}
	return nil
}

// reader reads a package from its start, as far as it has come and then with it. To
// read on from what has come needs no other copy of it.
type reader struct {
	ctx    context.Context
	d      *download
	offset int64
	closed sync.Once
}

// reader returns one that leaves the download when it is closed.
func (d *download) reader(ctx context.Context) *reader { return &reader{ctx: ctx, d: d} }

// Read implements [io.Reader].
func (r *reader) Read(p []byte) (int, error) {
	var have int64
	var done bool
	if err := r.d.wait(r.ctx, func() bool { have, done = r.d.have, r.d.done; return done || have > r.offset }); err != nil {
		return 0, err
	}
	if have <= r.offset {
		return 0, io.EOF
	}
	n, err := r.d.file.ReadAt(p[:min(int64(len(p)), have-r.offset)], r.offset)
	r.offset += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

// ReadAt implements [io.ReaderAt]. It waits for what has not come.
func (r *reader) ReadAt(p []byte, off int64) (int, error) {
	var have int64
	if err := r.d.wait(r.ctx, func() bool { have = r.d.have; return r.d.done || have >= off+int64(len(p)) }); err != nil {
		return 0, err
	}
	return r.d.file.ReadAt(p, off)
}

// Seek implements [io.Seeker].
func (r *reader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.offset
	case io.SeekEnd:
		size, err := r.d.size(r.ctx)
		if err != nil {
			return r.offset, err
		}
		offset += size
	}
	if offset < 0 {
		return r.offset, errors.New("seek before the start")
	}
	r.offset = offset
	return offset, nil
}

// Close implements [io.Closer].
func (r *reader) Close() error {
	r.closed.Do(func() { r.d.p.leave(r.d) })
	return nil
}
