// Package fill has a file that one writer fills while many readers read it.
//
// The writer begins a [File] with a [Storage], appends bytes, verifies what it has
// written, and finishes the file. Readers wait for bytes that have not come yet.
//
// Invariants:
//
//   - Readers never get the last byte that was written before the writer has verified
//     the content. A client that has received a whole file can rely on it.
//   - If the writer fails, all readers fail with its error, and no reader opens the
//     file any more.
//   - The file closes its storage once: after the writer and the last reader have
//     left, and after [Options.Linger] if the content is verified.
//   - A writer without readers is cancelled after [Options.Abandon].
package fill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// errUnfinished is the error of a file whose writer has left without a result.
var errUnfinished = errors.New("the writer has not finished the file")

// TooLongError is the error for a writer that writes more bytes than the file may have.
type TooLongError struct{ Limit int64 }

// Error implements error.
func (e *TooLongError) Error() string { return fmt.Sprintf("more than %d bytes", e.Limit) }

// StorageError is an error of the storage, as opposed to one of the writer's source.
type StorageError struct{ Err error }

// Error implements error.
func (e *StorageError) Error() string { return e.Err.Error() }

// Unwrap returns the storage's error.
func (e *StorageError) Unwrap() error { return e.Err }

// Storage holds the bytes of a [File]. ReadAt and Write may be called at once.
type Storage interface {
	io.Writer
	io.ReaderAt
	io.Closer
}

// Options configure a [File].
type Options struct {
	// Cancel ends the writer. nil: a writer without readers goes on.
	Cancel func()
	// Abandon is how long a writer goes on after its last reader has left.
	Abandon time.Duration
	// Linger is how long a verified file waits for another reader after the last one
	// has left.
	Linger time.Duration
	// Limit bounds the bytes of a file whose size is unknown; 0: no bound.
	Limit int64
	// Closed is called once, after the last user has left and the storage is closed.
	Closed func()
}

// State is the state of a [File] at one moment.
type State struct {
	Begun    bool  // the file has its storage
	Written  int64 // in bytes; readers get one less until Verified
	Size     int64 // in bytes; -1: unknown
	Verified bool
	Err      error // why the writer has failed
	Users    int   // the writer and the readers
}

// readable returns how many bytes readers may have.
func (s State) readable() int64 {
	if s.Verified {
		return s.Written
	}
	return max(0, s.Written-1)
}

// finished reports whether the writer has verified the file, or has failed.
func (s State) finished() bool { return s.Verified || s.Err != nil }

// File is a file that one writer fills while many readers read it. Its methods are
// safe for concurrent use, but Begin, Load, Write, Fill, Finish and Close belong to the
// writer.
type File struct {
	o Options

	mu      sync.Mutex // guards the following
	storage Storage    // nil before Begin; never replaced
	state   State
	changed chan struct{} // closed with the next change; nil: nobody waits
	retired bool
	closed  bool
	timer   *time.Timer // of Abandon or Linger; nil: none runs
}

// New returns a file that waits for its writer to begin it.
func New(o Options) *File { return &File{o: o, state: State{Size: -1, Users: 1}} }

// State returns the state of the file.
func (f *File) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// Wait waits until a condition on the state is true. It fails with the writer's error,
// or once ctx has ended.
func (f *File) Wait(ctx context.Context, condition func(State) bool) (State, error) {
	for {
		f.mu.Lock()
		state := f.state
		if state.Err != nil || condition(state) {
			f.mu.Unlock()
			return state, state.Err
		}
		if f.changed == nil {
			f.changed = make(chan struct{})
		}
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return state, ctx.Err()
		}
	}
}

// Begun waits until the writer has begun the file.
func (f *File) Begun(ctx context.Context) error {
	_, err := f.Wait(ctx, func(s State) bool { return s.Begun })
	return err
}

// Verified waits until the writer has verified the content.
func (f *File) Verified(ctx context.Context) error {
	_, err := f.Wait(ctx, func(s State) bool { return s.Verified })
	return err
}

// Size waits for the size of the file in bytes. The writer announces it at the
// beginning, or verifies the content.
func (f *File) Size(ctx context.Context) (int64, error) {
	s, err := f.Wait(ctx, func(s State) bool { return s.Size >= 0 })
	return s.Size, err
}

// Content returns the bytes that have been written so far, verified or not. The caller
// is the writer, or has an open reader.
func (f *File) Content() *io.SectionReader {
	f.mu.Lock()
	defer f.mu.Unlock()
	return io.NewSectionReader(f.storage, 0, f.state.Written)
}

// Retire lets no reader open the file any more. The file closes once its users have
// left.
func (f *File) Retire() {
	f.mu.Lock()
	defer f.unlock()
	f.retired = true
	if f.state.Users == 0 {
		f.end()
	}
}

// Keep lets the writer finish even if it has no readers.
func (f *File) Keep() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.o.Cancel = nil
	f.stopTimer()
}

// leave ends the use of the writer or of a reader.
func (f *File) leave() {
	f.mu.Lock()
	defer f.unlock()
	f.state.Users--
	switch {
	case f.state.Users == 0 && f.retired:
		f.end()
	case f.state.Users == 0:
		f.after(f.o.Linger, f.end)
	case f.state.Users == 1 && !f.state.finished() && f.o.Cancel != nil: // the writer is alone
		f.after(f.o.Abandon, f.abandon)
	}
}

// after calls do with mu held, unless a reader opens the file first. It is called with
// mu held.
func (f *File) after(d time.Duration, do func()) {
	if d <= 0 {
		do()
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		f.mu.Lock()
		defer f.unlock()
		if f.timer == timer {
			do()
		}
	})
	f.timer = timer
}

func (f *File) stopTimer() {
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
}

// abandon cancels the writer. It is called with mu held.
func (f *File) abandon() {
	f.retired = true
	f.o.Cancel()
}

// end closes the storage. It is called with mu held, and without users.
func (f *File) end() {
	if f.closed {
		return
	}
	f.stopTimer()
	f.retired, f.closed = true, true
	if f.storage != nil {
		_ = f.storage.Close()
	}
}

// unlock releases mu. It calls Options.Closed if the file was closed meanwhile.
func (f *File) unlock() {
	var report func()
	if f.closed {
		report, f.o.Closed = f.o.Closed, nil
	}
	f.mu.Unlock()
	if report != nil {
		report()
	}
}
