package files

import (
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Interval is the minimum time between two checks of the same files.
const Interval = time.Second

// Watched is a value that is compiled from files, and compiled again when the files change. Watched keeps the last
// valid value while the files are invalid. Files may be invalid for a short time, because users replace a certificate
// and its key one after the other.
type Watched[T any] struct {
	names   []string
	compile func(contents [][]byte) (T, error)
	log     *slog.Logger

	current atomic.Pointer[T]

	mu     sync.Mutex // held by the goroutine that checks the files; other goroutines do not wait for it
	looked time.Time
	seen   *Snapshot // the last contents of the files; nil before the first read
}

// Watch reads the files and compiles the first value from their contents. It returns an
// error if a file cannot be read or the value cannot be compiled.
func Watch[T any](log *slog.Logger, compile func(contents [][]byte) (T, error), names ...string) (*Watched[T], error) {
	w := &Watched[T]{names: names, compile: compile, log: log}
	return w, w.look()
}

// Get returns the current value. It first checks whether the files have changed. It skips the check if the last check
// was less than [Interval] ago, or if another goroutine is checking the files.
func (w *Watched[T]) Get() T {
	if w.mu.TryLock() {
		defer w.mu.Unlock()
		if time.Since(w.looked) >= Interval {
			w.follow()
		}
	}
	return *w.current.Load()
}

// follow compiles the value again if the files have changed. It logs the change, and logs
// an error if the new contents are invalid.
func (w *Watched[T]) follow() {
	w.looked = time.Now()
	if changed, _ := w.seen.Changed(); len(changed) == 0 {
		return
	}
	files := strings.Join(w.names, ", ")
	if err := w.look(); err != nil {
		w.log.Error("files have changed and cannot be used; what they held before stays in force", "files", files, "err", err)
		return
	}
	w.log.Info("files have changed and are in force", "files", files)
}

// look reads the files, compiles the value and stores it as the current value. It keeps the
// current value if there is an error.
func (w *Watched[T]) look() error {
	w.looked, w.seen = time.Now(), &Snapshot{}
	var contents [][]byte
	var failed error
	for _, name := range w.names {
		b, err := w.seen.ReadFile(name)
		if err != nil && failed == nil {
			failed = err
		}
		contents = append(contents, b)
	}
	if failed != nil {
		return failed
	}
	made, err := w.compile(contents)
	if err == nil {
		w.current.Store(&made)
	}
	return err
}
