package files

import (
	"errors"
	"io"
	"os"
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
