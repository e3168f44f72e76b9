package main

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// watchInterval is how often files are looked at, at most.
const watchInterval = time.Second

// watched is what is made of some files, made anew when they change. While what
// they hold cannot be used, the last that could stays: a certificate and its key
// are never replaced at one stroke.
type watched[T any] struct {
	files   []string
	compile func(contents [][]byte) (T, error)
	log     *slog.Logger

	current atomic.Pointer[T]

	mu     sync.Mutex // of who looks; nobody waits for that
	looked time.Time
	seen   [sha256.Size]byte // sum of what was seen last, trouble included
}

// watch reads files and makes something of what they hold.
func watch[T any](log *slog.Logger, compile func(contents [][]byte) (T, error), files ...string) (*watched[T], error) {
	w := &watched[T]{files: files, compile: compile, log: log}
	return w, w.look()
}

// get returns what was made of the files as they are now, or were a moment ago.
func (w *watched[T]) get() T {
	if w.mu.TryLock() {
		if time.Since(w.looked) >= watchInterval {
			if err := w.look(); err != nil {
				w.log.Error("files have changed and cannot be used; what they held before stays in force", "files", strings.Join(w.files, ", "), "err", err)
			}
		}
		w.mu.Unlock()
	}
	return *w.current.Load()
}

// look makes use of the files if they are not as they were when it last looked.
func (w *watched[T]) look() error {
	var contents [][]byte
	var failed error
	sum := sha256.New()
	for _, file := range w.files {
		b, err := readBounded(file)
		if err != nil {
			failed, b = cmp.Or(failed, err), []byte(err.Error())
		}
		fmt.Fprintf(sum, "%t %d %s", err == nil, len(b), b)
		contents = append(contents, b)
	}
	seen := [sha256.Size]byte(sum.Sum(nil))
	first := w.looked.IsZero()
	w.looked = time.Now()
	if seen == w.seen {
		return nil
	}
	w.seen = seen
	if failed != nil {
		return failed
	}
	made, err := w.compile(contents)
	if err != nil {
		return err
	}
	w.current.Store(&made)
	if !first {
		w.log.Info("files have changed and are in force", "files", strings.Join(w.files, ", "))
	}
	return nil
}
