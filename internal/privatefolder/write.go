package privatefolder

import (
	"errors"
	"os"
	"path/filepath"
)

// Temporary is the prefix of the names of the temporary files of [Write]. A process that was
// killed can leave such files.
const Temporary = ".tmp-"

// Write writes a file whole or not at all, and creates its folder if it is missing. Only the
// owner can read the file.
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
