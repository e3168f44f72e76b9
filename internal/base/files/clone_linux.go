package files

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func clone(from *os.File, to string, mode os.FileMode) error {
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	err = unix.IoctlFileClone(int(f.Fd()), int(from.Fd()))
	if cerr := f.Close(); err == nil {
		return cerr
	}
	// Each file system has an error of its own for this.
	return errors.Join(errors.ErrUnsupported, os.Remove(to))
}
