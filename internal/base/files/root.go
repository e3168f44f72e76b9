package files

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// MakeRoot opens a folder, and creates it if it is missing.
func MakeRoot(dir string) (*os.Root, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return os.OpenRoot(dir)
}

// OpenRegular opens a regular file in a folder, and returns the file and its size in bytes.
func OpenRegular(root *os.Root, name string) (*os.File, int64, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", name)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// temporary is the prefix of the temporary files of [Replace].
const temporary = ".ocibridge-"

// Replace creates or replaces a file in a folder atomically. It writes body to a temporary file, calls check unless it is
// nil, and renames the temporary file. After an error of check, the existing file is unchanged. [SweepTemporary] removes
// the temporary file of a process that was killed.
func Replace(root *os.Root, name string, body io.Reader, check func() error) error {
	f, temp, err := createTemporary(root, path.Dir(name))
	if err != nil {
		return err
	}
	_, err = io.Copy(f, body)
	if err == nil && check != nil {
		err = check()
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = root.Rename(temp, name) // while the file is locked
	}
	if err != nil {
		root.Remove(temp)
	}
	return errors.Join(err, f.Close())
}

// createTemporary creates and locks a temporary file in a folder. On a file system without locks, the file is not locked,
// but no other process removes it either.
func createTemporary(root *os.Root, dir string) (*os.File, string, error) {
	for range 3 {
		temp := path.Join(dir, temporary+rand.Text())
		f, err := root.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return nil, "", err
		}
		if !errors.Is(Lock(f), syscall.EWOULDBLOCK) {
			if _, err := root.Lstat(temp); err == nil {
				return f, temp, nil
			}
		}
		f.Close() // another process swept the folder before the lock, and removes the file
	}
	return nil, "", errors.New("other processes remove its temporary files")
}

// SweepTemporary removes the temporary files that killed calls of [Replace] left in a folder. It leaves the files of
// running processes. A file that cannot be removed stays.
func SweepTemporary(root *os.Root, dir string) {
	entries, err := fs.ReadDir(root.FS(), dir)
	if err != nil {
		return // the next write to the folder reports the error
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if strings.HasPrefix(e.Name(), temporary) && e.Type().IsRegular() && IsAbandoned(filepath.Join(root.Name(), filepath.FromSlash(name))) {
			_ = root.Remove(name)
		}
	}
}
