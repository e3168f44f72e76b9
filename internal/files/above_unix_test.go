//go:build !windows

package files

import (
	"os"
	"path/filepath"
	"testing"
)

// TestIsNotOwn shows that a file of another user is not own, and neither is a link to it nor a link of
// another user.
func TestIsNotOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		return // only root can give files away
	}
	dir := t.TempDir()
	own, foreign := filepath.Join(dir, "own"), filepath.Join(dir, "foreign")
	toForeign, foreignLink := filepath.Join(dir, "link"), filepath.Join(dir, "foreign link")
	for _, err := range []error{
		os.WriteFile(own, nil, 0o600), os.WriteFile(foreign, nil, 0o600), os.Chown(foreign, 65532, 65532),
		os.Symlink(foreign, toForeign), os.Symlink(own, foreignLink), os.Lchown(foreignLink, 65532, 65532),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{foreign, toForeign, foreignLink} {
		if got, err := IsOwn(name); got || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
