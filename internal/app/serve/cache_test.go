package serve

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/test/testkit/collected"
)

const plainMirror = "oci_mirror {\n  repository_template = \"localhost/${hostname}/${namespace}/${type}\"\n}\n"

// TestDefaultCache shows that the cache is on unless the registry is embedded. If its default
// folder cannot be used, the gateway logs a warning with a hint, and runs without a cache. If the
// folder in the configuration cannot be used, the gateway does not start.
func TestDefaultCache(t *testing.T) {
	dir := t.TempDir()
	good, file, occupied := filepath.Join(dir, "good"), filepath.Join(dir, "file"), filepath.Join(dir, "occupied")
	write(t, file, nil)
	if err := os.Mkdir(occupied, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(occupied, catalogFolder), nil)
	for name, tt := range map[string]struct {
		config, folder string
		want           string // the folder in use
		warns, fails   bool
	}{
		"default":                  {config: plainMirror, folder: good, want: good},
		"block without a folder":   {config: plainMirror + "gateway {\n  cache {\n    max_size = \"1GiB\"\n  }\n}\n", folder: good, want: good},
		"named":                    {config: plainMirror + "gateway {\n  cache {\n    directory = \"" + good + "\"\n  }\n}\n", folder: file, want: good},
		"off":                      {config: plainMirror + "gateway {\n  cache {\n    enabled = false\n  }\n}\n", folder: good},
		"embedded":                 {folder: good},
		"embedded, with a block":   {config: "gateway {\n  cache {}\n}\n", folder: good, want: good},
		"default below a file":     {config: plainMirror, folder: filepath.Join(file, "folder"), warns: true},
		"default with a foreigner": {config: plainMirror, folder: occupied, warns: true},
		"no default":               {config: plainMirror, warns: true},
		"named below a file":       {config: plainMirror + "gateway {\n  cache {\n    directory = \"" + filepath.Join(file, "folder") + "\"\n  }\n}\n", folder: good, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			home, log := t.TempDir(), &collected.Text{}
			config := filepath.Join(home, "ocibridge.hcl")
			write(t, config, []byte(tt.config))
			s, err := loadSettings(home, config, &files.Snapshot{}, []func(*Settings){func(s *Settings) { s.CacheFolder, s.Config.Gateway.HTTP = tt.folder, true }})
			if err != nil {
				t.Fatal(err)
			}
			site, err := testProcess(t, slog.New(slog.NewTextHandler(log, nil))).newSite(s, nil)
			if (err != nil) != tt.fails {
				t.Fatal(err)
			}
			if err != nil {
				return
			}
			defer site.Close()
			if site.cacheFolder != tt.want || (site.cache != nil) != (tt.want != "") {
				t.Errorf("the folder is %q, want %q", site.cacheFolder, tt.want)
			}
			if got := log.Count("there is no cache on disk: its default folder cannot be used"); (got == 1) != tt.warns || (log.Count("or turn the cache off with --no-cache") == 1) != tt.warns {
				t.Errorf("log:\n%s", log.String())
			}
		})
	}
}
