package archives

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/ocibridge/ocibridge/internal/base/fill"
)

// reader reads an archive in use for one response. If the folder fails during a fetch,
// the reader continues with a stream from the registry.
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

// Read implements [io.Reader].
func (r *reader) Read(p []byte) (int, error) {
	if r.tail != nil {
		return r.tail.Read(p)
	}
	n, err := r.Reader.Read(p)
	var storage *fill.StorageError
	switch {
	case errors.As(err, &storage):
		r.cache.forget(r.s.blob.hex)
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

// Seek implements [io.Seeker]. It knows the archive's size even if the fetch has failed already, so that the response does
// not depend on whether the fetch fails before or after the response begins.
func (r *reader) Seek(offset int64, whence int) (int64, error) {
	if whence == io.SeekEnd {
		offset, whence = offset+r.s.blob.size, io.SeekStart
	}
	return r.Reader.Seek(offset, whence)
}

// fallBack makes the reader continue at its offset with a stream from the registry. The
// stream verifies the whole archive, so its hash needs all bytes before the offset.
// fallBack takes these bytes from the file, as far as the file has them.
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

// verify implements [content].
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

// Close implements [io.Closer].
func (r *reader) Close() error {
	if r.tail != nil {
		r.tail.Close()
	}
	if r.s.State().Verified {
		r.cache.use(r.s.blob.hex)
	}
	return r.Reader.Close()
}
