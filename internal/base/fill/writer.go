package fill

import (
	"io"
	"sync"
)

// Buffer is the size in bytes of the buffer that [File.Fill] copies with.
const Buffer = 64 << 10

var buffers = sync.Pool{New: func() any { return new([Buffer]byte) }}

// Begin sets the storage of the file, and announces the file's size in bytes. A size of -1 means that it is unknown.
// The file closes the storage.
func (f *File) Begin(storage Storage, size int64) {
	f.change(func() {
		f.storage = storage
		f.state.Begun, f.state.Size = true, size
	})
}

// Load begins and finishes the file with a storage that holds verified content of size bytes.
func (f *File) Load(storage Storage, size int64) {
	f.change(func() {
		f.storage = storage
		f.state.Begun, f.state.Written, f.state.Size, f.state.Verified = true, size, size, true
	})
}

// Write appends to the file. It writes nothing and returns a [*TooLongError] if the file would exceed its announced size
// or [Options.Limit]. Any other error is a [*StorageError].
func (f *File) Write(p []byte) (int, error) {
	s := f.State()
	limit := s.Size
	if limit < 0 {
		limit = f.o.Limit
	}
	if (s.Size >= 0 || limit > 0) && s.Written+int64(len(p)) > limit {
		return 0, &TooLongError{limit}
	}
	if n, err := f.storage.Write(p); err != nil {
		return n, &StorageError{err}
	}
	f.change(func() { f.state.Written += int64(len(p)) })
	return len(p), nil
}

// Fill appends all bytes of a source. It fails with a [*TooLongError], a [*StorageError], [io.ErrUnexpectedEOF] if the
// source has fewer bytes than announced, or an error of the source.
func (f *File) Fill(source io.Reader) error {
	buf := buffers.Get().(*[Buffer]byte)
	defer buffers.Put(buf)
	// The wrapper hides the source's WriteTo method, which would use a buffer of its own.
	_, err := io.CopyBuffer(f, struct{ io.Reader }{source}, buf[:])
	if s := f.State(); err == nil && s.Written < s.Size {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Finish declares the content verified if err is nil, and else fails the file. Only the first call has an effect.
func (f *File) Finish(err error) {
	f.change(func() {
		switch {
		case f.state.finished():
			return
		case err == nil && (!f.state.Begun || f.state.Written < f.state.Size):
			err = errUnfinished
		}
		f.stopTimer()
		f.state.Verified, f.state.Err, f.retired = err == nil, err, f.retired || err != nil
		if err == nil {
			f.state.Size = f.state.Written
		}
	})
}

// Close ends the writer's use of the file. It fails a file that is not finished.
func (f *File) Close() {
	f.Finish(errUnfinished)
	f.leave()
}

// change changes the state and wakes all waiters.
func (f *File) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}
