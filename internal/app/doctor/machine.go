package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
)

// Folder is a folder in which ocibridge stores files.
type Folder struct {
	Name string // what the folder is, such as "cache"
	Path string
	// Setting says how the user names another folder.
	Setting string
}

// Machine diagnoses the machine on which ocibridge runs.
type Machine struct {
	Folders []Folder
	// Temporary is the folder of temporary files, in which Examine creates a file and removes it again.
	Temporary string
	// Free returns the free bytes on the disk of a folder. nil means [files.Free].
	Free func(folder string) (int64, error)
}

// The free space below which a check fails or warns. A push stores one temporary file for each package in flight,
// and large packages have 200 MB.
const (
	leastFree = 64 << 20
	fewFree   = 1 << 30
)

// Examine diagnoses the disks. It refuses folders that another user could replace.
func (x Machine) Examine() *Report {
	if x.Free == nil {
		x.Free = files.Free
	}
	r := &Report{Subject: "this machine"}
	for _, f := range x.Folders {
		if err := privatefolder.ForOwner(f.Path).Check(f.Path); err != nil {
			r.fail(f.Name, err, f.Setting)
			continue
		}
		x.disk(r, f)
	}
	temporary := Folder{"temporary files", x.Temporary, "set TMPDIR"}
	if err := tryFile(x.Temporary); err != nil {
		r.fail(temporary.Name, err, "a push writes packages there: correct the rights of the folder, or set TMPDIR")
		return r
	}
	x.disk(r, temporary)
	return r
}

// tryFile creates a file in a folder, and removes it.
func tryFile(folder string) error {
	f, err := os.CreateTemp(folder, "ocibridge-doctor-*")
	if err != nil {
		return err
	}
	f.Close()
	return os.Remove(f.Name())
}

// disk checks the free space for a folder. The folder need not exist yet.
func (x Machine) disk(r *Report, f Folder) {
	there, err := existing(f.Path)
	if err != nil {
		r.fail(f.Name, err, "correct the folder, or "+f.Setting)
		return
	}
	free, err := x.Free(there)
	help := fmt.Sprintf("make room on the disk of %s, or %s", f.Path, f.Setting)
	switch {
	case err != nil:
		r.warn(f.Name, "check that the disk is mounted", "the free space of %s is unknown: %v", f.Path, err)
	case free < leastFree:
		r.fail(f.Name, fmt.Errorf("%s are free in %s", bytesText(free), f.Path), help)
	case free < fewFree:
		r.warn(f.Name, help, "%s are free in %s", bytesText(free), f.Path)
	default:
		r.ok(f.Name, "%s are free in %s", bytesText(free), f.Path)
	}
}

// existing returns the path itself if it exists, or else the nearest existing folder above it. It returns an error if
// a file is in the way.
func existing(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for {
		info, err := os.Stat(path)
		switch {
		case err == nil && !info.IsDir():
			return "", fmt.Errorf("%s is not a folder", path)
		case err == nil:
			return path, nil
		case !errors.Is(err, fs.ErrNotExist) || filepath.Dir(path) == path:
			return "", err
		}
		path = filepath.Dir(path)
	}
}
