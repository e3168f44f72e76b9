package e2e

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/testkit/world"
)

// execFolder is where exec keeps private files, below the home folder.
const execFolder = ".cache/ocibridge/exec"

// wantNoFile fails the test if exec has left a private file behind.
func wantNoFile(t *testing.T, ws *clients.Workspace) {
	t.Helper()
	left, err := os.ReadDir(filepath.Join(ws.Home, execFolder))
	clients.Must(t, err)
	if len(left) > 0 {
		t.Errorf("exec left %v behind", left)
	}
}

// both runs a test with both clients.
func both(t *testing.T, f func(t *testing.T, client clients.Client)) {
	for _, client := range []clients.Client{clients.Terraform(t), clients.Tofu(t)} {
		t.Run(client.Name, func(t *testing.T) { f(t, client) })
	}
}

// TestExec runs the commands of both clients that obtain providers, while the origin is down. The registries are
// the embedded one, and one that requires a login.
func TestExec(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := registry.For(t, registry.Options{Users: map[string]string{"user": "password"}})
	login(s.ws, r)
	s.pushTo(r, world.Null+"@"+nullVersion)
	s.push(world.Null + "@" + nullVersion)
	clients.Must(t, s.Close())
	for name, flags := range map[string][]string{"embedded": {"--data", s.data}, "login": {"--template", template(r)}} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, client clients.Client) {
				ws := s.user("", nullVersion)
				login(ws, r)
				exec := func(args ...string) string {
					t.Helper()
					return ws.MustRun(t, s.bridge, append(append(append([]string{"exec"}, flags...), "--", client.Path), args...)...)
				}
				if out := exec("init", "-no-color"); !strings.Contains(out, "signed") {
					t.Errorf("not signed:\n%s", out)
				}
				for _, p := range s.null.Packages {
					if locked := hashesOf(t, ws, "zh:"); !slices.Contains(locked, "zh:"+p.SHA256) {
						t.Errorf("the lock file has %v, and not the hash for %s", locked, p.Filename)
					}
				}
				exec("providers", "lock", "-no-color", "-platform=linux_amd64", "-platform=windows_amd64")
				exec("providers", "mirror", "-no-color", "mirror")
				if _, err := os.Stat(filepath.Join(ws.Dir, "mirror", world.Null, nullVersion+".json")); err != nil {
					t.Error(err)
				}
				if out := exec("apply", "-no-color", "-auto-approve"); !strings.Contains(out, "Apply complete!") {
					t.Errorf("apply:\n%s", out)
				}
				wantNoFile(t, ws)
			})
		})
	}
}

// login stores the login of a registry as docker does.
func login(ws *clients.Workspace, r *registry.Registry) {
	ws.Env["DOCKER_CONFIG"] = ws.Home
	auth := base64.StdEncoding.EncodeToString([]byte("user:password"))
	os.WriteFile(filepath.Join(ws.Home, "config.json"), fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, r.Host, auth), 0o600)
}
