package files

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Snapshot reads files and folders, and records a digest of each result, including errors. It can later report which of
// the files and folders have changed. The zero value is an empty snapshot. A nil Snapshot reads files but records
// nothing.
type Snapshot struct {
	mu   sync.Mutex
	sums map[string][sha256.Size]byte // by file name; a folder's name ends in a slash
}

// ReadFile reads a file as [Read] does.
func (s *Snapshot) ReadFile(name string) ([]byte, error) {
	b, err := Read(name)
	s.note(name, sumOf(b, err))
	return b, err
}

// ReadGiven reads a file as [ReadGiven] does. It does not record pipes and devices, because these cannot be read twice.
func (s *Snapshot) ReadGiven(ctx context.Context, name string) ([]byte, error) {
	b, err := ReadGiven(ctx, name)
	if info, serr := os.Stat(name); serr != nil || info.Mode().IsRegular() || info.IsDir() || isNull(name, info) {
		s.note(name, sumOf(b, err))
	}
	return b, err
}

// ReadDir reads a folder as [os.ReadDir] does.
func (s *Snapshot) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(name)
	s.note(name+"/", sumOfDir(entries, err))
	return entries, err
}

// Add adds the records of another snapshot.
func (s *Snapshot) Add(other *Snapshot) {
	for name, sum := range other.sums {
		s.note(name, sum)
	}
}

func (s *Snapshot) note(name string, sum [sha256.Size]byte) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sums == nil {
		s.sums = map[string][sha256.Size]byte{}
	}
	s.sums[name] = sum
}

// Changed reads all recorded files and folders again. It returns the sorted names of those that have changed, and a digest
// of the changes. The name of a folder ends in a slash.
func (s *Snapshot) Changed() (names []string, digest [sha256.Size]byte) {
	s.mu.Lock()
	before := maps.Clone(s.sums)
	s.mu.Unlock()
	all := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		var now [sha256.Size]byte
		if dir, ok := strings.CutSuffix(name, "/"); ok {
			now = sumOfDir(os.ReadDir(dir)) // without the slash, because the sum of an error contains the name
		} else {
			now = sumOf(Read(name))
		}
		if now != before[name] {
			names = append(names, name)
			fmt.Fprintf(all, "%q %x", name, now)
		}
	}
	all.Sum(digest[:0])
	return names, digest
}

func sumOf(b []byte, err error) [sha256.Size]byte {
	if err != nil {
		b = []byte(err.Error())
	}
	return sha256.Sum256(fmt.Appendf(nil, "%t %s", err == nil, b))
}

func sumOfDir(entries []fs.DirEntry, err error) [sha256.Size]byte {
	var names []byte
	for _, e := range entries {
		names = fmt.Appendf(names, "%q", e.Name())
	}
	return sumOf(names, err)
}

// Interval is the minimum time between two checks of the same files.
const Interval = time.Second

// Watched is a value that is compiled from files, and compiled again when the files change. It keeps the last valid value
// while the files are invalid: users replace a certificate and its key one after the other.
type Watched[T any] struct {
	names   []string
	compile func(contents [][]byte) (T, error)
	log     *slog.Logger

	current atomic.Pointer[T]

	mu     sync.Mutex // held by the goroutine that checks the files; other goroutines do not wait for it
	looked time.Time
	seen   *Snapshot // the last contents of the files; nil before the first read
}

// Watch reads the files, and compiles the first value from their contents.
func Watch[T any](log *slog.Logger, compile func(contents [][]byte) (T, error), names ...string) (*Watched[T], error) {
	w := &Watched[T]{names: names, compile: compile, log: log}
	return w, w.look()
}

// Get returns the current value. It first checks whether the files have changed, unless the last check was less than
// [Interval] ago, or another goroutine is checking them.
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

// look reads the files, and compiles the value. After an error, the current value stays.
func (w *Watched[T]) look() error {
	w.looked, w.seen = time.Now(), &Snapshot{}
	var contents [][]byte
	var failed error
	for _, name := range w.names {
		b, err := w.seen.ReadFile(name)
		failed = cmp.Or(failed, err)
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
