package modulezip

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// asUser runs f with the permissions of an ordinary user, who owns the folder. f gets a path of the folder that does not lead
// through folders of root, which the user might not be able to enter.
func asUser(t *testing.T, dir string, f func(dir string)) {
	t.Helper()
	if os.Getuid() != 0 {
		f(dir)
		return
	}
	const user = 65534
	for _, at := range []string{filepath.Dir(dir), dir} {
		if err := os.Chown(at, user, -1); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(filepath.Dir(dir))
	t.Setenv("TMPDIR", ".") // the user may not write to root's
	runtime.LockOSThread()  // the file system's user belongs to the thread
	defer runtime.UnlockOSThread()
	if err := syscall.Setfsuid(user); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setfsuid(0)
	f(filepath.Base(dir))
}

// TestUnreadable shows that a file or folder without permission is an error with a hint, unless .terraformignore excludes
// it. A folder that is excluded whole is not opened.
func TestUnreadable(t *testing.T) {
	for _, tt := range []struct {
		what, rules string
		packed      bool
	}{
		{"secret", "", false},
		{"secret", "secret/\n", true},
		{"secret", "secret\n", false},
		{"secret", "secret/\n!secret/b.tf\n", false},
		{"secret/a.tf", "", false},
		{"secret/a.tf", "a.tf\n", true},
		{ignoreFile, "secret/\n", false},
	} {
		t.Run(tt.what+" "+tt.rules, func(t *testing.T) {
			files := tree{"main.tf": "", "secret/a.tf": "x"}
			if tt.rules != "" {
				files[ignoreFile] = tt.rules
			}
			dir := files.write(t)
			at := filepath.Join(dir, tt.what)
			if err := os.Chmod(at, 0); err != nil {
				t.Fatal(err)
			}
			defer os.Chmod(at, 0o700) // the test removes the folder
			asUser(t, dir, func(dir string) {
				z, err := Pack(t.Context(), dir)
				if err == nil {
					z.Close()
				}
				switch {
				case tt.packed && err != nil:
					t.Error(err)
				case !tt.packed && (!errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), tt.what) || hint.Of(err) == ""):
					t.Errorf("%v (hint %q)", err, hint.Of(err))
				}
			})
		})
	}
}
