package archives

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/base/fill"
)

// stream reads an archive from the registry once, in order. It fails if the archive does not have
// exactly the announced size. If the connection breaks or stalls, the stream resumes at the same
// byte, because clients do not retry.
type stream struct {
	ctx     context.Context // the context of the request or the fetch that reads the stream
	archive Archive
	limits  Limits
	hash    hash.Hash // the hash of the bytes read so far
	offset  int64     // the offset of the next byte from the registry
	start   int64     // the offset of the next byte for the reader, if greater than offset
	resumes int
	conn    *connection // nil if none is open
}

func openStream(ctx context.Context, a Archive, l Limits) (*stream, error) {
	s := &stream{ctx: ctx, archive: a, limits: l, hash: sha256.New()}
	return s, s.open(l.Start)
}

func (s *stream) Read(p []byte) (int, error) {
	if skip := s.start - s.offset; skip > 0 {
		s.start = 0
		if _, err := io.CopyN(io.Discard, s, skip); err != nil {
			return 0, err
		}
	}
	for {
		size := s.archive.Package.Size
		if s.offset == size {
			return 0, s.end()
		}
		n, err := s.readOnce(p[:min(int64(len(p)), size-s.offset)])
		switch {
		case n > 0:
			s.hash.Write(p[:n])
			return n, nil
		case err == nil:
			continue
		case err == io.EOF:
			// The connection is intact: the registry has no more bytes.
			return 0, fmt.Errorf("%w: %d bytes instead of %d", ErrDigest, s.offset, size)
		}
		s.Close()
		if s.resumes++; s.resumes > s.limits.Resumes || s.ctx.Err() != nil {
			return 0, fmt.Errorf("after %d of %d bytes: %w", s.offset, size, err)
		}
	}
}

// readOnce reads the next bytes. If no connection is open, it opens one at the current offset.
func (s *stream) readOnce(p []byte) (int, error) {
	if s.conn == nil {
		if err := s.open(s.limits.RegistryStall); err != nil {
			return 0, err
		}
	}
	n, err := s.conn.Read(p)
	s.offset += int64(n)
	return n, err
}

// end returns [io.EOF], or an error if the registry sends more bytes than announced.
func (s *stream) end() error {
	var one [1]byte
	if n, _ := s.conn.Read(one[:]); n > 0 {
		return fmt.Errorf("%w: more than %d", ErrDigest, s.archive.Package.Size)
	}
	return io.EOF
}

// open requests the archive from the current offset on. It fails with ErrStalled if the registry
// does not respond in time.
func (s *stream) open(within time.Duration) error {
	ctx, cancel := context.WithCancel(s.ctx)
	c := &connection{cancel: cancel, limit: s.limits.RegistryStall}
	c.timer = time.AfterFunc(within, func() {
		c.stalled.Store(true)
		cancel()
	})
	body, start, err := s.archive.Blob.Open(ctx, s.archive.Package.Size, s.offset)
	if c.body = body; err == nil {
		_, err = io.CopyN(io.Discard, c, s.offset-start)
	}
	if err != nil {
		c.close()
		return c.explain(err)
	}
	c.timer.Stop() // the first read starts it again
	s.conn = c
	return nil
}

// Seek implements [io.Seeker] as far as http.ServeContent needs it: to the end to get the size, back
// to the start, and forward to a range. The next Read reads and hashes the bytes that Seek skips.
func (s *stream) Seek(offset int64, whence int) (int64, error) {
	switch {
	case whence == io.SeekEnd && offset == 0:
		return s.archive.Package.Size, nil
	case whence == io.SeekStart && offset >= s.offset:
		s.start = offset
		return offset, nil
	}
	return 0, errors.New("a stream is read in order")
}

// verify implements [content]. It reads the rest of the archive.
func (s *stream) verify() error {
	if _, err := io.Copy(io.Discard, s); err != nil {
		return err
	}
	return s.check()
}

// check compares the digest of the bytes that were read with the archive's digest.
func (s *stream) check() error {
	if got := digest.NewDigest(digest.SHA256, s.hash); got != s.archive.Package.Digest {
		return fmt.Errorf("%w: %s instead of %s", ErrDigest, got, s.archive.Package.Digest)
	}
	return nil
}

func (s *stream) Close() error {
	if s.conn != nil {
		s.conn.close()
		s.conn = nil
	}
	return nil
}

// connection reads the registry's response to one request for a blob. The request is cancelled if a
// read stalls. The time between reads does not count, because a slow client is not the registry's fault.
type connection struct {
	body    io.ReadCloser // nil if no response arrived
	limit   time.Duration
	timer   *time.Timer
	cancel  context.CancelFunc
	stalled atomic.Bool
}

func (c *connection) Read(p []byte) (int, error) {
	c.timer.Reset(c.limit)
	defer c.timer.Stop()
	n, err := c.body.Read(p)
	return n, c.explain(err)
}

// explain returns err or, if the request was cancelled because the registry stalled, an error that wraps
// ErrStalled and contains the text of err.
func (c *connection) explain(err error) error {
	if err != nil && err != io.EOF && c.stalled.Load() {
		return fmt.Errorf("%w: %v", ErrStalled, err)
	}
	return err
}

func (c *connection) close() {
	c.timer.Stop()
	if c.body != nil {
		c.body.Close()
	}
	c.cancel()
}

// reader reads an archive in use for one response. If the folder fails during a fetch, the reader
// continues with a stream from the registry.
type reader struct {
	*fill.Reader
	ctx     context.Context // the context of the client's request
	cache   *Cache
	s       *shared
	hit     bool // the request counts as a cache hit
	archive Archive
	limits  Limits
	tail    *stream // reads the rest from the registry; nil unless the folder has failed
}

func (r *reader) Read(p []byte) (int, error) {
	if r.tail != nil {
		return r.tail.Read(p)
	}
	n, err := r.Reader.Read(p)
	var storage *fill.StorageError
	switch {
	case errors.As(err, &storage):
		r.cache.update(r.s.blob.hex, func(k *known) { k.file = nil }) // hash it again before its next use
		r.s.Retire()
		return n, fmt.Errorf("read the cached archive: %w", err)
	case errors.Is(err, errBypass):
		if err := r.fallBack(); err != nil {
			return 0, err
		}
		return r.tail.Read(p)
	}
	return n, err
}

// Seek knows the archive's size even if the fetch has failed already, so that the response does not
// depend on whether the fetch fails before or after the response begins.
func (r *reader) Seek(offset int64, whence int) (int64, error) {
	if whence == io.SeekEnd {
		offset, whence = offset+r.s.blob.size, io.SeekStart
	}
	return r.Reader.Seek(offset, whence)
}

// fallBack makes the reader continue at its offset with a stream from the registry. The stream's hash
// needs all bytes before the offset. fallBack takes these bytes from the file, as far as the file has
// them.
func (r *reader) fallBack() error {
	offset, err := r.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	head := r.s.Content()
	head = io.NewSectionReader(head, 0, min(head.Size(), offset))
	tail := &stream{ctx: r.ctx, archive: r.archive, limits: r.limits, hash: sha256.New(), offset: head.Size()}
	if _, err := io.Copy(tail.hash, contextReader{r.ctx, head}); err != nil {
		return err
	}
	r.tail = tail // closed by Close
	_, err = io.CopyN(io.Discard, tail, offset-head.Size())
	return err
}

func (r *reader) verify() error {
	if r.tail == nil {
		err := r.s.Verified(r.ctx)
		if !errors.Is(err, errBypass) {
			return err
		}
		if err := r.fallBack(); err != nil {
			return err
		}
	}
	return r.tail.verify()
}

func (r *reader) Close() error {
	if r.tail != nil {
		r.tail.Close()
	}
	if r.s.State().Verified {
		r.cache.use(r.s.blob.hex)
	}
	return r.Reader.Close()
}
