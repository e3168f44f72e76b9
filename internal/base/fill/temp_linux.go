package fill

import (
	"os"

	"golang.org/x/sys/unix"
)

// namelessFile opens a file in dir that never has a name, so that no file is left if the process is killed. It returns
// nil if the file system does not support such files.
func namelessFile(dir string) *os.File {
	fd, err := unix.Open(dir, unix.O_RDWR|unix.O_TMPFILE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), "temporary file")
}
