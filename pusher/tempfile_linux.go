package pusher

import (
	"os"

	"golang.org/x/sys/unix"
)

// namelessFile opens a file in dir that has no name, so that nothing is left of it
// even if the process is killed. Nil where the file system has none such.
func namelessFile(dir string) *os.File {
	fd, err := unix.Open(dir, unix.O_RDWR|unix.O_TMPFILE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), "temporary file")
}
