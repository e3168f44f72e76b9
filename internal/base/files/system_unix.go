//go:build !windows

package files

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func sameFileSystem(a, b os.FileInfo) bool {
	return a.Sys().(*syscall.Stat_t).Dev == b.Sys().(*syscall.Stat_t).Dev
}

func isOwn(_ string, info os.FileInfo) (bool, error) {
	// In a user namespace, root can have a number other than 0: the number of the owner of /.
	top, err := os.Stat("/")
	if err != nil {
		return false, err
	}
	return isOwner(ownerOf(info), os.Geteuid(), ownerOf(top)), nil
}

func ownerOf(info os.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

// isOwner reports whether the owner of a file is the given user, or root. The parameter root is the owner of /.
func isOwner(owner, user, root int) bool { return owner == user || owner == 0 || owner == root }

// Free returns how many bytes are free for this user on the disk of a folder.
func Free(folder string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

// CreateNew creates a file that only this user can read. It fails if the file exists.
func CreateNew(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// Lock locks a file of [CreateNew] until the file is closed. It fails if the file is already locked.
func Lock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// OpenLocked opens a file, creates it if it is missing, and locks it until it is closed. It fails with [ErrLocked] if
// another caller has locked the file.
func OpenLocked(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err = Lock(f); err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, ErrLocked
	}
	return nil, &os.PathError{Op: "lock", Path: name, Err: err}
}

// IsFull reports whether err means that a disk or the user's quota is full.
func IsFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// IsAbandoned reports whether no process has locked a file.
func IsAbandoned(name string) bool {
	f, err := os.OpenFile(name, os.O_RDWR, 0) // NFS locks only files that are open for writing
	if err != nil {
		return false
	}
	defer f.Close()
	return Lock(f) == nil
}
