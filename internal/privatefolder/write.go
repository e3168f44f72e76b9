package privatefolder

import (
	"errors"
	"os"
	"path/filepath"
)

// Temporary is the prefix of the files that [Write] is writing. A process that has died may
// have left some.
const Temporary = ".tmp-"

// Write writes a file whole or not at all, and makes its folder if there is none. Only this
// user may read it.
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
