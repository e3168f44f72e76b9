//go:build !windows

package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestSharedFolder shows that the check of a folder fails if another user could replace it.
func TestSharedFolder(t *testing.T) {
	shared := filepath.Join(t.TempDir(), "shared")
	if err := errors.Join(os.Mkdir(shared, 0o700), os.Chmod(shared, 0o777)); err != nil {
		t.Fatal(err)
	}
	x := Machine{Folders: []Folder{{"cache", filepath.Join(shared, "cache"), "set it"}}, Temporary: t.TempDir()}
	want(t, checks(t, x.Examine()), "cache", Fail, "other users may change or replace "+filepath.Join(shared, "cache"))
}
