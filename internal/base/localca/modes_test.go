//go:build unix

package localca_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/localca"
)

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info.Mode().Perm()
}

// TestOnlyTheOwnerReadsTheKey shows that other users cannot read the file with the key, whatever the umask is. The
// test must not run in parallel with others, because the umask belongs to the whole process.
func TestOnlyTheOwnerReadsTheKey(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o077, 0o177, 0o777} {
		dir := filepath.Join(t.TempDir(), "ca")
		var log bytes.Buffer
		before := syscall.Umask(umask)
		_, err := localca.Open(dir, slog.New(slog.NewTextHandler(&log, nil)))
		syscall.Umask(before)
		must(t, err)
		if log.Len() != 0 {
			t.Errorf("umask %04o: %s", umask, log.String())
		}
		if key, folder, cert := mode(t, filepath.Join(dir, "ca-key.pem")), mode(t, dir), mode(t, filepath.Join(dir, "ca.pem")); key != 0o600 || folder != 0o700 || cert != 0o644 {
			t.Errorf("umask %04o: modes %04o of the key, %04o of the folder, %04o of the certificate", umask, key, folder, cert)
		}
	}
}

// TestWideModesAreNarrowed shows that Open removes the access of other users to the folder and the key. It logs a
// warning for each of the two, and the CA remains the same.
func TestWideModesAreNarrowed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	key := filepath.Join(dir, "ca-key.pem")
	open(t, dir)
	ca := read(t, dir).Leaf
	must(t, os.Chmod(dir, 0o755))
	must(t, os.Chmod(key, 0o644))
	var log bytes.Buffer
	_, err := localca.Open(dir, slog.New(slog.NewTextHandler(&log, nil)))
	must(t, err)
	if strings.Count(log.String(), "level=WARN") != 2 || !strings.Contains(log.String(), "folder="+dir) || !strings.Contains(log.String(), "file="+key) {
		t.Error(log.String())
	}
	if mode(t, dir) != 0o700 || mode(t, key) != 0o600 || !read(t, dir).Leaf.Equal(ca) {
		t.Errorf("modes %04o of the folder, %04o of the key", mode(t, dir), mode(t, key))
	}
}

// TestSharedFolder shows that no CA is created or used in a folder that another user could replace.
func TestSharedFolder(t *testing.T) {
	shared := filepath.Join(t.TempDir(), "shared")
	must(t, os.Mkdir(shared, 0o700))
	must(t, os.Chmod(shared, 0o777))
	wantRefused := func() {
		t.Helper()
		if _, err := localca.Open(filepath.Join(shared, "ca"), nil); err == nil || !strings.Contains(hint.Of(err), "chmod o-w "+shared) {
			t.Errorf("%v, hint %q", err, hint.Of(err))
		}
	}
	wantRefused()
	if entries, err := os.ReadDir(shared); len(entries) > 0 || err != nil {
		t.Errorf("Open created %v: %v", entries, err)
	}
	must(t, os.Chmod(shared, 0o755))
	open(t, filepath.Join(shared, "ca"))
	must(t, os.Chmod(shared, 0o777))
	wantRefused()
}
