// Package files reads the files that users name: configuration, logins, keys and
// certificates. It bounds what it reads, and notices when a file or folder changes.
//
// Links are followed, so that a file may be replaced in any way: written in place,
// renamed over, or swapped through a link as Kubernetes does. Contents are compared, not
// times.
package files

import (
	"fmt"
	"io"
	"io/fs"
	"os"
)

// MaxSize bounds a file. Readers have narrower bounds of their own.
const MaxSize = 4 << 20

// Read reads a file that may turn out to be a device or a pipe. A file of more than
// [MaxSize] bytes is an error.
func Read(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err == nil && len(b) > MaxSize {
		err = &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("it has more than %d MiB", MaxSize>>20)}
	}
	return b, err
}
