package privatefolder

import (
	"errors"
	"os"
	"path/filepath"
)

// Temporary is the prefix of the names of temporary files that [Write] creates. If a process
// is killed, such a file may remain.
const Temporary = ".tmp-"

// Write creates or replaces a file atomically, and creates the file's folder if it is
// missing. Only the owner can read the file.
func Write(name string, data []byte) error {
	folder := filepath.Dir(name)
	if err := os.MkdirAll(folder, folderMode); err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, Temporary)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
