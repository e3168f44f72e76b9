//go:build !windows

package run

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// checkFolder returns an error unless a folder belongs to the user with the given ID, and no
// other user may write to it or replace it. Another user's file would configure the client,
// and dev_overrides in it would run that user's program.
func checkFolder(folder string, user int) error {
	found, err := os.Lstat(folder)
	if err != nil {
		return err
	}
	above, err := os.Stat(filepath.Dir(folder))
	if err != nil {
		return err
	}
	switch {
	case !found.IsDir():
		return fmt.Errorf("%s is not a folder", folder)
	case ownerOf(found) != user:
		return fmt.Errorf("%s belongs to another user", folder)
	case isShared(found) || isShared(above) && above.Mode()&fs.ModeSticky == 0 || ownerOf(above) != user && ownerOf(above) != 0:
		return fmt.Errorf("other users may replace %s", folder)
	}
	return nil
}

// isShared reports whether users other than the owner may write to a folder.
func isShared(folder fs.FileInfo) bool { return folder.Mode().Perm()&0o022 != 0 }

// ownerOf returns the ID of the user whom a file belongs to.
func ownerOf(file fs.FileInfo) int { return int(file.Sys().(*syscall.Stat_t).Uid) }
