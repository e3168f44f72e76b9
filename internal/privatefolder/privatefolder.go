// Package privatefolder creates folders that only their owner can use, and writes files into
// them. It also narrows the modes of existing folders and files that other users can use.
//
// Windows has no modes: there, a folder inherits the access rules of its parent.
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
	others     = 0o077 // the permission bits of all other users
)

var (
	errLink  = errors.New("it is a link, and other programs may use its target")
	errFixed = errors.New("its file system does not change modes")
)

// Make creates a folder, and its missing parents, with mode 0700, whatever the umask is.
//
// If other users can use an existing folder, Make narrows its mode to 0700 and logs a warning, unless log is
// nil. If the mode cannot be changed, Make succeeds, because the folder is as open as it was before. The warning
// then says what to do. Make never narrows the target of a symbolic link, because other programs could use that
// folder, too.
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

// warn narrows path to mode if other users can use it, and then logs a warning.
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

// keepNarrow narrows path to mode if other users can use it, and returns its previous mode.
// It returns "" if other users cannot use it.
func keepNarrow(path string, mode fs.FileMode) (was string, err error) {
	found, err := os.Stat(path)
	if err != nil || found.Mode().Perm()&others == 0 || runtime.GOOS == "windows" {
		return "", err
	}
	return fmt.Sprintf("%04o", found.Mode().Perm()), narrow(path, mode)
}

// narrow sets the mode of a folder or a file. It returns an error if path is a symbolic link.
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

// MakeBelow creates or narrows, like [Make], one folder: the child of parent that is path or
// contains it. It does nothing if path is parent, if path is outside parent, or if parent is
// "".
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
