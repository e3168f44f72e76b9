package files

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func clone(from *os.File, to string, mode os.FileMode) error {
	if err := unix.Fclonefileat(int(from.Fd()), unix.AT_FDCWD, to, 0); err != nil {
		return errors.ErrUnsupported
	}
	if err := os.Chmod(to, mode); err != nil {
		return errors.Join(errors.ErrUnsupported, os.Remove(to))
	}
	return nil
}
