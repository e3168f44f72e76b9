package pull

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/ocibridge/ocibridge/internal/hint"
)

const (
	// maxListFile bounds a list on disk: a thousand versions for twenty platforms have
	// half a MiB.
	maxListFile = 4 << 20
	// maxListFolder bounds all of them together: clients may ask for as many providers
	// as an origin of their choice makes up.
	maxListFolder = 256 << 20
)

// listFolder counts what the lists on disk take. They are not removed to make room:
// since when versions are known is in them, which a flood must not have forgotten.
type listFolder struct {
	max int64 // bytes

	mu    sync.Mutex // guards the following
	bytes int64
	full  bool // a list was not kept for lack of room
}

// errFull means that a list is not kept on disk.
var errFull = errors.New("there is no room for it")

// count begins with what is there. What cannot be read takes nothing.
func (f *listFolder) count(dir string) {
	if f.max = maxListFolder; dir == "" {
		return
	}
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil
		}
		if info, err := e.Info(); err == nil {
			f.bytes += info.Size()
		}
		return nil
	})
}

// replace takes room for a file of size bytes in place of what is at path.
func (f *listFolder) replace(path string, size int64) error {
	before := int64(0)
	if info, err := os.Stat(path); err == nil {
		before = info.Size()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if size > before && (size > maxListFile || f.bytes+size-before > f.max) {
		f.full = true
		return hint.Wrap(fmt.Errorf("%d bytes of %d are taken, and this list has %d: %w", f.bytes, f.max, size, errFull),
			"let include in the pull_through block name fewer providers, and remove the folder origins beside the cache")
	}
	f.bytes += size - before
	return nil
}

// isFull reports whether a provider of which nothing is kept may be known all the
// same.
func (f *listFolder) isFull() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.full
}
