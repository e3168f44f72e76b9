package pull

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

const (
	// maxListFile is the maximum size in bytes of a list on disk. A list of a thousand versions for twenty
	// platforms takes half a MiB.
	maxListFile = 4 << 20
	// maxListFolder is the maximum size in bytes of all lists on disk. It is necessary because clients
	// that control an origin can request any number of providers from that origin.
	maxListFolder = 256 << 20
)

// listFolder counts the bytes of the lists on disk. Lists are never removed to make room, because they
// hold the times when versions were first seen. Otherwise, a flood of requests could reset these times,
// and with them the cooldown.
type listFolder struct {
	max int64 // bytes

	mu    sync.Mutex // guards the following
	bytes int64
	full  bool // a list might not have been saved for lack of room
}

// errFull means that there is no room for a list in the folder of lists.
var errFull = errors.New("there is no room for it")

// count adds the sizes of the files in a folder, and limits the folder to max bytes. It ignores
// files that it cannot read.
func (f *listFolder) count(dir string, max int64) {
	if f.max = max; dir == "" {
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
	f.full = f.bytes > f.max-maxListFile // an earlier process might not have found room for a list
}

// replace reserves room for a file of size bytes that replaces the file at path. Its error wraps errFull.
func (f *listFolder) replace(path string, size int64) error {
	before := int64(0)
	if info, err := os.Stat(path); err == nil {
		before = info.Size()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	tooLarge, noRoom := size > maxListFile, f.bytes+size-before > f.max
	if size > before && (tooLarge || noRoom) {
		f.full = f.full || noRoom
		return hint.Wrap(fmt.Errorf("%d bytes of %d are taken, and this list has %d: %w", f.bytes, f.max, size, errFull),
			"let include in the pull_through block name fewer providers, and remove the folder origins beside the cache")
	}
	f.bytes += size - before
	return nil
}

// isFull reports whether a list might not have been saved for lack of room. If it returns true, even a
// provider without a saved list may have been requested before.
func (f *listFolder) isFull() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.full
}
