package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestReplace shows that Replace either replaces the whole file or leaves it unchanged. No temporary file is left in
// either case.
func TestReplace(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	refused := errors.New("refused")
	for _, step := range []struct {
		body  string
		check func() error
		err   error
		want  string // the content of the file; "" if there is no file
	}{
		{"one", func() error { return refused }, refused, ""},
		{"one", nil, nil, "one"},
		{"two", func() error { return refused }, refused, "one"},
		{"two", func() error { return nil }, nil, "two"},
	} {
		if err := Replace(root, "a", strings.NewReader(step.body), step.check); !errors.Is(err, step.err) {
			t.Errorf("%+v: %v", step, err)
		}
		f, size, err := OpenRegular(root, "a")
		if step.want == "" {
			if err == nil {
				t.Errorf("%+v: the file exists", step)
			}
			continue
		}
		got, rerr := io.ReadAll(f)
		if f.Close(); err != nil || rerr != nil || string(got) != step.want || size != int64(len(step.want)) {
			t.Errorf("%+v: %q of %d bytes, %v, %v", step, got, size, err, rerr)
		}
	}
	dir, err := root.Open(".")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if left, err := dir.Readdirnames(-1); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := Replace(root, "../a", strings.NewReader("three"), nil); err == nil {
		t.Error("a file outside the folder is written")
	}
	if _, _, err := OpenRegular(root, "."); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a folder: %v", err)
	}
}

// TestSweepTemporary shows that the temporary file of a killed process is removed, and that other files stay: those of
// running processes, and those with other names.
func TestSweepTemporary(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, name := range []string{temporary + "DEAD", "own"} {
		if err := root.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := root.Mkdir(temporary+"FOLDER", 0o755); err != nil {
		t.Fatal(err)
	}
	err = Replace(root, "a", strings.NewReader("one"), func() error {
		SweepTemporary(root, ".") // another process does so meanwhile
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	var left []string
	entries, err := fs.ReadDir(root.FS(), ".")
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{temporary + "FOLDER", "a", "own"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("%q, %v, want %q", left, err, want)
	}
}
