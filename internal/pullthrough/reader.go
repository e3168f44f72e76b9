package pullthrough

import (
	"context"
	"errors"
	"io"
	"sync"
)

// reader reads a package from its start, as far as it has come and then with it. To
// read on from what has come needs no other copy of it.
type reader struct {
	ctx    context.Context
	d      *download
	client bool // it reads for a client, and not for a push
	offset int64
	closed sync.Once
}

// reader returns one that leaves the download when it is closed.
func (d *download) reader(ctx context.Context, client bool) *reader {
	return &reader{ctx: ctx, d: d, client: client}
}

// readable returns how many bytes readers may have: of a package that is not verified
// yet, never all, since a client that has all of them believes that they are right. It
// is called with mu held.
func (d *download) readable() int64 {
	if !d.done && d.have == d.length {
		return d.have - 1
	}
	return d.have
}

// Read implements [io.Reader].
func (r *reader) Read(p []byte) (int, error) {
	var have int64
	var done bool
	if err := r.d.wait(r.ctx, func() bool { have, done = r.d.readable(), r.d.done; return done || have > r.offset }); err != nil {
		return 0, err
	}
	if have <= r.offset {
		return 0, io.EOF
	}
	n, err := r.d.file.ReadAt(p[:min(int64(len(p)), have-r.offset)], r.offset)
	r.offset += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

// ReadAt implements [io.ReaderAt]. It waits for what has not come.
func (r *reader) ReadAt(p []byte, off int64) (int, error) {
	var have int64
	if err := r.d.wait(r.ctx, func() bool { have = r.d.readable(); return r.d.done || have >= off+int64(len(p)) }); err != nil {
		return 0, err
	}
	return r.d.file.ReadAt(p, off)
}

// Seek implements [io.Seeker].
func (r *reader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.offset
	case io.SeekEnd:
		size, err := r.d.size(r.ctx)
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

// Close implements [io.Closer].
func (r *reader) Close() error {
	r.closed.Do(func() { r.d.p.leave(r.d, r.client) })
	return nil
}
