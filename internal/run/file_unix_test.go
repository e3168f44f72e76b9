//go:build !windows

package run

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSharedFolders shows that exec uses no folder that another user may write to or replace.
func TestSharedFolders(t *testing.T) {
	me := os.Geteuid()
	for name, tc := range map[string]struct {
		above, mode fs.FileMode
		user        int
		want        string
	}{
		"private":                 {0o755, 0o700, me, ""},
		"below a sticky folder":   {0o777 | fs.ModeSticky, 0o700, me, ""},
		"of another user":         {0o755, 0o700, me + 1, "belongs to another user"},
		"writable by others":      {0o755, 0o702, me, "may replace"},
		"writable by a group":     {0o755, 0o720, me, "may replace"},
		"below a writable folder": {0o777, 0o700, me, "may replace"},
		"below a group's folder":  {0o770, 0o700, me, "may replace"},
	} {
		folder := filepath.Join(t.TempDir(), "folder")
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		for path, mode := range map[string]fs.FileMode{folder: tc.mode, filepath.Dir(folder): tc.above} {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
		if err := checkFolder(folder, tc.user); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// TestLinkedFolder shows that exec writes to another folder if a link is in the place of the first.
func TestLinkedFolder(t *testing.T) {
	link, target, good := filepath.Join(t.TempDir(), "link"), t.TempDir(), t.TempDir()
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	f, err := writePrivate([]string{link, good}, nil)
	if err != nil || filepath.Dir(f.path()) != good || names(t, target) != "" {
		t.Fatalf("%v, %v; the target has %q", f, err, names(t, target))
	}
	if err := f.remove(); err != nil {
		t.Error(err)
	}
}
