package files

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// TestClone shows that a clone has the bytes and the mode, and that nothing is left where the file system cannot clone.
func TestClone(t *testing.T) {
	dir := t.TempDir()
	name, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	if err := os.WriteFile(name, []byte("content"), 0o444); err != nil {
		t.Fatal(err)
	}
	from, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	if err := Clone(from, to, 0o755); errors.Is(err, errors.ErrUnsupported) {
		if _, err := os.Lstat(to); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("something is left: %v", err)
		}
		return
	} else if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(to)
	info, serr := os.Stat(to)
	if err != nil || serr != nil || string(data) != "content" || runtime.GOOS != "windows" && info.Mode() != 0o755 {
		t.Errorf("%q, %v, %v, %v", data, info, err, serr)
	}
	if err := Clone(from, to, 0o755); err == nil {
		t.Error("an existing file was replaced")
	}
}
