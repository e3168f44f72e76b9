package files

import (
	"errors"
	"io/fs"
	"strings"
)

// Paths is the operating system whose paths a program handles, as runtime.GOOS names it.
// Package filepath only knows the paths of the system that the program runs on.
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

// Beside resolves a path relative to the folder of a file. It keeps an empty path.
func (p Paths) Beside(file, path string) string {
	if path == "" || p.IsAbs(path) {
		return path
	}
	return file[:strings.LastIndexAny(file, p.separators())+1] + path
}

// Cause returns an error without the operation and the path that an [fs.PathError] repeats.
func Cause(err error) error {
	var perr *fs.PathError
	if errors.As(err, &perr) {
		return perr.Err
	}
	return err
}
