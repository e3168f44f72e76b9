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

// stream is an archive that one answer reads from the registry, from its start to
// its end.
type stream struct {
	ctx  context.Context // of the request that is answered
	t    *transfer
	hash hash.Hash // of what was read
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

// Seek implements [io.Seeker] as far as http.ServeContent needs it for the whole:
// to the end, for the size, and back.
func (s *stream) Seek(offset int64, whence int) (int64, error) {
	switch {
	case whence == io.SeekEnd && offset == 0:
		return s.t.desc.Size, nil
	case whence == io.SeekStart && offset == s.t.offset:
		return offset, nil
	}
	return 0, errors.New("a stream is read in order")
}

// verify implements [content]. It reads what is left.
func (s *stream) verify() error {
	buf := buffers.Get().(*[CopyBuffer]byte)
	defer buffers.Put(buf)
	for {
		_, err := s.Read(buf[:])
		if err == io.EOF {
			return checkSum(s.hash, s.t.desc)
		}
		if err != nil {
			return err
		}
	}
}

// Close implements [io.Closer].
func (s *stream) Close() error {
	s.t.close()
	return nil
}

// checkSum compares what was hashed with a descriptor.
func checkSum(h hash.Hash, desc ocispec.Descriptor) error {
	if sum := h.Sum(nil); hex.EncodeToString(sum) != desc.Digest.Encoded() {
		return fmt.Errorf("%w: sha256:%x instead of %s", ErrDigest, sum, desc.Digest)
	}
	return nil
}

// transfer reads a blob of exactly the size announced. Where the connection to
// the registry breaks or stalls it goes on from there, unseen by whoever reads:
// clients do not try again.
type transfer struct {
	store   artifact.Fetcher
	desc    ocispec.Descriptor
	limits  Limits
	offset  int64
	resumes int
	conn    *connection // nil: none is open
}

// read reads on as an [io.Reader] does.
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
			// The registry ended it in good order: it has no more.
			return 0, fmt.Errorf("%w: %d bytes instead of %d", ErrDigest, t.offset, t.desc.Size)
		}
		t.close()
		if t.resumes++; t.resumes > t.limits.Resumes || ctx.Err() != nil {
			return 0, fmt.Errorf("after %d of %d bytes: %w", t.offset, t.desc.Size, err)
		}
	}
}

// readOnce reads on, opening the blob at the current offset if it is not open.
func (t *transfer) readOnce(ctx context.Context, p []byte) (int, error) {
	if t.conn == nil {
		if err := t.open(ctx, t.limits.RegistryStall); err != nil {
			return 0, err
		}
	}
	if left := t.desc.Size - t.offset; int64(len(p)) > left {
		p = p[:left]
	}
	n, err := t.conn.Read(p)
	t.offset += int64(n)
	return n, err
}

// end reports the end of the blob, or that there is more of it than announced.
func (t *transfer) end() error {
	var one [1]byte
	if n, _ := t.conn.Read(one[:]); n > 0 {
		return fmt.Errorf("%w: more than %d", ErrDigest, t.desc.Size)
	}
	return io.EOF
}

// open asks the registry for the blob from the current offset on.
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

// close ends what is open.
func (t *transfer) close() {
	if t.conn != nil {
		t.conn.close()
		t.conn = nil
	}
}

// connection is one answer of the registry with a blob. It is cancelled when it
// stalls, which it can only while something is read from it: a client that takes
// its time is no fault of the registry.
type connection struct {
	body    io.ReadCloser // nil: it never came
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

// skip goes to an offset: by a request for a range if the registry takes them,
// else by reading what comes before it.
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
		// Some announce ranges and refuse them. The body is still at its start.
	}
	_, err := io.CopyN(io.Discard, c, offset)
	return err
}

// explain names the stall where that is why a request was cancelled.
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
