package files

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestChanged shows that Changed reports files and folders that are changed, created or removed. It does not report
// files that are unchanged or still missing.
func TestChanged(t *testing.T) {
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
	read := func() *Snapshot {
		r := &Snapshot{}
		r.ReadFile(file)
		r.ReadFile(noFile)
		r.ReadDir(folder)
		r.ReadDir(noFolder)
		return r
	}
	expect := func(what string, r *Snapshot, want ...string) {
		t.Helper()
		if names, _ := r.Changed(); !slices.Equal(names, want) {
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

func write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
