package archives

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/telemetry"
)

// shared is an archive in use: by the answers that read it, and by the fetch that
// brings it while that runs. It has one open file however many they are.
type shared struct {
	blob   blob
	cancel context.CancelFunc // ends the fetch

	// Guarded by the cache's mu.
	users int         // answers, and the fetch
	idle  *time.Timer // runs while only the fetch is left

	mu      sync.Mutex // guards the following
	file    *os.File   // nil: it did not begin
	have    int64      // bytes that may be read
	done    bool       // all is there, and verified
	fetched bool       // it came from the registry
	err     error      // why nothing comes any more
	changed chan struct{}
}

// open returns an archive for one answer, which it may begin: it is in the folder,
// or what the registry sends begins to come. An error that wraps errBypass says
// that it is to be had past the cache alone.
func (c *Cache) open(ctx context.Context, a Archive, l Limits) (*reader, error) {
	s, joined, err := c.acquire(ctx, a, l)
	if err != nil {
		c.n.Bypasses.Add(1)
		return nil, err
	}
	there := joined && s.isDone() // what this one began may have come by now, and was not there
	if err := s.wait(ctx, func() bool { there = there || s.file != nil && !s.fetched; return s.file != nil }); err != nil {
		c.release(s)
		if errors.Is(err, errBypass) {
			c.n.Bypasses.Add(1)
		}
		return nil, err
	}
	switch {
	case there:
		c.n.Hits.Add(1)
	case joined:
		c.n.Joins.Add(1)
	default:
		c.n.Misses.Add(1)
	}
	return &reader{ctx: ctx, cache: c, s: s, kept: there, past: func(hold *shared) (*stream, error) {
		return openTail(ctx, hold, a.Store, a.Package.Layer(), l)
	}}, nil
}

// acquire returns the archive as it is shared, begun for a request if need be, and
// whether it was.
func (c *Cache) acquire(request context.Context, a Archive, l Limits) (s *shared, joined bool, err error) {
	b := a.blob()
	c.mu.Lock()
	s = c.shared[b]
	c.mu.Unlock()
	if s != nil && s.isDone() && !c.intact(s) {
		c.drop(s)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.shared[b]; s != nil && (s.idle == nil || s.idle.Stop()) {
		s.users++
		s.idle = nil
		return s, true, nil
	}
	if c.closed {
		return nil, false, errBypass
	}
	// The fetch is everybody's: it outlives the request that began it.
	ctx, cancel := context.WithCancel(telemetry.Follow(context.Background(), request))
	s = &shared{blob: b, cancel: cancel, users: 2, changed: make(chan struct{})}
	c.shared[b] = s
	c.running.Go(func() {
		defer cancel()
		defer c.release(s)
		c.fill(ctx, s, a.Store, a.Package.Layer(), l)
	})
	return s, false, nil
}

// release ends one use.
func (c *Cache) release(s *shared) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s.users--; {
	case s.users == 0:
		if s.idle != nil {
			s.idle.Stop()
		}
		if c.shared[s.blob] == s {
			delete(c.shared, s.blob)
		}
		if s.file != nil {
			s.file.Close()
		}
	case s.users == 1 && !s.isOver():
		// The fetch goes on for those who come back, but not for ever.
		s.idle = time.AfterFunc(abandonTime, s.cancel)
	}
}

// drop has whoever comes next begin anew.
func (c *Cache) drop(s *shared) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shared[s.blob] == s {
		delete(c.shared, s.blob)
	}
}

// intact reports whether the file in use is still what was verified.
func (c *Cache) intact(s *shared) bool {
	c.mu.Lock() // so that the file is not closed meanwhile
	if s.users == 0 {
		c.mu.Unlock()
		return true // it is gone from the table
	}
	info, err := s.file.Stat()
	c.mu.Unlock()
	return err == nil && c.isVerified(s.blob.hex, info)
}

// fill brings an archive from the folder or from the registry.
func (c *Cache) fill(ctx context.Context, s *shared, store artifact.Fetcher, desc ocispec.Descriptor, l Limits) {
	if f := c.load(ctx, s.blob); f != nil {
		s.complete(f)
		c.hashContent(ctx, f, s.blob)
		return
	}
	f, err := c.prepare(ctx, s.blob)
	if err == nil {
		err = c.fetch(ctx, s, f, store, desc, l)
	}
	if err != nil {
		c.drop(s)
		s.fail(err)
		return
	}
	c.hashContent(ctx, f, s.blob)
}

// prepare makes room and a file for a fetch. Its error wraps errBypass.
func (c *Cache) prepare(ctx context.Context, b blob) (*os.File, error) {
	c.mu.Lock()
	busy, trouble := c.fetches >= maxFetches, time.Since(c.trouble) < troubleFor
	if !busy && !trouble {
		c.fetches++
	}
	c.mu.Unlock()
	switch {
	case busy:
		return nil, fmt.Errorf("%w: %d fetches are under way", errBypass, maxFetches)
	case trouble:
		return nil, errBypass
	}
	err := c.reserve(b.size)
	var f *os.File
	if err == nil {
		if f, err = c.create(); err != nil {
			c.unreserve(b.size, 0)
		}
	}
	if err != nil {
		c.ended()
		return nil, c.bypass(ctx, err)
	}
	return f, nil
}

func (c *Cache) ended() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fetches--
}

// bypass logs why an archive is not kept, and returns an error that wraps
// errBypass. Where the folder is the reason it is left alone for a while.
func (c *Cache) bypass(ctx context.Context, err error) error {
	if errors.Is(err, errBypass) {
		c.log.InfoContext(ctx, "an archive is not kept", "err", err)
		return err
	}
	c.log.ErrorContext(ctx, "the cache cannot be written: archives are streamed past it", "for", troubleFor, "err", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trouble = time.Now()
	return fmt.Errorf("%w: %v", errBypass, err)
}

// fetch brings an archive from the registry into f, for all to read on the way,
// and gives it its place once it is verified. f is closed with s, or by fetch
// where s never came to have it.
func (c *Cache) fetch(ctx context.Context, s *shared, f *os.File, store artifact.Fetcher, desc ocispec.Descriptor, l Limits) (err error) {
	ctx, end := telemetry.Start(ctx, "archive fetch", slog.String("digest", desc.Digest.String()), slog.Int64("size", desc.Size))
	defer func() { end(err) }()
	stay := int64(0)
	defer func() {
		if stay == 0 {
			_ = os.Remove(f.Name())
		}
		c.unreserve(s.blob.size, stay)
		c.ended()
	}()
	in, err := openStream(ctx, store, desc, l)
	if err != nil {
		f.Close()
		return err
	}
	defer in.Close()
	s.begin(f)
	if err := c.copy(ctx, s, f, in); err != nil {
		return err
	}
	if info, err := f.Stat(); err == nil {
		c.learn(s.blob.hex, info)
	}
	s.finish()
	if err := c.commit(f, s.blob.hex); err != nil {
		_ = c.bypass(ctx, err) // those who read it have it all the same
		c.drop(s)
		return nil
	}
	stay = s.blob.size
	return nil
}

// copy copies and verifies a stream.
func (c *Cache) copy(ctx context.Context, s *shared, f *os.File, in *stream) error {
	buf := buffers.Get().(*[CopyBuffer]byte)
	defer buffers.Put(buf)
	for left := s.blob.size; left > 0; {
		n, err := in.Read(buf[:])
		if n > 0 {
			if _, err := c.write(f, buf[:n]); err != nil {
				return c.bypass(ctx, err)
			}
			left -= int64(n)
			s.advance(int64(n))
			runtime.Gosched() // who reads along goes first, however fast bytes come
		}
		if err != nil {
			return err
		}
	}
	return in.verify()
}

// begin says that f may be read as far as it comes.
func (s *shared) begin(f *os.File) { s.change(func() { s.file, s.fetched = f, true }) }

func (s *shared) advance(n int64) { s.change(func() { s.have += n }) }

func (s *shared) finish() { s.change(func() { s.done = true }) }

// complete says that f has the whole, verified.
func (s *shared) complete(f *os.File) {
	s.change(func() { s.file, s.have, s.done = f, s.blob.size, true })
}

func (s *shared) fail(err error) { s.change(func() { s.err = err }) }

func (s *shared) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// wait waits until a condition holds, which is asked with mu held, or nothing
// comes any more.
func (s *shared) wait(ctx context.Context, holds func() bool) error {
	for {
		s.mu.Lock()
		ok, err, changed := holds(), s.err, s.changed
		s.mu.Unlock()
		switch {
		case err != nil && !(ok && errors.Is(err, errBypass)):
			return err // what came before may be wrong, unless the folder is to blame
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

func (s *shared) isDone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}

// isOver reports whether no more comes.
func (s *shared) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done || s.err != nil
}

// usable reports whether the archive began to come, and nothing was wrong so far.
func (s *shared) usable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file != nil && s.err == nil
}
