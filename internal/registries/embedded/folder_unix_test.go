//go:build unix

package embedded_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/embedded"
)

// TestContentIsItsOwnersAlone shows that only the owner has access to the content. This
// holds with a umask of 0, and after a start with a folder that other users could read.
// The test must not run in parallel with other tests, because a process has only one
// umask.
func TestContentIsItsOwnersAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	defer syscall.Umask(syscall.Umask(0))
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

// TestSharedFolder shows that Open refuses a data folder that another user could replace, and creates nothing in it.
func TestSharedFolder(t *testing.T) {
	shared := filepath.Join(t.TempDir(), "shared")
	if err := errors.Join(os.Mkdir(shared, 0o700), os.Chmod(shared, 0o777)); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{shared, filepath.Join(shared, "data")} {
		r, err := embedded.Open(dir, nil)
		if err == nil {
			r.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "other users may change or replace "+dir) || !strings.Contains(hint.Of(err), "chmod o-w "+shared) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if entries, err := os.ReadDir(shared); len(entries) > 0 || err != nil {
		t.Errorf("Open created %v: %v", entries, err)
	}
}

// TestMarkerFollowsNoLink shows that Open writes to no file to which a link in the marker's place leads.
func TestMarkerFollowsNoLink(t *testing.T) {
	for name, content := range map[string]string{"a file": "own", "nothing": ""} {
		dir, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
		if err := os.Symlink(target, filepath.Join(dir, "ocibridge-registry")); err != nil {
			t.Fatal(err)
		}
		if content != "" {
			if err := os.WriteFile(target, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r, err := embedded.Open(dir, nil)
		if err == nil {
			r.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "ocibridge-registry is no regular file") || hint.Of(err) == "" {
			t.Errorf("to %s: %v", name, err)
		}
		if got, _ := os.ReadFile(target); string(got) != content {
			t.Errorf("to %s: the target has %q", name, got)
		}
	}
}
