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

// OpenRegular opens a regular file in a folder, and returns the file and its size in bytes.
// It returns an error for any other kind of file. Opening a pipe, for example, would block
// until a process writes to the pipe.
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

// Replace creates or replaces a file in a folder atomically. It writes body to a temporary
// file, calls check, and renames the temporary file. If check returns an error, Replace
// returns this error and leaves the existing file unchanged. A nil check means no check.
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
