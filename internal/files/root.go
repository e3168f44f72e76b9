package files

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
)

// MakeRoot opens a folder, and creates it if it is missing.
func MakeRoot(dir string) (*os.Root, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return os.OpenRoot(dir)
}

// OpenRegular opens a regular file in a folder, and returns its size in bytes. It refuses
// all other kinds of files. Opening a pipe, for example, would wait for a writer.
func OpenRegular(root *os.Root, name string) (*os.File, int64, error) {
	info, err := root.Stat(name)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s is no regular file", name)
	}
	f, err := root.Open(name)
	return f, info.Size(), err
}

// Replace creates or replaces a file in a folder in one step. It writes body to a temporary
// file, and renames that file if check, unless it is nil, then returns nil.
func Replace(root *os.Root, name string, body io.Reader, check func() error) error {
	temp := path.Join(path.Dir(name), ".ocibridge-"+rand.Text())
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
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
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		root.Remove(temp)
	}
	return err
}
