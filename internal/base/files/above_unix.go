//go:build !windows

package files

import (
	"os"
	"syscall"
)

func sameFileSystem(a, b os.FileInfo) bool {
	return a.Sys().(*syscall.Stat_t).Dev == b.Sys().(*syscall.Stat_t).Dev
}

func isOwn(_ string, info os.FileInfo) (bool, error) {
	// In a user namespace, root can have another number than 0: that of the owner of /.
	top, err := os.Stat("/")
	if err != nil {
		return false, err
	}
	return isOwner(ownerOf(info), os.Geteuid(), ownerOf(top)), nil
}

func ownerOf(info os.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

// isOwner reports whether a file of owner is own for user, where / belongs to root.
func isOwner(owner, user, root int) bool { return owner == user || owner == 0 || owner == root }
