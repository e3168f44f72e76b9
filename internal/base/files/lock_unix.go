//go:build !windows

package files

import (
	"os"
	"syscall"
)

// CreateNew creates a file that only this user can read. It fails if the file exists.
func CreateNew(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// Lock locks a file of [CreateNew] until the file is closed. It fails if the file is locked.
func Lock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// IsAbandoned reports whether no process has locked a file.
func IsAbandoned(name string) bool {
	f, err := os.OpenFile(name, os.O_RDWR, 0) // NFS locks only files that are open for writing
	if err != nil {
		return false
	}
	defer f.Close()
	return Lock(f) == nil
}
