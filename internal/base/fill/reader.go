package fill

import (
	"context"
	"errors"
	"io"
	"sync"
)

// Reader reads a [File] and waits for bytes that are not readable yet. The file stays open until the reader is closed. One
// goroutine at a time may read and seek; ReadAt and Close may be called at any time.
type Reader struct {
	ctx    context.Context // ends the waits; it is a field because Read takes no context
	file   *File
	offset int64
	close  sync.Once
}

// Open returns a reader. When ctx ends, the reader stops waiting for bytes. The result is false if the file has failed,
// was retired or is closed.
func (f *File) Open(ctx context.Context) (*Reader, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.retired {
		return nil, false
	}
	return f.openLocked(ctx), true
}

func (f *File) openLocked(ctx context.Context) *Reader {
	f.state.Users++
	f.stopTimer()
	return &Reader{ctx: ctx, file: f}
}

// Read implements [io.Reader]. It returns as soon as it can read at least one byte.
func (r *Reader) Read(p []byte) (int, error) {
	s, err := r.file.Wait(r.ctx, func(s State) bool { return s.Verified || s.readable() > r.offset })
	if err != nil {
		return 0, err
	}
	if r.offset >= s.readable() {
		return 0, io.EOF
	}
	n, err := r.file.storage.ReadAt(p[:min(int64(len(p)), s.readable()-r.offset)], r.offset)
	r.offset += int64(n)
	if n == 0 && err != nil {
		return 0, &StorageError{err}
	}
	return n, nil
}

// ReadAt implements [io.ReaderAt]. It waits until all of p can be read.
func (r *Reader) ReadAt(p []byte, offset int64) (int, error) {
	s, err := r.file.Wait(r.ctx, func(s State) bool { return s.Verified || s.readable() >= offset+int64(len(p)) })
	if err != nil {
		return 0, err
	}
	return io.NewSectionReader(r.file.storage, 0, s.readable()).ReadAt(p, offset)
}

// Seek implements [io.Seeker]. It waits for the file's size if whence is [io.SeekEnd].
func (r *Reader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.offset
	case io.SeekEnd:
		size, err := r.file.Size(r.ctx)
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

// Close implements [io.Closer]. Further calls do nothing.
func (r *Reader) Close() error {
	r.close.Do(r.file.leave)
	return nil
}
