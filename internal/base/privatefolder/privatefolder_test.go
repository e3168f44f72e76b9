//go:build unix

package privatefolder_test

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
)

// makes calls Make and returns the text that Make logs.
func makes(t *testing.T, path string) string {
	t.Helper()
	var log bytes.Buffer
	if err := privatefolder.Make(path, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
		t.Fatal(err)
	}
	return log.String()
}

func wantMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != want {
		t.Errorf("%s has mode %04o, want %04o", path, got, want)
	}
}

// folder creates a folder with exactly the given mode, and returns its path.
func folder(t *testing.T, mode fs.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "folder")
	if err := errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestUmask shows that Make creates a folder and its parents with mode 0700 under any umask. The test must not run in
// parallel with other tests, because a process has only one umask.
func TestUmask(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o077} {
		path := filepath.Join(t.TempDir(), "made", "too")
		before := syscall.Umask(umask)
		log := makes(t, path)
		syscall.Umask(before)
		if log != "" {
			t.Errorf("umask %04o: %s", umask, log)
		}
		wantMode(t, path, 0o700)
		wantMode(t, filepath.Dir(path), 0o700)
	}
}

func TestWiderIsNarrowed(t *testing.T) {
	for _, mode := range []fs.FileMode{0o777, 0o755, 0o750, 0o701} {
		path := folder(t, mode)
		log := makes(t, path)
		if strings.Count(log, "level=WARN") != 1 || !strings.Contains(log, "only its owner can use it now") || !strings.Contains(log, "folder="+path) || !strings.Contains(log, "mode=0") {
			t.Errorf("%04o: %s", mode, log)
		}
		wantMode(t, path, 0o700)
		if log := makes(t, path); log != "" {
			t.Errorf("when it is narrow: %s", log)
		}
	}
}

func TestNarrowerStays(t *testing.T) {
	path := folder(t, 0o500)
	if log := makes(t, path); log != "" {
		t.Error(log)
	}
	wantMode(t, path, 0o500)
}

// TestLinkIsNotNarrowed shows that Make logs a warning for a link, but does not change the mode of the link's target.
func TestLinkIsNotNarrowed(t *testing.T) {
	target := folder(t, 0o755)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	log := makes(t, link)
	if strings.Count(log, "level=WARN") != 1 || !strings.Contains(log, "chmod 700 "+link) || !strings.Contains(log, "it is a link") || !strings.Contains(log, "mode=0755") {
		t.Error(log)
	}
	wantMode(t, target, 0o755)
	if err := os.Chmod(target, 0o700); err != nil {
		t.Fatal(err)
	}
	if log := makes(t, link); log != "" {
		t.Errorf("to a private folder: %s", log)
	}
}

// TestFileIsNarrowed shows that NarrowFile changes the mode of a file to 0600, but does not
// change the target of a link.
func TestFileIsNarrowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Symlink(path, link)); err != nil {
		t.Fatal(err)
	}
	narrow := func(path string) string {
		t.Helper()
		var log bytes.Buffer
		if err := privatefolder.NarrowFile(path, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
			t.Fatal(err)
		}
		return log.String()
	}
	for _, mode := range []fs.FileMode{0o644, 0o620, 0o777} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if log := narrow(link); !strings.Contains(log, "chmod 600 "+link) || !strings.Contains(log, "it is a link") {
			t.Error(log)
		}
		wantMode(t, path, mode)
		if log := narrow(path); strings.Count(log, "level=WARN") != 1 || !strings.Contains(log, "only its owner can use it now") || !strings.Contains(log, "file="+path) {
			t.Errorf("%04o: %s", mode, log)
		}
		wantMode(t, path, 0o600)
		if log := narrow(path); log != "" {
			t.Errorf("when it is narrow: %s", log)
		}
	}
	if err := privatefolder.NarrowFile(path+"-missing", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// TestFolderOfAnotherUser shows that Make succeeds and logs a warning if it cannot change the mode of a folder.
func TestFolderOfAnotherUser(t *testing.T) {
	path := "/"
	if os.Getuid() == 0 {
		path = "/proc/self/task" // not even root can change the mode of this folder
	}
	log := makes(t, path)
	if strings.Count(log, "level=WARN") != 1 || !strings.Contains(log, "its mode stays as it is") || !strings.Contains(log, "chmod 700") {
		t.Error(log)
	}
}

func TestCannotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := privatefolder.Make(filepath.Join(file, "folder"), nil); err == nil {
		t.Error("a folder is created below a file")
	}
}
