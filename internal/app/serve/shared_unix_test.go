//go:build unix

package serve

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/collected"
)

// TestSharedFolders shows that the gateway uses no folder for its cache or for certificates that another user could
// replace. Without its default folder, the gateway has no cache.
func TestSharedFolders(t *testing.T) {
	shared := filepath.Join(t.TempDir(), "shared")
	if err := errors.Join(os.Mkdir(shared, 0o700), os.Chmod(shared, 0o777)); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{shared, filepath.Join(shared, "cache")} {
		open := func(settings, defaultFolder string, log *collected.Text) (*site, error) {
			home := t.TempDir()
			config := filepath.Join(home, "ocibridge.hcl")
			write(t, config, []byte(plainMirror+settings))
			s, err := loadSettings(home, config, &files.Snapshot{}, []func(*Settings){func(s *Settings) { s.CacheFolder, s.Config.Gateway.HTTP = defaultFolder, true }})
			if err != nil {
				t.Fatal(err)
			}
			return testProcess(t, slog.New(slog.NewTextHandler(log, nil))).newSite(s, nil)
		}
		_, err := open("gateway {\n  cache {\n    directory = \""+folder+"\"\n  }\n}\n", "", &collected.Text{})
		if err == nil || !strings.Contains(err.Error(), "other users may change or replace "+folder) || !strings.Contains(hint.Of(err), "chmod o-w "+shared) {
			t.Errorf("cache in %s: %v", folder, err)
		}
		log := &collected.Text{}
		s, err := open("", folder, log)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if s.cache != nil || log.Count("chmod o-w "+shared) != 1 {
			t.Errorf("default cache in %s: the folder is %q; log:\n%s", folder, s.cacheFolder, log.String())
		}
	}
	if err := ownFolder(filepath.Join(shared, "acme")); err == nil || !strings.Contains(hint.Of(err), "chmod o-w "+shared) {
		t.Errorf("certificates: %v", err)
	}
	if entries, err := os.ReadDir(shared); len(entries) > 0 || err != nil {
		t.Errorf("the gateway created %v: %v", entries, err)
	}
}
