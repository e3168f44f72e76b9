//go:build !windows

package files

import "golang.org/x/sys/unix"

// Free returns how many bytes are free for this user on the disk of a folder.
func Free(folder string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}
