package cliconfig_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/clients/cliconfig"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

const nullVersion = "3.2.4"

// services are origin registries behind one address. Each registry has its own path.
type services struct {
	URL string

	mu        sync.Mutex
	tokens    map[string]string // the Authorization header of requests for versions, by path
	downloads map[string]bool   // the paths with requests for a package
}

func newServices(t *testing.T, w *world.World) *services {
	t.Helper()
	null, err := w.NullRelease(nullVersion)
	clients.Must(t, err)
	s := &services{tokens: map[string]string{}, downloads: map[string]bool{}}
	o := origin.New(origin.Options{}, null)
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		path, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		s.record(path, rest, r.Header.Get("Authorization"))
		http.StripPrefix("/"+path, o).ServeHTTP(rw, r)
	}))
	t.Cleanup(srv.Close)
	s.URL = srv.URL
	return s
}

func (s *services) record(path, rest, token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.HasSuffix(rest, "/versions") {
		s.tokens[path] = token
	}
	if strings.Contains(rest, "/download/") {
		s.downloads[path] = true
	}
}

// providers returns the address of a registry's service.
func (s *services) providers(path string) string { return s.URL + "/" + path + origin.ServicePath }

// downloaded reports whether there was a request for a package.
func (s *services) downloaded(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.downloads[path]
}

// seen returns the tokens of the requests since the last call.
func (s *services) seen() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.tokens
	s.tokens = map[string]string{}
	return seen
}

// A configuration of a user in several files. %[1]s is the address of the registries, and %[2]s the home folder.
const (
	mainInHCL = `
plugin_cache_dir   = "$HOME/cache" # a variable
disable_checkpoint = true
unknown_setting    = [1, { a = "${b}" }, <<EOT
heredoc
EOT
]
host "file.test"    { services = { "providers.v1" = "%[1]s/file.test/v1/providers/" } }
host "login.test"   { services = { "providers.v1" = "%[1]s/login.test/v1/providers/" } }
host "helper.test"  { services = { "providers.v1" = "%[1]s/helper.test/v1/providers/" } }
host "gateway.test" { services = { "providers.v1" = "%[1]s/own.test/v1/providers/", "login.v1" = { client = "cli" } } }
credentials "file.test"    { token = "from-\"file\"-${a["b"]}" }
credentials "login.test"   { token = "replaced-by-login" }
credentials "gateway.test" { token = "for-the-gateway" }
credentials_helper "fake"  { args = ["--verbose"] }
oci_credentials "ghcr.io/acme" {
  username = "u"
  password = "p"
}
oci_default_credentials { docker_style_config_files = [] }
provider_installation {
  dev_overrides { "dev.test/acme/null" = "%[2]s/dev" }
  direct { exclude = ["other.test/*/*"] }
}
`
	mainInJSON = `{
"plugin_cache_dir": "$HOME/cache", "disable_checkpoint": true, "unknown_setting": [1, {"a": "${b"}],
"host": {
  "file.test":    {"services": {"providers.v1": "%[1]s/file.test/v1/providers/"}},
  "login.test":   {"services": {"providers.v1": "%[1]s/login.test/v1/providers/"}},
  "helper.test":  {"services": {"providers.v1": "%[1]s/helper.test/v1/providers/"}},
  "gateway.test": {"services": {"providers.v1": "%[1]s/own.test/v1/providers/", "login.v1": {"client": "cli"}}}
},
"credentials": {
  "file.test": {"token": "from-\"file\"-${a[\"b\"]}"}, "login.test": {"token": "replaced-by-login"}, "gateway.test": {"token": "for-the-gateway"}
},
"credentials_helper": {"fake": {"args": ["--verbose"]}},
"oci_credentials": {"ghcr.io/acme": {"username": "u", "password": "p"}},
"oci_default_credentials": {"docker_style_config_files": []},
"provider_installation": {
  "dev_overrides": {"dev.test/acme/null": "%[2]s/dev"},
  "direct": [{"exclude": ["other.test/*/*"]}]
}}`
	loginFile  = `{"credentials": {"login.test": {"token": "from-login"}}}`
	fakeHelper = `#!/bin/sh
case "$*" in
"--verbose get helper.test") echo '{"token": "from-helper"}' ;;
*) echo '{}' ;;
esac
`
)

// TestMergedWithClients shows that both clients behave the same with the merged configuration as with the user's
// files: the tokens of files, of a login and of a helper, the plugin cache, and overrides for development. Only the host
// that the caller gives is served elsewhere.
func TestMergedWithClients(t *testing.T) {
	testkit.WithoutRace(t)
	t.Parallel()
	w := world.For(t)
	for name, config := range map[string]string{"HCL": mainInHCL, "JSON": mainInJSON} {
		for _, c := range []struct {
			clients.Client
			kind cliconfig.Client
			main string
		}{
			{clients.Tofu(t), cliconfig.OpenTofu, ".tofurc"},
			{clients.Terraform(t), cliconfig.Terraform, ".terraformrc"},
		} {
			t.Run(name+"/"+c.Name, func(t *testing.T) {
				t.Parallel()
				s := newServices(t, w)
				ws := clients.For(t)
				ws.Env["TF_CLI_CONFIG_FILE"] = ""
				writeUserFiles(t, ws, c.main, fmt.Sprintf(config, s.URL, ws.Home))
				clients.Must(t, ws.WriteConfig(useNullOf("file.test", "login.test", "helper.test", "gateway.test")))

				installInto(t, ws, c.Client)
				own := s.seen()
				want := map[string]string{
					"file.test": `Bearer from-"file"-${a["b"]}`, "login.test": "Bearer from-login", "helper.test": "Bearer from-helper", "own.test": "Bearer for-the-gateway",
				}
				if !reflect.DeepEqual(own, want) {
					t.Fatalf("with the user's files, the client sends %q, want %q", own, want)
				}

				ws.Env["TF_CLI_CONFIG_FILE"] = writeMerged(t, ws, c.kind, map[svchost.Hostname]map[string]any{"gateway.test": {"providers.v1": s.providers("served.test")}})
				installInto(t, ws, c.Client)
				delete(want, "own.test")
				want["served.test"] = "Bearer for-the-gateway"
				if merged := s.seen(); !reflect.DeepEqual(merged, want) {
					t.Errorf("with the merged file, the client sends %q, want %q", merged, want)
				}
				checkOverride(t, ws, c.Client)
				ws.MustRun(t, c.Client, "logout", "login.test")
				if left, err := os.ReadFile(filepath.Join(ws.Home, ".terraform.d", "credentials.tfrc.json")); err != nil || strings.Contains(string(left), "from-login") {
					t.Errorf("after a logout, the file of logins is %s, %v", left, err)
				}
			})
		}
	}
}

// TestCheckInstallationWithClients shows that a client installs a provider from its host if CheckInstallation has no objection, and
// only then.
func TestCheckInstallationWithClients(t *testing.T) {
	testkit.WithoutRace(t)
	t.Parallel()
	w := world.For(t)
	for name, block := range map[string]string{
		"nothing":               "",
		"direct":                "provider_installation {\n direct {}\n}",
		"direct for others":     `provider_installation { direct { include = ["other.test/*/*"] } }`,
		"direct without host":   `provider_installation { direct { exclude = ["served.test/*/*"] } }`,
		"overrides alone":       `provider_installation { dev_overrides { "dev.test/acme/null" = "/nowhere" } }`,
		"mirror alone":          "provider_installation {\n MIRROR\n}",
		"mirror and direct":     "provider_installation {\n MIRROR\n direct {}\n}",
		"mirror for others":     "provider_installation {\n OTHERS\n direct {}\n}",
		"mirror, direct others": "provider_installation {\n MIRROR\n direct { include = [\"other.test/*/*\"] }\n}",
	} {
		for _, c := range []struct {
			clients.Client
			kind cliconfig.Client
		}{{clients.Tofu(t), cliconfig.OpenTofu}, {clients.Terraform(t), cliconfig.Terraform}} {
			t.Run(name+"/"+c.Name, func(t *testing.T) {
				t.Parallel()
				s, ws := newServices(t, w), clients.For(t)
				mirror := filepath.Join(ws.Home, "mirror")
				dir := filepath.Join(mirror, "served.test", "acme", "null", nullVersion, runtime.GOOS+"_"+runtime.GOARCH)
				clients.Must(t, os.MkdirAll(dir, 0o755))
				linkNull(t, dir)
				block := strings.NewReplacer("MIRROR", fmt.Sprintf("filesystem_mirror { path = %q }", mirror),
					"OTHERS", fmt.Sprintf("filesystem_mirror {\n path = %q\n exclude = [\"served.test/*/*\"]\n}", mirror)).Replace(block)
				clients.Must(t, ws.WriteCLIConfig(fmt.Sprintf("host \"served.test\" { services = { \"providers.v1\" = %q } }\n", s.providers("served.test"))+block))
				clients.Must(t, ws.WriteConfig(useNullOf("served.test")))
				ws.Env["TF_CLI_CONFIG_FILE"] = ws.CLIConfigPath()

				objection := readMerged(t, ws, c.kind).CheckInstallation("served.test")
				output, err := ws.Run(c.Client, "init", "-no-color")
				if downloaded := s.downloaded("served.test"); downloaded != (objection == nil) {
					t.Errorf("downloaded from the host: %v, although the objection is: %v\n%s%v", downloaded, objection, output, err)
				}
			})
		}
	}
}

// writeUserFiles writes the files of a user into the home folder.
func writeUserFiles(t *testing.T, ws *clients.Workspace, main, config string) {
	t.Helper()
	folder := filepath.Join(ws.Home, ".terraform.d")
	for _, dir := range []string{filepath.Join(folder, "plugins"), filepath.Join(ws.Home, "cache"), filepath.Join(ws.Home, "dev")} {
		clients.Must(t, os.MkdirAll(dir, 0o755))
	}
	clients.Must(t, os.WriteFile(filepath.Join(ws.Home, main), []byte(config), 0o600))
	clients.Must(t, os.WriteFile(filepath.Join(folder, "credentials.tfrc.json"), []byte(loginFile), 0o600))
	clients.Must(t, os.WriteFile(filepath.Join(folder, "plugins", "terraform-credentials-fake"), []byte(fakeHelper), 0o755))
	linkNull(t, filepath.Join(ws.Home, "dev"))
}

// linkNull puts the null provider into a folder.
func linkNull(t *testing.T, dir string) {
	t.Helper()
	binaries, err := clients.NullProvider()
	clients.Must(t, err)
	for _, b := range binaries {
		if b.OS == runtime.GOOS && b.Arch == runtime.GOARCH {
			clients.Must(t, os.Symlink(b.Path, filepath.Join(dir, "terraform-provider-null")))
		}
	}
}

// readMerged reads the configuration of a client that runs in the workspace.
func readMerged(t *testing.T, ws *clients.Workspace, kind cliconfig.Client) *cliconfig.Merged {
	t.Helper()
	m, err := cliconfig.ReadMerged(cliconfig.Environment{
		Getenv: func(name string) string { return ws.Env[name] }, ReadFile: files.Read, ReadDir: os.ReadDir,
		Home: ws.Home, Dir: ws.Dir, GOOS: runtime.GOOS,
	}, kind)
	clients.Must(t, err)
	return m
}

// writeMerged writes the configuration that the client reads into one file, and returns its name.
func writeMerged(t *testing.T, ws *clients.Workspace, kind cliconfig.Client, hosts map[svchost.Hostname]map[string]any) string {
	t.Helper()
	text, err := readMerged(t, ws, kind).WithHosts(hosts, slices.Collect(maps.Keys(hosts)))
	clients.Must(t, err)
	name := filepath.Join(t.TempDir(), "merged.tfrc")
	clients.Must(t, os.WriteFile(name, text, 0o600))
	return name
}

// installInto runs init in an empty workspace, and checks that the client fills the plugin cache.
func installInto(t *testing.T, ws *clients.Workspace, c clients.Client) {
	t.Helper()
	cache := filepath.Join(ws.Home, "cache")
	clients.Must(t, os.RemoveAll(cache))
	clients.Must(t, os.Mkdir(cache, 0o755))
	clients.Must(t, ws.Clean())
	ws.MustRun(t, c, "init")
	for _, host := range []string{"file.test", "login.test", "helper.test", "gateway.test"} {
		if _, err := os.Stat(filepath.Join(cache, host, "acme", "null", nullVersion)); err != nil {
			t.Errorf("the plugin cache: %v", err)
		}
	}
}

// checkOverride checks that the client uses a provider in development, which it can find only through dev_overrides.
func checkOverride(t *testing.T, ws *clients.Workspace, c clients.Client) {
	t.Helper()
	dev := *ws
	dev.Dir = t.TempDir()
	dev.Env = maps.Clone(ws.Env)
	clients.Must(t, dev.WriteConfig(useNullOf("dev.test")))
	if output := dev.MustRun(t, c, "validate", "-no-color"); !strings.Contains(output, "dev.test/acme/null in "+filepath.Join(ws.Home, "dev")) {
		t.Errorf("validate does not mention the override:\n%s", output)
	}
}

// useNullOf returns a configuration that requires the null provider of each host.
func useNullOf(hosts ...string) string {
	var required, resources strings.Builder
	for _, host := range hosts {
		name, _, _ := strings.Cut(host, ".")
		fmt.Fprintf(&required, "    %s = {\n      source = \"%s/acme/null\"\n    }\n", name, host)
		fmt.Fprintf(&resources, "resource \"null_resource\" %q {\n  provider = %s\n}\n", name, name)
	}
	return "terraform {\n  required_providers {\n" + required.String() + "  }\n}\n" + resources.String()
}
