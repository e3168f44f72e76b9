package run

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

func names(t *testing.T, folder string) string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return strings.Join(out, " ")
}

// TestPrivateFile shows that a file can be read only by its owner, and is removed.
func TestPrivateFile(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "new", "folder")
	f, err := writePrivate([]string{folder}, []byte("text"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(f.path()); string(got) != "text" || !strings.HasSuffix(f.path(), ".tfrc") {
		t.Errorf("%s has %q: %v", f.path(), got, err)
	}
	file, err := os.Stat(f.path())
	if err != nil {
		t.Fatal(err)
	}
	in, err := os.Stat(folder)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" && (file.Mode().Perm() != 0o600 || in.Mode().Perm() != 0o700) {
		t.Errorf("modes %v of the file and %v of the folder", file.Mode(), in.Mode())
	}
	if err := f.remove(); err != nil || names(t, folder) != "" {
		t.Errorf("%v; the folder has %s", err, names(t, folder))
	}
}

// TestSweep shows that files of running processes stay, and files of killed ones are removed.
func TestSweep(t *testing.T) {
	folder := t.TempDir()
	running, err := writePrivate([]string{folder}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer running.remove()
	killed, err := writePrivate([]string{folder}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.Close(); err != nil { // a killed process closes its files, and removes none
		t.Fatal(err)
	}
	begun, old, other := filepath.Join(folder, newPrefix+"begun"), filepath.Join(folder, newPrefix+"old"), filepath.Join(folder, "other")
	for _, name := range []string{begun, old, other} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now().Add(-abandonedAfter - time.Second)
	if err := os.Chtimes(old, before, before); err != nil {
		t.Fatal(err)
	}
	sweep(folder)
	want := []string{filepath.Base(begun), filepath.Base(running.path()), "other"}
	if got := names(t, folder); got != strings.Join(want, " ") {
		t.Errorf("the folder has %s, want %v", got, want)
	}
}

// TestFolders shows that the second folder is used if the first is unusable, and the error if all are.
func TestFolders(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	good := t.TempDir()
	f, err := writePrivate([]string{filepath.Join(file, "folder"), good}, nil)
	if err != nil || filepath.Dir(f.path()) != good {
		t.Fatalf("%v, %v", f, err)
	}
	if err := f.remove(); err != nil {
		t.Error(err)
	}
	for _, folders := range [][]string{nil, {filepath.Join(file, "folder")}} {
		if _, err := writePrivate(folders, nil); err == nil || hint.Of(err) == "" {
			t.Errorf("%q: %v", folders, err)
		}
	}
}
