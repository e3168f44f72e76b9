package lockfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// Replacement is new content in a temporary file next to a lock file.
type Replacement struct {
	path string // the lock file; if File.Name is a link, the target of the link
	temp string
	old  []byte
}

// Prepare writes new content to a temporary file next to the lock file f, with the same permissions. The lock
// file stays unchanged until [Replacement.Commit]. The caller must always call [Replacement.Discard] at the end.
func (f *File) Prepare(content []byte) (_ *Replacement, err error) {
	r := &Replacement{old: f.src}
	defer func() {
		if err != nil {
			r.Discard()
			err = hint.Wrap(err, "the folder of the lock file must be writable; nothing was changed")
		}
	}()
	if r.path, err = filepath.EvalSymlinks(f.Name); err != nil {
		return nil, err
	}
	info, err := os.Stat(r.path)
	if err != nil {
		return nil, err
	}
	temp, err := os.CreateTemp(filepath.Dir(r.path), Name+".*.tmp")
	if err != nil {
		return nil, err
	}
	r.temp = temp.Name()
	_, writeErr := temp.Write(content)
	return r, errors.Join(temp.Chmod(info.Mode().Perm()), writeErr, temp.Sync(), temp.Close())
}

// Commit replaces the lock file by the new content in one step. It returns an error if the lock file has changed
// since it was read.
func (r *Replacement) Commit() error {
	now, err := files.Read(r.path)
	if err != nil {
		return err
	}
	if !bytes.Equal(now, r.old) {
		return hint.New(fmt.Sprintf("%s was changed by something else in the meantime", r.path), "it was left as it is; run this again")
	}
	if err := os.Rename(r.temp, r.path); err != nil {
		return err
	}
	r.temp = ""
	return nil
}

// Discard removes the temporary file. It does nothing after Commit.
func (r *Replacement) Discard() {
	if r.temp != "" {
		os.Remove(r.temp)
	}
}
