package files

import (
	"errors"
	"io/fs"
	"strings"
)

// Paths is the name of an operating system, as in runtime.GOOS. Its methods handle the
// paths of that system. Package filepath handles only the paths of the system on which the
// program runs.
type Paths string

func (p Paths) separators() string {
	if p == "windows" {
		return `\/`
	}
	return "/"
}

// Join joins path elements with the separator of the operating system. It removes
// separators at the end of all elements but the last, and modifies elem.
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

// RelativeTo resolves a path relative to the folder that contains the file. It returns an
// absolute or empty path unchanged.
func (p Paths) RelativeTo(file, path string) string {
	if path == "" || p.IsAbs(path) {
		return path
	}
	return file[:strings.LastIndexAny(file, p.separators())+1] + path
}

// Cause returns the error that the [fs.PathError] in err wraps, without the operation and
// the path. It returns err if err wraps no [fs.PathError].
func Cause(err error) error {
	var perr *fs.PathError
	if errors.As(err, &perr) {
		return perr.Err
	}
	return err
}
