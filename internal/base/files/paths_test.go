package files

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
)

func TestPaths(t *testing.T) {
	for _, tc := range []struct {
		goos                Paths
		file, path, beside  string
		abs                 bool
		folder, name, joint string
	}{
		{"linux", "/etc/a.hcl", "b", "/etc/b", false, "/etc/", "b", "/etc/b"},
		{"linux", "/a.hcl", "b", "/b", false, "/", "b", "/b"},
		{"linux", "a.hcl", "b", "b", false, "etc", "b", "etc/b"},
		{"linux", "etc/a.hcl", "/b", "/b", true, "etc//", "/b", "etc//b"},
		{"linux", `etc/a.hcl`, `C:\b`, `etc/C:\b`, false, `a\`, "b", `a\/b`},
		{"linux", "etc/a.hcl", "", "", false, "", "b", "/b"},
		{"windows", `C:\u\a.hcl`, "b", `C:\u\b`, false, `C:\u\`, "b", `C:\u\b`},
		{"windows", `C:\u/a.hcl`, "b", `C:\u/b`, false, `C:\u/`, "b", `C:\u\b`},
		{"windows", `C:\u\a.hcl`, `D:\b`, `D:\b`, true, "u", "b", `u\b`},
		{"windows", `C:\u\a.hcl`, `D:/b`, `D:/b`, true, "u", "b", `u\b`},
		{"windows", `C:\u\a.hcl`, `\b`, `\b`, true, "u", "b", `u\b`},
		{"windows", `C:\u\a.hcl`, "/b", "/b", true, "u", "b", `u\b`},
		{"windows", `C:\u\a.hcl`, "D:b", `C:\u\D:b`, false, "u", "b", `u\b`},
	} {
		if got := tc.goos.RelativeTo(tc.file, tc.path); got != tc.beside {
			t.Errorf("%s: %q beside %q is %q, want %q", tc.goos, tc.path, tc.file, got, tc.beside)
		}
		if got := tc.goos.IsAbs(tc.path); got != tc.abs {
			t.Errorf("%s: %q is absolute: %t", tc.goos, tc.path, got)
		}
		if got := tc.goos.Join(tc.folder, tc.name); got != tc.joint {
			t.Errorf("%s: %q and %q join to %q, want %q", tc.goos, tc.folder, tc.name, got, tc.joint)
		}
	}
}

func TestCause(t *testing.T) {
	err := fmt.Errorf("read it: %w", &fs.PathError{Op: "open", Path: "/x", Err: fs.ErrNotExist})
	if got := Cause(err); got != fs.ErrNotExist {
		t.Errorf("%v", got)
	}
	if other := errors.New("other"); Cause(other) != other {
		t.Error("another error changed")
	}
}
