// Package privatefolder creates folders that only their owner can use, and writes files into
// them. It also narrows existing folders and files that other users can use.
//
// It sets their modes. Windows has no modes: there, a folder inherits the access rules of its parent.
package privatefolder

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

const (
	folderMode = 0o700
	fileMode   = 0o600
	others     = 0o077 // the rights of all other users
)

var (
	errLink  = errors.New("it is a link, and other programs may use its target")
	errFixed = errors.New("its file system does not change modes")
)

// Make creates a folder of mode 0700 with any umask, and missing parents with the same mode.
//
// It narrows an existing folder to 0700 if other users can use it, and logs a warning. A nil log discards it.
// If the mode cannot be changed, Make succeeds, because the folder is as open as it was before; the warning
// then says what to do. Make never narrows the target of a symbolic link: other programs may use that folder,
// too.
func Make(path string, log *slog.Logger) error {
	if err := os.MkdirAll(path, folderMode); err != nil {
		return err
	}
	return warn("folder", path, folderMode, log)
}

// NarrowFile narrows an existing file to mode 0600 if other users can use it, with the
// same warnings and exceptions as [Make].
func NarrowFile(path string, log *slog.Logger) error {
	return warn("file", path, fileMode, log)
}

// warn narrows path to mode, and logs a warning if other users could use it.
func warn(kind, path string, mode fs.FileMode, log *slog.Logger) error {
	was, err := keepNarrow(path, mode)
	if was == "" {
		return err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if err != nil {
		log.Warn("other users of this machine may use a private folder or file, and its mode stays as it is",
			kind, path, "mode", was, "err", err, "hint", fmt.Sprintf("chmod %o %s, as the user that it belongs to", mode, path))
	} else {
		log.Warn("other users of this machine could use a private folder or file: only its owner can use it now", kind, path, "mode", was)
	}
	return nil
}

// keepNarrow narrows path to mode if other users can use it. It returns the mode that
// path had then, and "" if other users cannot use it.
func keepNarrow(path string, mode fs.FileMode) (was string, err error) {
	found, err := os.Stat(path)
	if err != nil || found.Mode().Perm()&others == 0 || runtime.GOOS == "windows" {
		return "", err
	}
	return fmt.Sprintf("%04o", found.Mode().Perm()), narrow(path, mode)
}

// narrow sets the mode of a folder or a file. It fails if path is a symbolic link.
func narrow(path string, mode fs.FileMode) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	opened, err := f.Stat()
	if err != nil {
		return err
	}
	// Chmod acts on the open file: if a link replaces path after this check, nothing else changes.
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

// MakeBelow makes or narrows the folder directly below a parent that a path leads through,
// as [Make] does. It does nothing if the path is the parent or is outside of it, or if
// there is no parent ("").
func MakeBelow(parent, path string, log *slog.Logger) error {
	if parent == "" {
		return nil
	}
	parent, err := filepath.Abs(parent)
	if err != nil {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	below, err := filepath.Rel(parent, path)
	if err != nil || below == "." || !filepath.IsLocal(below) {
		return nil
	}
	first, _, _ := strings.Cut(below, string(filepath.Separator))
	return Make(filepath.Join(parent, first), log)
}
