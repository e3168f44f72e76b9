package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// usage runs ocibridge usage on the logs of gateways, which it stops. It returns the number of installations for each
// user of each version.
func (s *scene) usage(gateways ...*world.Gateway) []string {
	s.t.Helper()
	args := []string{"usage", "--quiet", "--output", "json"}
	for i, g := range gateways {
		clients.Must(s.t, g.Stop()) // completes the log
		file := filepath.Join(s.t.TempDir(), fmt.Sprintf("serve.log.%d", i))
		clients.Must(s.t, os.WriteFile(file, []byte(g.Log()), 0o600))
		args = append(args, file)
	}
	type used struct {
		Provider, Module string
		Versions         []struct {
			Version string
			Users   []struct {
				Name     string
				Installs int
			}
		}
	}
	var got struct {
		Logs               struct{ Broken, Older int }
		Providers, Modules []used
	}
	clients.Must(s.t, json.Unmarshal([]byte(s.mustRun(args...)), &got))
	if got.Logs.Broken != 0 || got.Logs.Older != 0 {
		s.t.Errorf("%+v", got.Logs)
	}
	var out []string
	for _, of := range append(got.Providers, got.Modules...) {
		for _, v := range of.Versions {
			for _, u := range v.Users {
				out = append(out, fmt.Sprintf("%s%s %s: %s, %d", of.Provider, of.Module, v.Version, u.Name, u.Installs))
			}
		}
	}
	slices.Sort(out)
	return out
}

// TestUsage shows that usage finds out from the logs of gateways, in both formats, which versions real clients have
// installed, by every protocol and with each token. A client with the package in its plugin cache installs nothing.
func TestUsage(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.offer("3.2.3")
	s.push(world.Null+"@"+nullVersion, world.Null+"@3.2.3")
	s.mustRun("module", "push", s.moduleFolder(), "--as", vpc+"@1.0.0", "--data", s.data)
	config := filepath.Join(t.TempDir(), "ocibridge.hcl")
	clients.Must(t, os.WriteFile(config, fmt.Appendf(nil, "gateway {\n  token \"acme\" {\n    sha256 = \"%x\"\n  }\n  token \"other\" {\n    sha256 = \"%x\"\n  }\n}\n",
		sha256.Sum256([]byte(acmeToken)), sha256.Sum256([]byte(otherToken))), 0o600))
	open, closed := s.serve("--data", s.data), s.serve("--data", s.data, "--config", config, "--log-format", "json")
	hosts := func(g *world.Gateway) string {
		return fmt.Sprintf("host %q {\n  services = {\n    \"modules.v1\" = \"https://%s/hosts/%[1]s/v1/modules/\"\n    \"providers.v1\" = \"https://%[2]s/hosts/%[1]s/v1/providers/\"\n  }\n}\n", world.Host, authority(g))
	}
	both(t, func(t *testing.T, client clients.Client) {
		s.user(world.NetworkMirror(open.URL), nullVersion).MustRun(t, client, "init", "-no-color")
		s.user(world.NetworkMirror(closed.URL)+credentials(closed, acmeToken), nullVersion).MustRun(t, client, "init", "-no-color")

		// By the registry protocols, whose tokens belong to the host of the provider. The second run finds the package in the plugin cache.
		cache := t.TempDir()
		for range 2 {
			ws := s.user(hosts(closed)+fmt.Sprintf("credentials %q {\n  token = %q\n}\nplugin_cache_dir = %q\n", world.Host, otherToken, cache), "3.2.3")
			ws.Env["TF_PLUGIN_CACHE_MAY_BREAK_DEPENDENCY_LOCK_FILE"] = "true"
			ws.MustRun(t, client, "init", "-no-color")
		}
		ws := s.workspace(hosts(closed) + fmt.Sprintf("credentials %q {\n  token = %q\n}\n", world.Host, acmeToken))
		clients.Must(t, ws.WriteConfig(fmt.Sprintf("module \"vpc\" {\n  source  = %q\n  version = \"~> 1.0\"\n  name    = \"you\"\n}\n", vpc)))
		ws.MustRun(t, client, "get", "-no-color")
	})
	// OpenTofu reads the embedded registry itself. No request tells which version a package belongs to.
	ws := s.user(world.OCIMirror(closed.RepositoryTemplate)+fmt.Sprintf("oci_credentials %q {\n  username = \"token\"\n  password = %q\n}\n", authority(closed), otherToken), nullVersion)
	ws.MustRun(t, clients.Tofu(t), "init", "-no-color")
	want := []string{
		vpc + " 1.0.0: token acme, 2",
		world.Null + " 3.2.3: token other, 2",
		world.Null + " 3.2.4: client 127.0.0.1, 2",
		world.Null + " 3.2.4: token acme, 2",
		world.Null + " 3.2.4: token other, 0",
	}
	slices.Sort(want)
	if got := s.usage(open, closed); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
