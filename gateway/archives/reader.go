package archives

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
)

// reader reads a shared archive for one answer, as far as it has come and then
// with it. Where the cache cannot be written to any more, it reads on from the
// registry.
type reader struct {
	ctx    context.Context // of the request that is answered
	cache  *Cache
	s      *shared
	offset int64
	kept   bool // it was in the folder
	past   func(*shared) (*stream, error)
	tail   *stream // what is read past the cache; nil: nothing
}

// Seek implements [io.Seeker].
func (r *reader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.offset
	case io.SeekEnd:
		offset += r.s.blob.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the start")
	}
	r.offset = offset
	return offset, nil
}

// Read implements [io.Reader].
func (r *reader) Read(p []byte) (int, error) {
	if r.offset >= r.s.blob.size {
		return 0, io.EOF
	}
	n, err := r.readShared(p)
	if errors.Is(err, errBypass) {
		if err = r.goPast(); err == nil {
			n, err = r.tail.Read(p)
		}
	}
	r.offset += int64(n)
	return n, err
}

func (r *reader) readShared(p []byte) (int, error) {
	have := int64(0)
	err := r.s.wait(r.ctx, func() bool { have = r.s.have; return have > r.offset })
	if err != nil {
		return 0, err
	}
	n, err := r.s.file.ReadAt(p[:min(int64(len(p)), have-r.offset)], r.offset)
	if n == 0 && err != nil {
		r.cache.forget(r.s.blob.hex)
		r.cache.drop(r.s)
		return 0, fmt.Errorf("read the cached archive: %w", err)
	}
	return n, nil
}

// goPast brings the tail to where the answer is.
func (r *reader) goPast() error {
	if r.tail == nil {
		tail, err := r.past(r.s)
		if err != nil {
			return err
		}
		r.tail = tail
	}
	_, err := io.CopyN(io.Discard, r.tail, r.offset-r.tail.t.offset)
	return err
}

// verify implements [content].
func (r *reader) verify() error {
	err := r.s.wait(r.ctx, func() bool { return r.s.done })
	if !errors.Is(err, errBypass) {
		return err
	}
	if err := r.goPast(); err != nil {
		return err
	}
	return r.tail.verify()
}

// Close implements [io.Closer].
func (r *reader) Close() error {
	if r.tail != nil {
		r.tail.Close()
	}
	if r.s.isDone() {
		r.cache.use(r.s.blob.hex)
	}
	r.cache.release(r.s)
	return nil
}

// openTail returns the rest of an archive whose fetch could not be kept, as a
// stream that has read what was kept.
func openTail(ctx context.Context, s *shared, store artifact.Fetcher, desc ocispec.Descriptor, l Limits) (*stream, error) {
	tail := &stream{ctx, &transfer{store: store, desc: desc, limits: l, offset: s.have}, sha256.New()}
	if _, err := io.Copy(tail.hash, contextReader{ctx, io.NewSectionReader(s.file, 0, s.have)}); err != nil {
		return nil, err
	}
	return tail, nil
}
