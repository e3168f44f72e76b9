package files

import (
	"errors"
	"io/fs"
	"strings"
)

// Paths handles the paths of an operating system, which it names like runtime.GOOS.
// Package filepath only handles the paths of the system on which the program runs.
type Paths string

func (p Paths) separators() string {
	if p == "windows" {
		return `\/`
	}
	return "/"
}

// Join joins the elements of a path.
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

// Beside resolves a path that is relative to the folder of a file. It returns an empty path
// unchanged.
func (p Paths) Beside(file, path string) string {
	if path == "" || p.IsAbs(path) {
		return path
	}
	return file[:strings.LastIndexAny(file, p.separators())+1] + path
}

// Cause returns the error that an [fs.PathError] wraps, without the operation and the path,
// or else err.
func Cause(err error) error {
	var perr *fs.PathError
	if errors.As(err, &perr) {
		return perr.Err
	}
	return err
}
