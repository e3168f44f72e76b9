package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Above returns the folders above dir, nearest first, as paths with "..". Like git's search for a
// repository, it ends at the root of the Git repository that contains dir, where another file system
// begins, or below a folder that this user may not search. It returns nil if dir is such a root.
func Above(dir string) []string {
	var out []string
	at, err := os.Stat(dir)
	for err == nil && ends(dir) == nil {
		dir = filepath.Join(dir, "..")
		var above os.FileInfo
		if above, err = os.Stat(dir); err != nil || os.SameFile(at, above) || !sameFileSystem(at, above) || errors.Is(ends(dir), fs.ErrPermission) {
			break
		}
		out = append(out, dir)
		at = above
	}
	return out
}

// errRepository means that a folder is the root of a Git repository.
var errRepository = errors.New("the root of a repository")

// ends returns an error if a search ends in dir. In a submodule or a work tree, .git is a file.
func ends(dir string) error {
	_, err := os.Lstat(filepath.Join(dir, ".git"))
	switch {
	case err == nil:
		return errRepository
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

// IsOwn reports whether a file belongs to this user or to the system's administrator. If the file
// is a link, its target must, too. The errors are those of [os.Stat].
func IsOwn(name string) (bool, error) {
	for _, stat := range []func(string) (os.FileInfo, error){os.Lstat, os.Stat} {
		info, err := stat(name)
		if err != nil {
			return false, err
		}
		if own, err := isOwn(name, info); !own {
			return false, err
		}
	}
	return true, nil
}
