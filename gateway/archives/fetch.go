package archives

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/fill"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
)

// shared is an archive in use. All responses with it read the same open file, even while a fetch
// is still writing to it.
type shared struct {
	*fill.File
	blob    blob
	cancel  context.CancelFunc // cancels the fetch
	fetched atomic.Bool        // the archive comes from the registry, not from the folder
	file    *os.File           // set before File.Begin or File.Load
	filled  chan struct{}      // closed when the archive has its final name, or when that has failed
}

// open opens an archive in the folder or in the registry. It returns a reader as soon as the first
// bytes are available. If the error wraps errBypass, the caller must read from the registry
// instead.
func (c *Cache) open(ctx context.Context, a Archive, l Limits) (_ *reader, err error) {
	defer func() {
		if errors.Is(err, errBypass) {
			c.n.Bypasses.Add(1)
		}
	}()
	s, file, joined := c.acquire(ctx, a, l)
	if s == nil {
		return nil, errBypass
	}
	hit := joined && s.State().Verified // read before the wait: an archive that is verified during the wait is not a hit
	if err := s.Begun(ctx); err != nil {
		file.Close()
		return nil, err
	}
	hit = hit || !s.fetched.Load()
	switch {
	case hit:
		c.n.Hits.Add(1)
	case joined:
		c.n.Joins.Add(1)
	default:
		c.n.Misses.Add(1)
	}
	return &reader{Reader: file, ctx: ctx, cache: c, s: s, hit: hit, archive: a, limits: l}, nil
}

// acquire opens an archive that is already in use (joined), or starts to load or fetch it. If the file
// in use has changed since it was verified, acquire loads or fetches the archive again. It returns nil
// if the cache is closed.
func (c *Cache) acquire(request context.Context, a Archive, l Limits) (_ *shared, _ *fill.Reader, joined bool) {
	for {
		s, file, joined := c.joinOrBegin(request, a, l)
		if !joined || !s.State().Verified || c.isUnchanged(s) {
			return s, file, joined
		}
		s.Retire()
		file.Close()
	}
}

func (c *Cache) joinOrBegin(request context.Context, a Archive, l Limits) (_ *shared, _ *fill.Reader, joined bool) {
	b := a.blob()
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.shared[b]; s != nil {
		if file, ok := s.Open(request); ok {
			return s, file, true
		}
	}
	if c.closed {
		return nil, nil, false
	}
	// All clients share the fetch, so it may continue after the request that starts it.
	ctx, cancel := context.WithCancel(telemetry.Follow(context.Background(), request))
	s := &shared{blob: b, cancel: cancel, filled: make(chan struct{})}
	s.File = fill.New(fill.Options{Cancel: cancel, Abandon: abandonAfter, Closed: func() { c.remove(s) }})
	c.shared[b] = s
	file, _ := s.Open(request)
	c.running.Go(func() {
		defer cancel()
		defer s.Close()
		defer close(s.filled)
		s.Finish(panics.Catch(ctx, c.log, func() error { return c.fill(ctx, s, a, l) }))
	})
	return s, file, false
}

// remove removes an archive that is no longer in use from c.shared.
func (c *Cache) remove(s *shared) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shared[s.blob] == s {
		delete(c.shared, s.blob)
	}
}

// isUnchanged reports whether the file of an archive is unchanged since it was verified.
func (c *Cache) isUnchanged(s *shared) bool {
	info, err := s.file.Stat()
	return err == nil && c.isVerified(s.blob.hex, info)
}

// fill loads an archive from the folder, or fetches it from the registry. Clients can read the archive before fill returns.
func (c *Cache) fill(ctx context.Context, s *shared, a Archive, l Limits) error {
	if s.file = c.load(ctx, s.blob); s.file != nil {
		s.Load(s.file, s.blob.size)
	} else if err := c.fetch(ctx, s, a, l); err != nil {
		return err
	}
	c.hashContent(ctx, s.file, s.blob)
	return nil
}

// fetch fetches an archive from the registry, verifies it, and stores it in the folder. Clients can
// read it meanwhile.
func (c *Cache) fetch(ctx context.Context, s *shared, a Archive, l Limits) (err error) {
	end, err := c.prepare(ctx, s)
	if err != nil {
		return err
	}
	defer end()
	ctx, ended := telemetry.Start(ctx, "archive fetch", slog.String("digest", a.Package.Digest.String()), slog.Int64("size", a.Package.Size))
	defer func() { ended(err) }()
	in, err := openStream(ctx, a, l)
	if err != nil {
		s.file.Close()
		return err
	}
	defer in.Close()
	s.fetched.Store(true)
	s.Begin(c.storage(s.file), s.blob.size)
	if err := c.copy(ctx, s, in); err != nil {
		return err
	}
	if info, err := s.file.Stat(); err == nil {
		c.setVerified(s.blob.hex, info)
	}
	s.Finish(nil)
	if err := c.commit(s.file, s.blob.hex); err != nil {
		_ = c.bypass(ctx, err) // readers have the file open, and can continue
		s.Retire()
	}
	return nil
}

// copy copies and verifies a stream.
func (c *Cache) copy(ctx context.Context, s *shared, in *stream) error {
	err := s.Fill(in)
	var storage *fill.StorageError
	switch {
	case errors.As(err, &storage):
		return c.bypass(ctx, storage.Err)
	case err != nil:
		return err
	}
	return in.check()
}

// prepare makes room for a fetch, and creates its temporary file. The caller must call end after
// the fetch. end removes the file, unless [Cache.commit] has renamed it. Every error wraps
// errBypass.
func (c *Cache) prepare(ctx context.Context, s *shared) (end func(), err error) {
	select {
	case c.fetches <- struct{}{}:
	default:
		return nil, fmt.Errorf("%w: %d fetches are under way", errBypass, maxFetches)
	}
	if s.file, err = c.reserve(s.blob.size); err != nil {
		<-c.fetches
		return nil, c.bypass(ctx, err)
	}
	return func() {
		c.room.Lock() // so that a count sees both the file and its bytes, or neither
		if os.Remove(s.file.Name()) == nil {
			c.bytes.Add(-s.blob.size)
		}
		c.room.Unlock()
		<-c.fetches
	}, nil
}

// errPaused means that the cache writes nothing because the folder has failed recently.
var errPaused = fmt.Errorf("%w: its folder has failed", errBypass)

// isPaused reports whether the folder has failed within [pauseAfterFailure].
func (c *Cache) isPaused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.failed) < pauseAfterFailure
}

// bypass logs why an archive is not cached, and returns an error that wraps errBypass. If the folder
// has failed, the cache writes nothing to it for [pauseAfterFailure].
func (c *Cache) bypass(ctx context.Context, err error) error {
	switch {
	case err == errPaused:
		return err // the failure is in the log already
	case errors.Is(err, errBypass):
		c.log.InfoContext(ctx, "an archive is not kept", "err", err)
		return err
	case errors.Is(err, privatefolder.ErrLocked): // no failure of the folder
		c.log.InfoContext(ctx, "an archive is not kept, because another process holds the cache's lock", "err", err)
		return fmt.Errorf("%w: %v", errBypass, err)
	}
	c.log.ErrorContext(ctx, "the cache cannot be written: archives are streamed past it", "for", pauseAfterFailure, "err", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = time.Now()
	return fmt.Errorf("%w: %v", errBypass, err)
}
