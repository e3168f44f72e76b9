// Package files reads the files that users name: configuration, logins, keys and certificates. It limits the size of
// each file, and notices when a file or folder changes. It also replaces files in folders that users name, each file in
// one step.
//
// The package follows links and compares contents. Therefore it notices three kinds of changes: a file is written in
// place, another file is renamed to its name, or a link to its folder is swapped, as in Kubernetes.
package files

import (
	"fmt"
	"io"
	"io/fs"
	"os"
)

// MaxSize is the maximum size of a file in bytes. The parsers of these files have lower limits.
const MaxSize = 4 << 20

// Read reads a file. It returns an error if the file has more than [MaxSize] bytes: the name could lead to an endless
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
