package run

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
)

const (
	configSuffix   = ".tfrc"                 // ends the name of a complete file, from which clients read HCL
	newPrefix      = privatefolder.Temporary // begins the name of a file that is not locked yet
	abandonedAfter = time.Hour               // the age at which a file with newPrefix counts as left behind by a killed process
)

// privateFile is a file that only this user can read, for as long as this process lives. The process holds a lock on it. The
// next process removes files whose lock nobody holds.
type privateFile struct{ *os.File }

// writePrivate writes a file in the first of the folders that can be used, and removes the files of killed processes.
func writePrivate(folders []string, data []byte) (*privateFile, error) {
	errs := errors.New("there is no folder for private files")
	for _, folder := range folders {
		// A file of another user would configure the client, and its dev_overrides would run that user's program.
		err := privatefolder.Make(folder, nil)
		if err == nil {
			sweep(folder)
			var f *privateFile
			if f, err = newPrivate(folder, data); err == nil {
				return f, nil
			}
		}
		errs = fmt.Errorf("write the CLI configuration for the command: %w", err)
	}
	return nil, hint.Wrap(errs, "let XDG_RUNTIME_DIR or XDG_CACHE_HOME name a folder that you alone may write to")
}

// newPrivate writes a file in a folder. It locks the file before it gives the file its name, because other processes
// remove unlocked files with such names.
func newPrivate(folder string, data []byte) (*privateFile, error) {
	id := rand.Text()
	f, err := files.CreateNew(filepath.Join(folder, newPrefix+id))
	if err != nil {
		return nil, err
	}
	if err = files.Lock(f); err == nil {
		_, err = f.Write(data)
	}
	name := filepath.Join(folder, id+configSuffix)
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return &privateFile{f}, nil
}

func (f *privateFile) path() string {
	folder, name := filepath.Split(f.Name())
	return filepath.Join(folder, strings.TrimPrefix(name, newPrefix)+configSuffix)
}

func (f *privateFile) remove() error { return errors.Join(os.Remove(f.path()), f.Close()) }

// sweep removes the files of processes that were killed.
func sweep(folder string) {
	entries, _ := os.ReadDir(folder) // the folder can be missing
	for _, e := range entries {
		name := filepath.Join(folder, e.Name())
		info, err := e.Info()
		switch {
		case err != nil:
		case strings.HasSuffix(name, configSuffix) && files.IsAbandoned(name),
			strings.HasPrefix(e.Name(), newPrefix) && time.Since(info.ModTime()) > abandonedAfter:
			_ = os.Remove(name) // the next process tries again
		}
	}
}
