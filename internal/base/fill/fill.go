// Package fill provides a file that one writer fills while many readers read it.
//
// The writer begins a [File] with a [Storage], appends bytes, verifies the written bytes, and finishes the file. Readers
// wait for bytes that have not been written yet.
//
// Invariants:
//
//   - Readers do not get the last written byte before the writer has verified the content. A client that has received the
//     whole file can therefore rely on its content.
//   - If the writer fails, all readers fail with the writer's error, and no reader can open the file any more.
//   - The file closes its storage exactly once, after the writer and the last reader have left. If the content is verified,
//     the storage stays open for [Options.Linger] longer, so that another reader can open the file.
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

// errUnfinished means that the writer has not written or verified the whole file.
var errUnfinished = errors.New("the writer has not finished the file")

// TooLongError is the error of a write that would make the file longer than Limit bytes.
type TooLongError struct{ Limit int64 }

// Error implements error.
func (e *TooLongError) Error() string { return fmt.Sprintf("more than %d bytes", e.Limit) }

// StorageError is an error of the file's storage, and not of the writer's source.
type StorageError struct{ Err error }

// Error implements error.
func (e *StorageError) Error() string { return e.Err.Error() }

// Unwrap returns the storage's error.
func (e *StorageError) Unwrap() error { return e.Err }

// Storage holds the bytes of a [File]. ReadAt and Write must be safe to call concurrently.
type Storage interface {
	io.Writer
	io.ReaderAt
	io.Closer
}

// Options configure a [File].
type Options struct {
	// Cancel cancels the writer. If Cancel is nil, a writer without readers is not cancelled.
	Cancel func()
	// Abandon is how long the writer continues after the last reader has left.
	Abandon time.Duration
	// Linger is how long a verified file stays open for another reader after its last user has left.
	Linger time.Duration
	// Limit is the maximum length in bytes of a file whose size is unknown; 0 means no maximum.
	Limit int64
	// Closed is called once, after the last user has left and the storage is closed.
	Closed func()
}

// State is the state of a [File] at one moment.
type State struct {
	Begun    bool  // the writer has given the file its storage
	Written  int64 // in bytes; until Verified, readers get one byte less
	Size     int64 // in bytes; -1: unknown
	Verified bool
	Err      error // why the writer has failed
	Users    int   // the readers, plus one for the writer until it leaves
}

// readable returns how many bytes readers can get.
func (s State) readable() int64 {
	if s.Verified {
		return s.Written
	}
	return max(0, s.Written-1)
}

// finished reports whether the writer has verified the file, or has failed.
func (s State) finished() bool { return s.Verified || s.Err != nil }

// File is a file that one writer fills while many readers read it. Its methods are safe for concurrent use, but only the
// writer may call Begin, Load, Write, Fill, Finish and Close.
type File struct {
	o Options

	mu      sync.Mutex // guards the following
	storage Storage    // nil before Begin; never replaced
	state   State
	changed chan struct{} // closed when the state changes; nil: nobody waits
	retired bool          // no further reader can open the file
	closed  bool
	timer   *time.Timer // runs for Abandon or Linger; nil: not running
}

// New returns a file whose writer has not begun it yet.
func New(o Options) *File { return &File{o: o, state: State{Size: -1, Users: 1}} }

// State returns the state of the file.
func (f *File) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// Wait waits until condition is true for the file's state, and returns that state. It fails if the writer fails or ctx
// ends first.
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

// Size returns the size of the file in bytes, once the writer has announced it or verified the content.
func (f *File) Size(ctx context.Context) (int64, error) {
	s, err := f.Wait(ctx, func(s State) bool { return s.Size >= 0 })
	return s.Size, err
}

// Content returns the bytes that have been written so far, whether or not they are verified. The caller must be the
// writer, or must have an open reader.
func (f *File) Content() *io.SectionReader {
	f.mu.Lock()
	defer f.mu.Unlock()
	return io.NewSectionReader(f.storage, 0, f.state.Written)
}

// Retire prevents further readers from opening the file. The file closes as soon as its users have left.
func (f *File) Retire() {
	f.mu.Lock()
	defer f.unlock()
	f.retired = true
	if f.state.Users == 0 {
		f.end()
	}
}

// Keep lets the writer continue even if the file has no readers.
func (f *File) Keep() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.o.Cancel = nil
	f.stopTimer()
}

// leave ends the use of the file by the writer or by one reader.
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

// after calls the function do when the time d has passed, unless a reader opens the file earlier. The caller must hold
// mu. The function do is called with mu held.
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

// end closes the storage. It is called with mu held, when the file has no users.
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

// unlock releases mu. If the file is closed, it then calls Options.Closed, unless an earlier call has done so.
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
