package privatefolder

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWrite shows that Write replaces the whole file. If Write fails, it leaves no temporary
// file.
func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	name := filepath.Join(dir, "file")
	for _, text := range []string{"one", "another", ""} {
		if err := Write(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name); err != nil || string(got) != text {
			t.Errorf("%q, %v, want %q", got, err, text)
		}
	}
	occupied := filepath.Join(dir, "folder")
	if err := os.MkdirAll(filepath.Join(occupied, "file"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(occupied, []byte("text")); err == nil {
		t.Error("a folder was replaced")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("in the folder: %v, %v", entries, err)
	}
}
