package archives

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync/atomic"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
)

// stream is an archive that is read from the registry, in order and once.
type stream struct {
	ctx  context.Context // of the request or the fetch that reads it
	t    *transfer
	hash hash.Hash // of the bytes that were read
}

func openStream(ctx context.Context, store artifact.Fetcher, desc ocispec.Descriptor, l Limits) (*stream, error) {
	t := &transfer{store: store, desc: desc, limits: l}
	if err := t.open(ctx, l.Start); err != nil {
		return nil, err
	}
	return &stream{ctx, t, sha256.New()}, nil
}

// Read implements [io.Reader].
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.t.read(s.ctx, p)
	s.hash.Write(p[:n])
	return n, err
}

// Seek implements [io.Seeker] as far as http.ServeContent needs it for a whole file: to
// the end, which gives the size, and back.
func (s *stream) Seek(offset int64, whence int) (int64, error) {
	switch {
	case whence == io.SeekEnd && offset == 0:
		return s.t.desc.Size, nil
	case whence == io.SeekStart && offset == s.t.offset:
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

// check compares the digest of the bytes that were read with the archive's.
func (s *stream) check() error {
	if sum := s.hash.Sum(nil); hex.EncodeToString(sum) != s.t.desc.Digest.Encoded() {
		return fmt.Errorf("%w: sha256:%x instead of %s", ErrDigest, sum, s.t.desc.Digest)
	}
	return nil
}

// Close implements [io.Closer].
func (s *stream) Close() error {
	s.t.close()
	return nil
}

// transfer reads a blob of exactly the announced size. If the connection to the registry
// breaks or stalls, it resumes there, unseen by its reader: clients do not retry.
type transfer struct {
	store   artifact.Fetcher
	desc    ocispec.Descriptor
	limits  Limits
	offset  int64
	resumes int
	conn    *connection // nil: none is open
}

// read reads on, as an [io.Reader] does.
func (t *transfer) read(ctx context.Context, p []byte) (int, error) {
	for {
		if t.offset == t.desc.Size {
			return 0, t.end()
		}
		n, err := t.readOnce(ctx, p)
		switch {
		case n > 0:
			return n, nil
		case err == nil:
			continue
		case err == io.EOF:
			// The connection is intact: the registry has no more bytes.
			return 0, fmt.Errorf("%w: %d bytes instead of %d", ErrDigest, t.offset, t.desc.Size)
		}
		t.close()
		if t.resumes++; t.resumes > t.limits.Resumes || ctx.Err() != nil {
			return 0, fmt.Errorf("after %d of %d bytes: %w", t.offset, t.desc.Size, err)
		}
	}
}

// readOnce reads on. It opens the blob at the current offset if no connection is open.
func (t *transfer) readOnce(ctx context.Context, p []byte) (int, error) {
	if t.conn == nil {
		if err := t.open(ctx, t.limits.RegistryStall); err != nil {
			return 0, err
		}
	}
	n, err := t.conn.Read(p[:min(int64(len(p)), t.desc.Size-t.offset)])
	t.offset += int64(n)
	return n, err
}

// end returns [io.EOF], or an error if the registry sends more bytes than announced.
func (t *transfer) end() error {
	var one [1]byte
	if n, _ := t.conn.Read(one[:]); n > 0 {
		return fmt.Errorf("%w: more than %d", ErrDigest, t.desc.Size)
	}
	return io.EOF
}

// open requests the blob from the current offset on.
func (t *transfer) open(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	c := &connection{cancel: cancel, limit: t.limits.RegistryStall}
	c.timer = time.AfterFunc(within, func() {
		c.stalled.Store(true)
		cancel()
	})
	var err error
	if c.body, err = t.store.Fetch(ctx, t.desc); err == nil {
		err = c.skip(t.offset)
	}
	if err != nil {
		c.close()
		return c.explain(err)
	}
	t.conn = c
	return nil
}

// close closes the open connection.
func (t *transfer) close() {
	if t.conn != nil {
		t.conn.close()
		t.conn = nil
	}
}

// connection is one response of the registry with a blob. It is cancelled if it stalls
// during a read. Time between reads does not count: a slow client is not the registry's
// fault.
type connection struct {
	body    io.ReadCloser // nil: no response came
	limit   time.Duration
	timer   *time.Timer
	cancel  context.CancelFunc
	stalled atomic.Bool
}

// Read implements [io.Reader].
func (c *connection) Read(p []byte) (int, error) {
	c.timer.Reset(c.limit)
	defer c.timer.Stop()
	n, err := c.body.Read(p)
	return n, c.explain(err)
}

// skip moves to an offset: by a range request if the registry supports them, else by
// reading the bytes before it.
func (c *connection) skip(offset int64) error {
	if offset == 0 {
		return nil
	}
	if seeker, ok := c.body.(io.Seeker); ok {
		c.timer.Reset(c.limit)
		_, err := seeker.Seek(offset, io.SeekStart)
		c.timer.Stop()
		if err == nil {
			return nil
		}
		// Some registries announce ranges and refuse them. The body is still at its start.
	}
	_, err := io.CopyN(io.Discard, c, offset)
	return err
}

// explain names the stall if it is the reason why a request was cancelled.
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
