// Package privatefolder creates folders that only their owner can use, and writes files into them. If other users can use
// an existing folder or file, the package changes its mode. It refuses a folder that another user could replace. It also
// locks files against other processes. On Windows, there are no modes: a folder inherits the access rules of its parent.
package privatefolder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/files"
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

// Make creates a folder and its missing parents with mode 0700. The umask has no influence.
//
// If other users can use an existing folder, Make narrows its mode to 0700 and logs a warning, unless log is nil. If
// Make cannot change the mode, it logs a warning with a hint, but returns no error. Make never narrows the target of a
// symbolic link, because other programs may use that folder.
//
// Make fails if another user may still write to the folder or replace it, see [Check].
func Make(path string, log *slog.Logger) error { return ForUser().Make(path, log) }

// MakeAsIs is like [Make], but does not change the mode of an existing folder. It is for folders that users name.
func MakeAsIs(path string) error { return ForUser().MakeAsIs(path) }

// Checker checks folders for one user.
type Checker struct{ process }

// ForUser returns the Checker for this user.
func ForUser() Checker { return Checker{thisProcess()} }

// ForOwner returns the Checker for this user or, if this user is root and path is a folder of another user, the Checker
// for that other user, so that an administrator can examine the data of a service. Callers must not use that Checker to
// write files, or to serve or run what is in the folder.
func ForOwner(path string) Checker { return Checker{thisProcess().forOwner(path)} }

// Make is like the function [Make].
func (c Checker) Make(path string, log *slog.Logger) error {
	if err := c.checkAbove(path); err != nil {
		return err
	}
	if err := os.MkdirAll(path, folderMode); err != nil {
		return err
	}
	if err := warn("folder", path, folderMode, log); err != nil {
		return err
	}
	return c.Check(path)
}

// MakeAsIs is like the function [MakeAsIs].
func (c Checker) MakeAsIs(path string) error {
	if err := c.Check(path); err != nil {
		return err
	}
	if err := os.MkdirAll(path, folderMode); err != nil {
		return err
	}
	return c.Check(path)
}

// Check is like the function [Check].
func (c Checker) Check(path string) error { return c.check(path, false) }

// Check returns an error with a hint if a user other than this one and root may write to a folder, or may replace that
// folder or a folder that leads to it. It follows links, and checks the folders that lead to their targets, too. It
// does not check what is missing. Access control lists are not read.
//
// A folder that leads to another one may be open to all users if it is sticky, such as /tmp. Every folder may be open to a
// group in which no other user is known to be:
//   - for a folder of root, a group of this process. Kubernetes opens volumes to fsGroup.
//   - for a folder of this user, the user's private group, which has the number or the name of the user. Systems with
//     such groups often have a umask of 002.
//
// If no other user exists, all folders pass: an emptyDir of Kubernetes is open to all users. On Windows, folders in a
// user's profile belong to the user alone, and pass.
func Check(path string) error { return ForUser().Check(path) }

// NarrowFile changes the mode of an existing file to 0600 if other users can use the file. It logs the same warnings as
// [Make], and never narrows the target of a symbolic link.
func NarrowFile(path string, log *slog.Logger) error { return warn("file", path, fileMode, log) }

// warn changes the mode of path if other users can use path. It logs a warning whether the change succeeds or not.
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

// keepNarrow changes the mode of path if other users can use path, and returns the old mode in octal, or else "".
func keepNarrow(path string, mode fs.FileMode) (was string, err error) {
	found, err := os.Stat(path)
	if err != nil || found.Mode().Perm()&others == 0 || runtime.GOOS == "windows" {
		return "", err
	}
	return fmt.Sprintf("%04o", found.Mode().Perm()), narrow(path, mode)
}

// narrow sets the mode of a folder or a file, but not through a symbolic link.
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
	// Chmod changes the open file. So it follows no link, even if another program replaces path with a link after this
	// check.
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

// MakeBelow calls [Make] for one folder: the direct child of parent that contains path or is path itself. It does nothing
// if path is not below parent, or if parent is "".
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

// Temporary is the prefix of the names of temporary files that [Write] creates. A killed process may leave one behind.
const Temporary = ".tmp-"

// Write creates or replaces a file atomically, and its folder if that is missing. Only the owner can read the file.
func Write(name string, data []byte) error {
	folder := filepath.Dir(name)
	if err := os.MkdirAll(folder, folderMode); err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, Temporary)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// Trim removes the files of a folder that were modified longest ago, if it has more than limit files. It keeps
// three quarters of limit. It ignores errors, because the folder is a cache.
func Trim(folder string, limit int) {
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) <= limit {
		return
	}
	used := map[string]time.Time{}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			used[e.Name()] = info.ModTime()
		}
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return used[a.Name()].Compare(used[b.Name()]) })
	for _, e := range entries[:len(entries)-limit*3/4] {
		_ = os.Remove(filepath.Join(folder, e.Name()))
	}
}

// ErrLocked means that another process holds a lock for too long.
var ErrLocked = files.ErrLocked

// lockInterval is the time between two attempts to lock a file.
const lockInterval = 5 * time.Millisecond

// Lock opens a file and locks it against all other callers, in this process and in others. It creates the file if it is
// missing. It fails with [ErrLocked] if the file stays locked for the given time. The lock ends when the caller closes the
// file. Nobody may remove the file, because two processes could then lock different files of the same name.
func Lock(name string, within time.Duration) (*os.File, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	f, err := LockUntil(ctx, name)
	if errors.Is(err, ErrLocked) {
		return nil, fmt.Errorf("%s: %w for %s", name, ErrLocked, within)
	}
	return f, err
}

// LockUntil is like [Lock], but waits until ctx ends, and tries at least once. The error wraps [ErrLocked] and ctx's cause.
func LockUntil(ctx context.Context, name string) (*os.File, error) {
	for {
		f, err := files.OpenLocked(name)
		if !errors.Is(err, ErrLocked) {
			return f, err
		}
		select {
		case <-time.After(lockInterval):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrLocked, context.Cause(ctx))
		}
	}
}
