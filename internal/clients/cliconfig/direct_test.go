package cliconfig

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/provider"
)

// TestInstallsFromHost shows when a client may install a provider from elsewhere than its host.
func TestInstallsFromHost(t *testing.T) {
	null := provider.MustParseAddress("registry.acme.example/acme/null")
	for name, tc := range map[string]struct {
		config string
		env    map[string]string
		folder string // of the provider, below the home folder
		want   bool
	}{
		"nothing":                       {want: true},
		"direct":                        {config: `provider_installation { direct {} }`, want: true},
		"cache":                         {config: `plugin_cache_dir = "/cache"`},
		"no cache":                      {config: `plugin_cache_dir = ""`, want: true},
		"cache in a variable":           {env: map[string]string{"TF_PLUGIN_CACHE_DIR": "/cache"}},
		"mirror":                        {config: "provider_installation {\n  filesystem_mirror {\n    path = \"/mirror\"\n  }\n  direct {}\n}"},
		"mirror of another provider":    {config: "provider_installation {\n  filesystem_mirror {\n    path = \"/mirror\"\n    include = [\"example.com/*/*\"]\n  }\n  direct {}\n}", want: true},
		"only a mirror":                 {config: "provider_installation {\n  filesystem_mirror {\n    path = \"/mirror\"\n  }\n}"},
		"overrides":                     {config: "provider_installation {\n  dev_overrides {\n    \"acme/null\" = \"/here\"\n  }\n  direct {}\n}"},
		"plugin folder":                 {folder: ".terraform.d/plugins/registry.acme.example/acme/null"},
		"plugin folder of data":         {folder: ".local/share/terraform/plugins/registry.acme.example/acme/null"},
		"plugin folder here":            {folder: "work/terraform.d/plugins/registry.acme.example/acme/null"},
		"plugin folder of another":      {folder: ".terraform.d/plugins/registry.acme.example/acme/time", want: true},
		"plugin folder is not searched": {config: `provider_installation { direct {} }`, folder: ".terraform.d/plugins/registry.acme.example/acme/null", want: true},
	} {
		home := t.TempDir()
		if tc.folder != "" {
			clients.Must(t, os.MkdirAll(filepath.Join(home, filepath.FromSlash(tc.folder), "1.0.0"), 0o755))
		}
		clients.Must(t, os.WriteFile(filepath.Join(home, "config"), []byte(tc.config), 0o600))
		vars := map[string]string{"TF_CLI_CONFIG_FILE": filepath.Join(home, "config"), "XDG_DATA_DIRS": filepath.Join(home, "nothing")}
		for k, v := range tc.env {
			vars[k] = v
		}
		env := Environment{
			Getenv: func(name string) string { return vars[name] }, ReadFile: os.ReadFile, ReadDir: os.ReadDir, Home: home, Dir: filepath.Join(home, "work"), GOOS: "linux",
		}
		for _, client := range []Client{OpenTofu, Terraform} {
			m, err := ReadMerged(env, client)
			clients.Must(t, err)
			if got := m.InstallsFromHost(env, null); got != tc.want {
				t.Errorf("%s, client %d: %t", name, client, got)
			}
		}
	}
}
