package archives

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/ocibridge/ocibridge/internal/base/files"
)

// maxDefaultSize is the maximum of [DefaultSize].
const maxDefaultSize = 10 << 30

// DefaultSize returns the default size limit of a cache in a folder, in bytes. It is 10 GiB, or a
// tenth of the bytes that are free or that the cache holds, whichever is less. The folder may be
// missing.
func DefaultSize(dir string) (int64, error) {
	var held int64
	err := filepath.WalkDir(filepath.Join(dir, "archives"), func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil // another process may have removed the file
		}
		if info, err := e.Info(); err == nil {
			held += info.Size()
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return defaultSize(dir, held)
}

func defaultSize(dir string, held int64) (int64, error) {
	free, err := files.Free(dir)
	for errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir {
		dir = filepath.Dir(dir)
		free, err = files.Free(dir)
	}
	return sizeFor(free, held), err
}

// sizeFor returns the default size limit of a cache that holds the given number of bytes, on a
// disk with the given number of free bytes.
func sizeFor(free, held int64) int64 { return min(maxDefaultSize, (free+held)/10) }
