// Package files reads the files that users name: configuration, logins, keys and certificates. It bounds the size of
// each file, and notices when a file or folder changes. It also replaces files in the folders that users name, each in
// one step.
//
// The package follows links and compares contents. Therefore it notices three kinds of changes: a file is written in
// place, another file is renamed to its name, or a link to its folder is swapped, as Kubernetes does it.
package files

import (
	"fmt"
	"io"
	"io/fs"
	"os"
)

// MaxSize is the maximum size of a file. The parser of the file has a narrower bound.
const MaxSize = 4 << 20

// Read reads a file. It returns an error if the file has more than [MaxSize] bytes, because the name may lead to a
// device.
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
