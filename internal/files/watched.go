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

// Watched is a value that is compiled from files, and is compiled again when the files change. While the files are
// invalid, Watched keeps the last valid value, because users replace a certificate and its key one after the other.
type Watched[T any] struct {
	names   []string
	compile func(contents [][]byte) (T, error)
	log     *slog.Logger

	current atomic.Pointer[T]

	mu     sync.Mutex // held by the goroutine that checks the files; others use the current value
	looked time.Time
	seen   *Snapshot // the last contents of the files; nil before the first read
}

// Watch reads files and compiles a value from their contents.
func Watch[T any](log *slog.Logger, compile func(contents [][]byte) (T, error), names ...string) (*Watched[T], error) {
	w := &Watched[T]{names: names, compile: compile, log: log}
	return w, w.look()
}

// Get returns the value. It first checks the files, unless they were checked less than [Interval] ago or are being
// checked.
func (w *Watched[T]) Get() T {
	if w.mu.TryLock() {
		defer w.mu.Unlock()
		if time.Since(w.looked) >= Interval {
			w.follow()
		}
	}
	return *w.current.Load()
}

// follow compiles the value again if the files have changed.
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

// look reads the files and compiles the value.
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
