package pull

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/fill"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

const (
	lingerTime = 10 * time.Second // how long a finished download is kept for later readers
	failureTTL = 5 * time.Second  // the pause before a failed download is retried
	// notZipTTL is the pause before another download of a package that is not a zip file, although its digest is right.
	// The pause is long because another download would return the same bytes.
	notZipTTL = 10 * time.Minute
	wellBegun = 8 << 20 // how many bytes of a package must be downloaded before its push begins
	maxFailed = 1024    // the maximum number of remembered failures, each of at most about 5 KiB of memory
)

// download writes a package to a temporary file, which clients and the push read meanwhile.
type download struct {
	*fill.File
	p      *Puller
	store  catalog.Store // the repository
	want   wanted
	at     *origin.Package // the location, if a push began the download; nil: fetch asks the origin
	cancel context.CancelCauseFunc
	urgent chan struct{} // closed once a client waits for the download
	hurry  func()        // closes urgent
	room   *reservation  // used by run, and then by closed

	clients atomic.Int32 // the number of clients among its readers; increased only with Puller.mu held
}

// reader reads a download for a client, or for a push.
type reader struct {
	*fill.Reader
	d     *download
	leave func() // stops counting the client; further calls do nothing
}

func (r *reader) Close() error {
	r.leave()
	return r.Reader.Close()
}

// openLocked opens a download for a client or for a push. It returns nil if the download has failed, was preempted, or its
// file is closed. It is called with Puller.mu held.
func (d *download) openLocked(ctx context.Context, client bool) *reader {
	file, ok := d.Open(ctx)
	if !ok {
		return nil
	}
	r := &reader{file, d, func() {}}
	if client {
		d.clients.Add(1)
		d.hurry()
		r.leave = sync.OnceFunc(func() { d.clients.Add(-1) })
	}
	return r
}

// underway opens the download of a package for a client, or returns nil if there is none.
func (p *Puller) underway(ctx context.Context, w wanted) *reader {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.downloads[w.key()]; d != nil {
		return d.openLocked(ctx, true)
	}
	return nil
}

// join opens the download of a package, and begins the download if there is none. If at is nil, the caller is a
// client, and join also queues the push of the version.
func (p *Puller) join(request context.Context, s catalog.Store, w wanted, at *origin.Package) (*reader, error) {
	client := at == nil
	p.mu.Lock()
	defer p.mu.Unlock()
	var r *reader
	if d := p.downloads[w.key()]; d != nil {
		r = d.openLocked(request, client)
	}
	if r == nil {
		if p.closed {
			return nil, outage(errClosed)
		}
		if f := p.failed[w.key()]; f.holds(time.Now()) {
			return nil, f.err
		}
		r = p.beginLocked(request, s, w, at)
	}
	if client {
		p.pushLocked(s, w, r.d)
	}
	return r, nil
}

// beginLocked begins a download, and opens it. It is called with mu held.
func (p *Puller) beginLocked(request context.Context, s catalog.Store, w wanted, at *origin.Package) *reader {
	ctx, cancel := context.WithCancelCause(telemetry.Follow(p.ctx, request))
	d := &download{p: p, store: s, want: w, at: at, cancel: cancel, urgent: make(chan struct{})}
	d.File = fill.New(fill.Options{Cancel: func() { cancel(nil) }, Linger: lingerTime, Limit: provider.MaxZipBytes, Closed: d.closed})
	d.hurry = sync.OnceFunc(func() {
		close(d.urgent)
		d.Keep() // a client that has left may come back
	})
	p.downloads[w.key()] = d
	r := d.openLocked(request, at == nil)
	p.tasks.Go(func() { d.run(ctx) })
	return r
}

// closed frees the room of a download, and removes the download from Puller.downloads. It is called once the
// download's file is closed.
func (d *download) closed() {
	if d.room != nil {
		d.room.drop()
	}
	d.p.mu.Lock()
	defer d.p.mu.Unlock()
	if d.p.downloads[d.want.key()] == d {
		delete(d.p.downloads, d.want.key())
	}
}

// errPreempted means that a download was cancelled in favour of a waiting client. A push retries it.
var errPreempted = hint.Wrap(fmt.Errorf("no client read the package, and another client waited for its slot: %w", &catalog.BusyError{Limit: "max_concurrent", RetryAfter: retrySlot}),
	"it is fetched again later; where this is frequent, raise max_concurrent in the pull_through block")

// preempt cancels a download in favour of a waiting client. It returns false if the download has ended, or if a
// client reads the download by now.
func (p *Puller) preempt(d *download) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := d.State(); d.clients.Load() > 0 || s.Verified || s.Err != nil {
		return false
	}
	d.Retire()
	d.cancel(errPreempted)
	return true
}

// run downloads the package and reports the result.
func (d *download) run(ctx context.Context) {
	defer d.cancel(nil)
	spanned, end := telemetry.Start(ctx, "origin package", slog.String("file", d.want.filename))
	var from string
	err := panics.Catch(ctx, d.p.o.Log, func() (err error) {
		from, err = d.fetch(spanned)
		return err
	})
	if cause := context.Cause(ctx); err != nil && cause == errPreempted {
		err = cause
	}
	err = brief(err)
	end(err)
	e := Event{Kind: Fetched, Subject: d.want.subject.provider, Version: d.want.subject.version, Platform: d.want.platform, Bytes: d.State().Written, Err: err}
	if d.room != nil {
		e.Took = d.room.age()
		d.room.done()
	}
	r := d.p.current(d.want.subject)
	if r != nil {
		if err == nil {
			r.setSize(d.want.digest, e.Bytes)
		}
		r.describe(&e)
	}
	e.From = from
	cancelled := err != nil && ctx.Err() != nil
	if cancelled {
		e.Err = context.Canceled
	} else if err != nil {
		d.p.noteFailure(d.want, err)
	}
	d.Finish(err)
	d.Close()
	d.log(ctx, e, err)
	d.p.o.Events(e)
}

// noteFailure remembers why a package could not be downloaded.
func (p *Puller) noteFailure(w wanted, err error) {
	if errors.Is(err, trust.ErrChecksum) || errors.Is(err, provider.ErrNotZip) {
		// The version may have been published again, so its release is removed from the cache. The failure is recorded first,
		// because a reader that no longer finds the release must find the failure.
		defer p.releases.Drop(func(s providerVersion) bool { return s == w.subject }, nil)
	}
	if errors.As(err, new(*catalog.BusyError)) {
		return
	}
	ttl := failureTTL
	if errors.Is(err, provider.ErrNotZip) {
		ttl = notZipTTL
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail(w.key(), err, ttl)
}

// fail remembers a failure for the given duration. It is called with mu held.
func (p *Puller) fail(key packageKey, err error, lasts time.Duration) {
	now := time.Now()
	maps.DeleteFunc(p.failed, func(_ packageKey, f failure) bool { return !f.holds(now) })
	if len(p.failed) >= maxFailed {
		clear(p.failed)
	}
	p.failed[key] = failure{flatten(err), now.Add(lasts)}
}

// log logs the result of a download, unless it was cancelled for lack of readers.
func (d *download) log(ctx context.Context, e Event, err error) {
	log := d.p.o.Log.With("version", d.want.subject.String(), "platform", d.want.platform.String(), "from", e.From, "bytes", e.Bytes)
	switch {
	case err == nil:
		log.InfoContext(ctx, "pulled through: a package is here")
	case err == errPreempted:
		log.InfoContext(ctx, "pulled through: a package made room for a client, and is fetched again later")
	case e.Err == err:
		log.ErrorContext(ctx, "pulled through: a package cannot be had", "err", err, "hint", hint.Of(err))
	}
}

// wellUnderway waits until wellBegun bytes of the package are downloaded, or until the download ends.
func (d *download) wellUnderway(ctx context.Context) {
	_, _ = d.Wait(ctx, func(s fill.State) bool { return s.Verified || s.Written >= wellBegun }) // the readers of the download get its error
}

// over waits until the download has ended, and returns its error. A push calls over for the downloads that it holds
// before it begins other downloads. If one of these has failed, the push stops, because it cannot complete the version.
// over returns nil if the download was preempted, because the download begins again.
func (d *download) over(ctx context.Context) error {
	err := d.Verified(ctx)
	if ctx.Err() == nil && errors.Is(err, errPreempted) {
		return nil
	}
	return err
}

// spoolPattern is the pattern for the file names of downloads. A file keeps its name only on systems that require one.
const spoolPattern = "ocibridge-pull-*.zip"

// sweepSpool creates the folder for downloads, and removes the files of processes that have ended. It removes no file
// that another process uses, because an open file either has no name or cannot be removed. It never changes the mode of
// the system's temporary folder.
func sweepSpool(o *Options) error {
	var err error
	if o.Spool == "" {
		o.Spool = os.TempDir()
		err = os.MkdirAll(o.Spool, 0o700)
	} else {
		err = privatefolder.Make(o.Spool, o.Log)
	}
	if err != nil {
		return hint.Wrap(fmt.Errorf("the folder for packages under way: %w", err), "it must be writable for the user that serve runs as")
	}
	sweepModules(o.Spool)
	if o.Limits.Free == nil {
		o.Limits.Free = func() (int64, error) { return files.Free(o.Spool) }
	}
	left, err := filepath.Glob(filepath.Join(o.Spool, spoolPattern))
	if err != nil {
		return err
	}
	for _, name := range left {
		if os.Remove(name) == nil && o.Log != nil {
			o.Log.Info("removed what a download left that did not end", "file", name)
		}
	}
	return nil
}

// spoolFile is the temporary file of a download. Its writes count against the room that the download has reserved.
type spoolFile struct {
	*fill.Temp
	room *reservation
}

func newSpoolFile(dir string, room *reservation) (*spoolFile, error) {
	f, err := fill.NewTemp(dir, spoolPattern)
	if err != nil {
		return nil, spoolError(err)
	}
	return &spoolFile{f, room}, nil
}

func (f *spoolFile) Write(p []byte) (int, error) {
	if err := f.room.write(int64(len(p))); err != nil {
		return 0, err
	}
	n, err := f.Temp.Write(p)
	if err != nil {
		err = spoolError(err)
	}
	return n, err
}

// spoolError explains an error of a download's file. If other programs have filled the disk meanwhile, it returns the same
// [catalog.BusyError] as if the disk had been full from the start.
func spoolError(err error) error {
	if files.IsFull(err) {
		return fmt.Errorf("%w: %w", busy("disk", retryRoom), err)
	}
	return hint.Wrap(fmt.Errorf("package under way: %w", err), "is the folder for packages under way writable, and its disk well?")
}
