package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestReadingsChange: what is as it was is no reason to read settings again, and that
// includes what is not there.
func TestReadingsChange(t *testing.T) {
	dir := t.TempDir()
	file, folder, noFile, noFolder := filepath.Join(dir, "file"), filepath.Join(dir, "folder"), filepath.Join(dir, "no-file"), filepath.Join(dir, "no-folder")
	write(t, file, []byte("one"))
	mkdir := func(name string) {
		t.Helper()
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	mkdir(folder)
	write(t, filepath.Join(folder, "a"), nil)
	read := func() *readings {
		r := &readings{}
		r.readFile(file)
		r.readFile(noFile)
		r.readDir(folder)
		r.readDir(noFolder)
		return r
	}
	expect := func(what string, r *readings, want ...string) {
		t.Helper()
		if names, _ := r.changed(); !slices.Equal(names, want) {
			t.Errorf("%s: changed are %q, want %q", what, names, want)
		}
	}
	r := read()
	expect("nothing", r)
	write(t, file, []byte("two"))
	write(t, filepath.Join(folder, "b"), nil)
	write(t, noFile, nil)
	mkdir(noFolder)
	expect("everything", r, file, folder+"/", noFile, noFolder+"/")
	r = read()
	expect("nothing again", r)
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	expect("a folder is gone", r, folder+"/")
}
