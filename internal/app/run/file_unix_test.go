//go:build !windows

package run

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// TestSharedFolders shows that exec writes its CLI configuration to no folder that another user could replace, and reads no
// discovery documents there.
func TestSharedFolders(t *testing.T) {
	shared, good, link := filepath.Join(t.TempDir(), "shared"), t.TempDir(), filepath.Join(t.TempDir(), "link")
	below := filepath.Join(shared, "exec")
	if err := errors.Join(os.MkdirAll(below, 0o700), os.Chmod(shared, 0o777), os.Symlink(below, link)); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{below, link} {
		if f, err := writePrivate([]string{folder}, nil); err == nil || !strings.Contains(hint.Of(err), "chmod o-w "+shared) {
			t.Errorf("%s: %v, %v", folder, f, err)
		}
		f, err := writePrivate([]string{folder, good}, nil)
		if err != nil || filepath.Dir(f.path()) != good || names(t, below) != "" {
			t.Fatalf("%v, %v; the first folder has %q", f, err, names(t, below))
		}
		if err := f.remove(); err != nil {
			t.Error(err)
		}
		if d := (&Options{Cache: folder, Log: slog.New(slog.DiscardHandler)}).discovery(); d.folder != "" {
			t.Errorf("discovery documents are read from %s", d.folder)
		}
	}
	if d := (&Options{Cache: good}).discovery(); d.folder != good {
		t.Errorf("discovery documents are read from %q, not from %s", d.folder, good)
	}
}
