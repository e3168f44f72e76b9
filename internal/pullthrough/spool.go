package pullthrough

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/privatefolder"
)

// spoolPattern names the files of packages under way.
const spoolPattern = "ocibridge-pull-*.zip"

// sweepSpool makes the folder for packages under way, and removes what a process
// that ended has left there. What another one has open is without a name, or cannot
// be removed. It never narrows the system's temporary folder.
func sweepSpool(o *Options) error {
	var err error
	if o.Spool == "" {
		o.Spool = os.TempDir()
		err = os.MkdirAll(o.Spool, 0o700)
	} else {
		err = privatefolder.Make(o.Spool, o.Log)
	}
	if err != nil {
		return hint.Wrap(fmt.Errorf("the folder for packages under way: %w", err), "it must be writable for the user that serve runs as")
	}
	if o.Limits.Free == nil {
		o.Limits.Free = func() (int64, error) { return Free(o.Spool) }
	}
	left, err := filepath.Glob(filepath.Join(o.Spool, spoolPattern))
	if err != nil {
		return err
	}
	for _, name := range left {
		if os.Remove(name) == nil && o.Log != nil {
			o.Log.Info("removed what a download left that did not end", "file", name)
		}
	}
	return nil
}

// spoolFile is a file that is gone once it is closed.
type spoolFile struct{ *os.File }

func newSpoolFile(dir string) (spoolFile, error) {
	f, err := os.CreateTemp(dir, spoolPattern)
	if err != nil {
		return spoolFile{}, spoolError(err)
	}
	os.Remove(f.Name()) // at once, where the system lets an open file be removed
	return spoolFile{f}, nil
}

// Close closes and removes it.
func (f spoolFile) Close() error {
	err := f.File.Close()
	os.Remove(f.Name())
	return err
}

// spoolError is what it means that a package under way cannot be written. A disk that
// others have filled meanwhile is a limit like what was free before.
func spoolError(err error) error {
	if isFull(err) {
		return fmt.Errorf("%w: %w", busy("disk", retryRoom), err)
	}
	return hint.Wrap(fmt.Errorf("package under way: %w", err), "is the folder for packages under way writable, and its disk well?")
}
