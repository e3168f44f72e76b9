//go:build unix

package embedded_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ocibridge/ocibridge/internal/registry/embedded"
)

// TestContentIsItsOwnersAlone shows that only the owner has access to the content. This
// holds with a umask of 0, and after a start with a folder that other users could read.
// The test must not run in parallel with other tests, because a process has only one
// umask.
func TestContentIsItsOwnersAlone(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := filepath.Join(t.TempDir(), "data")
	wantPrivate := func() {
		t.Helper()
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		folders := 0
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			if info.IsDir() {
				folders++
			}
			if info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s: %v", e.Name(), info.Mode())
			}
		}
		if folders == 0 {
			t.Error("no folder")
		}
	}
	push(t, repository(t, open(t, dir)), "layer", "1.0.0")
	wantPrivate()

	content := filepath.Join(dir, "registry")
	if err := os.Chmod(content, 0o755); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	r, err := embedded.Open(dir, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	wantPrivate()
	if strings.Count(log.String(), "level=WARN") != 1 || !strings.Contains(log.String(), "folder="+content+" mode=0755") {
		t.Errorf("%s", log.String())
	}
	if got := tags(t, repository(t, r)); len(got) != 1 {
		t.Errorf("tags %v", got)
	}
}
