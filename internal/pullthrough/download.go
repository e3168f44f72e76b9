package pullthrough

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/telemetry"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

const (
	// pieceBytes is how much of a package is read and written at once.
	pieceBytes = 64 << 10
	// lingers is how long a package that is there is kept for those who come next.
	lingers = 10 * time.Second
	// headStart is how long nothing more is read after the first piece: the rest would
	// take the processors that it needs on its way to who waits for it.
	headStart = 2 * time.Millisecond
	// failureLasts is how long a package that could not be had is not tried again.
	failureLasts = 5 * time.Second
	// notZipLasts is the same for a package whose listed bytes are no zip: another
	// download brings the same bytes.
	notZipLasts = 10 * time.Minute
	// maxUnannounced bounds a package whose size its origin does not say.
	maxUnannounced = 4 << 30
)

// download is a package on its way into a temporary file, which all who want it read
// along.
type download struct {
	p      *Puller
	store  *store
	want   wanted
	at     *origin.Package // nil: the origin is asked where it is
	urgent chan struct{}   // closed once a client waits for it

	// Guarded by Puller.mu.
	users   int
	hurried bool                    // a client waits for it, or did
	cancel  context.CancelCauseFunc // ends it; nil: it has ended
	idle    *time.Timer

	clients atomic.Int32 // of the users; changed with Puller.mu held

	mu      sync.Mutex // guards the following
	file    *spoolFile
	room    *reservation
	begun   bool // what sends it has answered
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
	d := p.downloads[w.key()]
	if d != nil {
		p.enter(d, true)
	}
	return d
}

// enter counts a user. It is called with mu held.
func (p *Puller) enter(d *download, client bool) {
	d.users++
	if client {
		d.clients.Add(1)
	}
	if d.idle != nil {
		d.idle.Stop()
		d.idle = nil
	}
	if client && !d.hurried {
		d.hurried = true
		close(d.urgent)
	}
}

// join returns the download of a package, begun for a request if need be; the caller
// leaves it. A client's (at is nil) has the version pushed, too.
func (p *Puller) join(request context.Context, s *store, w wanted, at *origin.Package) (*download, error) {
	client := at == nil
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.downloads[w.key()]; d != nil {
		p.enter(d, client)
		if client {
			p.pushLocked(s, w, d)
		}
		return d, nil
	}
	if p.closed {
		return nil, trouble(errClosed)
	}
	now := time.Now()
	if f := p.failed[w.key()]; f.holds(now) {
		return nil, f.err
	}
	d := &download{p: p, store: s, want: w, at: at, urgent: make(chan struct{}), length: -1, changed: make(chan struct{})}
	p.downloads[w.key()] = d
	p.enter(d, client)
	d.users++ // the download itself
	ctx, cancel := context.WithCancelCause(telemetry.Follow(p.ctx, request))
	d.cancel = cancel
	p.tasks.Go(func() { d.run(ctx) })
	if client {
		p.pushLocked(s, w, d)
	}
	return d, nil
}

// leave ends one use, which a client has entered or not.
func (p *Puller) leave(d *download, client bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d.users--
	if client {
		d.clients.Add(-1)
	}
	if d.users == 1 && d.cancel != nil && !d.hurried {
		// Its push has ended, and no client wants it.
		p.forget(d)
		d.cancel(nil)
	}
	if d.users > 0 {
		return
	}
	// What failed is no use to anybody; what is there may be to who comes next.
	if p.downloads[d.want.key()] != d || p.closed {
		d.drop()
		return
	}
	d.idle = time.AfterFunc(lingers, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if d.users == 0 && p.downloads[d.want.key()] == d {
			delete(p.downloads, d.want.key())
			d.drop()
		}
	})
}

// errYielded is why a download ends for a waiting client. Its push is tried again.
var errYielded = hint.Wrap(fmt.Errorf("no client read the package, and another client waited for its place: %w", &BusyError{"max_concurrent", retryPlace}),
	"it is fetched again later; where this is frequent, raise max_concurrent in the pull_through block")

// yield ends a download for a waiting client, and reports whether it did: a client may
// read it by now.
func (p *Puller) yield(d *download) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d.clients.Load() > 0 || d.cancel == nil {
		return false
	}
	p.forget(d)
	d.cancel(errYielded)
	return true
}

// forget has the next one who wants the package begin anew. It is called with mu held.
func (p *Puller) forget(d *download) {
	if p.downloads[d.want.key()] == d {
		delete(p.downloads, d.want.key())
	}
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
	spanned, end := telemetry.Start(ctx, "origin package", slog.String("file", d.want.filename))
	from, err := d.fetch(spanned)
	if cause := context.Cause(ctx); err != nil && cause == errYielded {
		err = cause
	}
	err = brief(err)
	end(err)
	var have int64
	var took time.Duration
	d.change(func() {
		d.done, d.err = err == nil, err
		if err == nil {
			d.length = d.have
		}
		have = d.have
		if d.room != nil {
			took = d.room.age()
			d.room.done()
		}
	})
	r := p.current(d.want.subject)
	if err == nil && r != nil {
		r.setSize(d.want.digest, have)
	}
	if errors.Is(err, trust.ErrChecksum) || errors.Is(err, provider.ErrNotZip) {
		p.releases.drop(d.want.subject) // it may have been published anew
	}
	p.mu.Lock()
	ended := ctx.Err() != nil
	d.cancel(nil)
	d.cancel = nil
	if err != nil {
		p.forget(d)
		var busy *BusyError
		if !ended && !errors.As(err, &busy) {
			lasts := failureLasts
			if errors.Is(err, provider.ErrNotZip) {
				lasts = notZipLasts
			}
			p.fail(d.want.key(), err, lasts)
		}
	}
	p.mu.Unlock()
	p.leave(d, false)
	e := Event{Kind: Fetched, Provider: d.want.subject.provider, Version: d.want.subject.version, Platform: d.want.platform, Bytes: have, Took: took, Err: err}
	if r != nil {
		r.describe(&e)
	}
	e.From = from
	switch {
	case ended && err != nil:
		e.Err = context.Canceled // nobody wants it any more, or not now
		if err == errYielded {
			p.o.Log.InfoContext(ctx, "pulled through: a package made room for a client, and is fetched again later", "version", d.want.subject.String(), "platform", d.want.platform.String(), "from", from, "bytes", have)
		}
	case err != nil:
		p.o.Log.ErrorContext(ctx, "pulled through: a package cannot be had", "version", d.want.subject.String(), "platform", d.want.platform.String(), "from", from, "bytes", have, "err", err, "hint", hint.Of(err))
	default:
		p.o.Log.InfoContext(ctx, "pulled through: a package is here", "version", d.want.subject.String(), "platform", d.want.platform.String(), "from", from, "bytes", have)
	}
	p.o.Events(e)
}

// maxFailed bounds how many failures are remembered, of some 5 KiB each at most.
const maxFailed = 1024

// fail remembers a failure for as long as it lasts. It is called with mu held.
func (p *Puller) fail(key packageKey, err error, lasts time.Duration) {
	now := time.Now()
	maps.DeleteFunc(p.failed, func(_ packageKey, f failure) bool { return !f.holds(now) })
	if len(p.failed) >= maxFailed {
		clear(p.failed)
	}
	p.failed[key] = failFor(err, lasts)
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

// answered waits until the origin, or the registry, begins to send the package. Until
// then, a limit may be in the way.
func (d *download) answered(ctx context.Context) error {
	return d.wait(ctx, func() bool { return d.begun })
}

// size waits for the package's size in bytes.
func (d *download) size(ctx context.Context) (size int64, err error) {
	err = d.wait(ctx, func() bool { size = d.length; return size >= 0 })
	return size, err
}

// wellBegun is how much of a package is there before its push begins.
const wellBegun = 8 << 20

// wellUnderway waits until much of the package is there, or nothing comes any more.
func (d *download) wellUnderway(ctx context.Context) {
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
