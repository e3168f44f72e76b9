package pull

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/fill"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
)

// spoolPattern is the pattern for the file names of downloads. A file keeps its name only on
// systems that require one.
const spoolPattern = "ocibridge-pull-*.zip"

// sweepSpool creates the folder for downloads, and removes the files of processes that have
// ended. It does not remove files that another process uses, because an open file either has
// no name or cannot be removed. It never changes the mode of the system's temporary folder.
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
		o.Limits.Free = func() (int64, error) { return files.Free(o.Spool) }
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

// spoolFile is the temporary file of a download. Its writes count against the room that
// the download has reserved.
type spoolFile struct {
	*fill.Temp
	room *reservation
}

func newSpoolFile(dir string, room *reservation) (*spoolFile, error) {
	f, err := fill.NewTemp(dir, spoolPattern)
	if err != nil {
		return nil, spoolError(err)
	}
	return &spoolFile{f, room}, nil
}

// Write implements [io.Writer].
func (f *spoolFile) Write(p []byte) (int, error) {
	if err := f.room.write(int64(len(p))); err != nil {
		return 0, err
	}
	n, err := f.Temp.Write(p)
	if err != nil {
		err = spoolError(err)
	}
	return n, err
}

// spoolError explains an error of a download's file. If other programs have filled the disk
// meanwhile, it returns the same [catalog.BusyError] as if the disk had been full from the
// start.
func spoolError(err error) error {
	if isFull(err) {
		return fmt.Errorf("%w: %w", busy("disk", retryRoom), err)
	}
	return hint.Wrap(fmt.Errorf("package under way: %w", err), "is the folder for packages under way writable, and its disk well?")
}
