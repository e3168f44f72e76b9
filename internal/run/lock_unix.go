//go:build !windows

package run

import (
	"os"
	"syscall"
)

// newFile creates a file, and fails if it exists.
func newFile(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// lock locks a file until the file is closed.
func lock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// isAbandoned reports whether no process has locked a file.
func isAbandoned(name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	return lock(f) == nil
}
