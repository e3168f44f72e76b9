package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Paths is the name of an operating system, as in runtime.GOOS. Its methods handle the paths of that system.
type Paths string

func (p Paths) separators() string {
	if p == "windows" {
		return `\/`
	}
	return "/"
}

// Join joins path elements. It removes separators at the end of all elements but the last, and modifies elem.
func (p Paths) Join(elem ...string) string {
	for i := range elem[:len(elem)-1] {
		elem[i] = strings.TrimRight(elem[i], p.separators())
	}
	return strings.Join(elem, p.separators()[:1])
}

// IsAbs reports whether a path is absolute.
func (p Paths) IsAbs(path string) bool {
	if p == "windows" && len(path) > 2 && path[1] == ':' {
		path = path[2:]
	}
	return path != "" && strings.ContainsRune(p.separators(), rune(path[0]))
}

// RelativeTo resolves a path relative to the folder of a file. It returns an absolute or empty path unchanged.
func (p Paths) RelativeTo(file, path string) string {
	if path == "" || p.IsAbs(path) {
		return path
	}
	return file[:strings.LastIndexAny(file, p.separators())+1] + path
}

// Cause returns the error that the [fs.PathError] in err wraps, without the operation and the path, or else err.
func Cause(err error) error {
	if perr, ok := errors.AsType[*fs.PathError](err); ok {
		return perr.Err
	}
	return err
}

// Above returns the folders above dir, nearest first, as paths with "..". Like git's search for a repository, the list
// ends at the root of the Git repository that contains dir, where another file system begins, or below a folder that
// this user may not search.
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

// ends returns an error if the search must end in dir. In a submodule or a work tree, .git is a file.
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

// IsOwn reports whether a file belongs to this user or to the system's administrator. If the file is a link, its target
// must belong to one of them, too. The errors are those of [os.Stat].
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
