// Package files reads the files that users name: configuration, logins, keys and
// certificates. It bounds what it reads, and notices when a file or folder changes.
//
// The package follows links and compares contents. So it notices a file that is written in
// place, a file that is renamed over another one, and a folder that is swapped through a
// link, as Kubernetes does it.
package files

import (
	"fmt"
	"io"
	"io/fs"
	"os"
)

// MaxSize bounds a file. Its parser has a narrower bound.
const MaxSize = 4 << 20

// Read reads a file. More than [MaxSize] bytes are an error: the name may lead to a device.
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
