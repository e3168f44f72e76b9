// Package configuration reads which modules and providers a configuration on this machine needs: the module in a folder, the
// tests of that module, and the modules that they call by local sources. It follows no other sources. It reports no errors in
// the files, because clients report these.
package configuration

import (
	"io"
	"os"
	"path/filepath"

	"github.com/ocibridge/ocibridge/internal/base/calls"
	"github.com/ocibridge/ocibridge/internal/base/files"
)

// Limits are the limits of a configuration. What exceeds them is not read.
type Limits struct {
	Folders int // with a module
	Files   int
}

// Configuration is what was read.
type Configuration struct {
	Folders []Folder
	Partial bool // a limit was reached
}

// Folder is a module of the configuration. The files in its declarations have their whole paths.
type Folder struct {
	Dir string
	calls.Folder
}

// Read reads the configuration in dir.
func Read(dir string, limits Limits) *Configuration {
	r := &reader{limits: limits, seen: map[string]bool{}}
	dir = filepath.Clean(dir)
	r.add(dir)
	// init also installs what the tests of the root module call.
	tests := append(r.files(dir, calls.IsTest), r.files(filepath.Join(dir, "tests"), calls.IsTest)...)
	for len(r.queue) > 0 {
		next := r.queue[0]
		r.queue = r.queue[1:]
		found := r.files(next, calls.IsFile)
		if len(r.out.Folders) == 0 {
			found = append(tests, found...)
		}
		of := Folder{next, *calls.Merge(found)}
		r.out.Folders = append(r.out.Folders, of)
		for _, c := range of.Calls {
			if calls.IsLocal(c.Source.Text) {
				r.add(filepath.Join(next, filepath.FromSlash(c.Source.Text)))
			}
		}
	}
	return &r.out
}

type reader struct {
	limits Limits
	seen   map[string]bool // the folders that are or were in the queue
	queue  []string
	read   int // the number of files that were read
	out    Configuration
}

// add adds the folder of a module to the queue.
func (r *reader) add(dir string) {
	switch {
	case r.seen[dir]:
	case len(r.seen) >= r.limits.Folders:
		r.out.Partial = true
	default:
		r.seen[dir] = true
		r.queue = append(r.queue, dir)
	}
}

// files reads the files of one kind in a folder.
func (r *reader) files(dir string, is func(name string) bool) (out []*calls.File) {
	entries, _ := os.ReadDir(dir) // the client reports a missing folder
	for _, e := range entries {
		if !is(e.Name()) || !e.Type().IsRegular() && e.Type()&os.ModeSymlink == 0 {
			continue
		}
		if r.read >= r.limits.Files {
			r.out.Partial = true
			return out
		}
		r.read++
		name := filepath.Join(dir, e.Name())
		if src, ok := readSmall(name); ok {
			out = append(out, calls.Read(filepath.ToSlash(name), src))
		}
	}
	return out
}

// readSmall reads a regular file. Of a file that is too large, it reads so much that [calls.Read] says so.
func readSmall(name string) ([]byte, bool) {
	f, _, err := files.Open(name)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	src, err := io.ReadAll(io.LimitReader(f, calls.MaxFile+1))
	return src, err == nil
}
