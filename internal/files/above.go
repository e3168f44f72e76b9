package files

import (
	"os"
	"path/filepath"
)

// Above returns the folders above dir, nearest first, as paths with "..". Like git's search for a
// repository, it ends at the root of the Git repository that contains dir, or where another file
// system begins. It returns nil if dir is such a root.
func Above(dir string) []string {
	var out []string
	at, err := os.Stat(dir)
	for err == nil && !hasRepository(dir) {
		dir = filepath.Join(dir, "..")
		var above os.FileInfo
		if above, err = os.Stat(dir); err != nil || os.SameFile(at, above) || !sameFileSystem(at, above) {
			break
		}
		out = append(out, dir)
		at = above
	}
	return out
}

// hasRepository reports whether dir is the root of a Git repository. In a submodule or a work tree,
// .git is a file.
func hasRepository(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, ".git"))
	return err == nil
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
