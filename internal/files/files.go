// Package files reads the files that users name: configuration, logins, keys and certificates. It limits the size of
// each file, and reports changes of files and folders. It can also replace a file atomically in a folder that a user
// names.
//
// The package follows links and compares contents. It therefore detects all three ways to change a file: writing to it,
// renaming another file to its name, and replacing a link to its folder. Kubernetes does the last.
package files

import (
	"fmt"
	"io"
	"io/fs"
	"os"
)

// MaxSize is the maximum size in bytes of a file that [Read] accepts. The parsers of files have
// lower limits.
const MaxSize = 4 << 20

// Read reads a file. It returns an error if the file has more than [MaxSize] bytes. The limit is needed because the
// name may belong to an endless device.
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
