//go:build !windows

package main

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSharedFolders shows that commands use no data folder and no folder of cached manifests that another user could
// replace, and that an error of a command has a hint.
func TestSharedFolders(t *testing.T) {
	shared := filepath.Join(t.TempDir(), "shared")
	if err := errors.Join(os.Mkdir(shared, 0o700), os.Chmod(shared, 0o777)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TF_CLI_CONFIG_FILE", os.DevNull)
	var stdout, stderr bytes.Buffer
	if status := execute(t.Context(), []string{"list", "--data", filepath.Join(shared, "data")}, &stdout, &stderr); status != 1 || !strings.Contains(stderr.String(), "hint: chmod o-w "+shared) {
		t.Errorf("status %d, %s", status, stderr.String())
	}
	t.Setenv("HOME", filepath.Join(shared, "home"))
	t.Setenv("XDG_CACHE_HOME", filepath.Join(shared, "cache"))
	if folder := new(syncFlags).cacheFolder("manifests", slog.New(slog.DiscardHandler)); folder != "" {
		t.Errorf("manifests are cached in %s", folder)
	}
	if entries, err := os.ReadDir(shared); len(entries) > 0 || err != nil {
		t.Errorf("%v were created: %v", entries, err)
	}
}
