//go:build !windows

package pull

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Free returns how many bytes are free for this user on the disk of a folder.
func Free(folder string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

// isFull reports whether err means that a disk or the user's quota is full.
func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
