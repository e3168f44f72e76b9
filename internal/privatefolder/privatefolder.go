// Package privatefolder makes folders that only their owner can use. It narrows
// existing folders that other users can use, too.
//
// It does so by the folder's mode. Windows has no modes: there, a folder inherits the
// access rules of its parent.
package privatefolder

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
)

const (
	mode   = 0o700
	others = 0o077 // the rights of all other users
)

var (
	errLink  = errors.New("it is a link to a folder that other programs may use")
	errFixed = errors.New("its file system does not change modes")
)

// Make makes a folder of mode 0700 with any umask, and parents of the same mode where
// they are missing.
//
// It narrows an existing folder to 0700 if other users can use it, and logs a warning.
// A nil log discards it. If the mode cannot be changed, Make succeeds, because the
// folder is as open as it was before; the warning then says what to do. Make never
// narrows the target of a symbolic link: other programs may use that folder, too.
func Make(path string, log *slog.Logger) error {
	if err := os.MkdirAll(path, mode); err != nil {
		return err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	found, err := os.Stat(path)
	if err != nil || found.Mode().Perm()&others == 0 || runtime.GOOS == "windows" {
		return err
	}
	was := fmt.Sprintf("%04o", found.Mode().Perm())
	if err := narrow(path); err != nil {
		log.Warn("other users of this machine may use a private folder, and its mode stays as it is",
			"folder", path, "mode", was, "err", err, "hint", "chmod 700 "+path+", as the user that it belongs to")
		return nil
	}
	log.Warn("other users of this machine could use a private folder: its mode is 0700 now", "folder", path, "mode", was)
	return nil
}

// narrow sets the mode of a folder to 0700. It fails if path is a symbolic link.
func narrow(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	opened, err := f.Stat()
	if err != nil {
		return err
	}
	// Chmod acts on the open folder: if a link replaces it after this check, no other
	// folder changes.
	if found, err := os.Lstat(path); err != nil || !os.SameFile(found, opened) {
		return errors.Join(errLink, err)
	}
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if after, err := f.Stat(); err != nil || after.Mode().Perm()&others != 0 {
		return errors.Join(errFixed, err)
	}
	return nil
}
