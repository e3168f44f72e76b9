package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// storeScene is a registry with two versions of the null provider, and a home folder whose cache has one of them unpacked.
type storeScene struct {
	*scene
	client clients.Client
	flags  []string
	lock   string // a complete lock file
}

const newerVersion = "3.2.5"

func newStoreScene(t *testing.T, client clients.Client) *storeScene {
	t.Helper()
	s := &storeScene{scene: newScene(t), client: client}
	s.offer(newerVersion)
	r := registry.For(t, registry.Options{})
	s.pushTo(r, world.Null+"@"+nullVersion)
	s.pushTo(r, world.Null+"@"+newerVersion)
	clients.Must(t, s.Close())
	s.flags = []string{"--template", template(r)}
	ws := s.folder("")
	s.init(ws)
	clients.Must(t, ws.WriteConfig(world.UseNull("~> "+nullVersion)))
	s.init(ws) // writes the constraint into the lock file
	clients.Must(t, os.RemoveAll(filepath.Join(ws.Dir, ".terraform")))
	s.init(ws) // unpacks the package
	s.lock = read(t, filepath.Join(ws.Dir, clients.LockFileName))
	if strings.Count(s.lock, "zh:") < 2 || !strings.Contains(s.lock, "h1:") {
		t.Fatalf("the lock file is not complete:\n%s", s.lock)
	}
	return s
}

// folder returns a workspace with the given lock file, and with the home folder of the scene.
func (s *storeScene) folder(lock string) *clients.Workspace {
	s.t.Helper()
	ws := s.user("", "~> "+nullVersion)
	ws.Home = s.ws.Home
	if lock == "" {
		clients.Must(s.t, ws.WriteConfig(world.UseNull(nullVersion)))
		return ws
	}
	clients.Must(s.t, os.WriteFile(filepath.Join(ws.Dir, clients.LockFileName), []byte(lock), 0o644))
	return ws
}

func (s *storeScene) init(ws *clients.Workspace, args ...string) result {
	s.t.Helper()
	return s.exec(ws, nil, append([]string{s.client.Path, "init", "-no-color"}, args...)...)
}

func (s *storeScene) exec(ws *clients.Workspace, flags []string, command ...string) result {
	s.t.Helper()
	return s.execIn(ws, append(append(append([]string{}, s.flags...), flags...), append([]string{"--"}, command...)...)...)
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	clients.Must(t, err)
	return string(data)
}

// laid returns the folder of the package in a workspace.
func laid(ws *clients.Workspace) string {
	return filepath.Join(ws.Dir, ".terraform", "providers", filepath.FromSlash(world.Null), nullVersion, runtime.GOOS+"_"+runtime.GOARCH)
}

// TestStore shows that init ends with the same status and the same lock file whether exec lays the package or not, and in
// which situations exec lays it.
func TestStore(t *testing.T) {
	t.Parallel()
	hash := func(scheme string) *regexp.Regexp { return regexp.MustCompile(`(?m)^ *"` + scheme + `:.*\n`) }
	both(t, func(t *testing.T, client clients.Client) {
		s := newStoreScene(t, client)
		for name, tc := range map[string]struct {
			prepare func(ws *clients.Workspace) // changes the workspace
			lock    func(lock string) string
			command []string
			laid    bool
			status  int
		}{
			"complete lock":       {laid: true},
			"read-only lock file": {command: []string{"init", "-no-color", "-lockfile=readonly"}, laid: true},
			"no newer version": {command: []string{"init", "-no-color", "-upgrade"}, laid: true, prepare: func(ws *clients.Workspace) {
				clients.Must(t, ws.WriteConfig(world.UseNull("<= "+nullVersion)))
			}},
			"providers lock": {command: []string{"providers", "lock", "-no-color", "-platform=linux_amd64", "-platform=windows_amd64"}},
			"overrides": {prepare: func(ws *clients.Workspace) {
				ws.Env["TF_CLI_CONFIG_FILE"] = filepath.Join(ws.Dir, "own.tfrc") // all workspaces have one home folder
				clients.Must(t, os.WriteFile(ws.Env["TF_CLI_CONFIG_FILE"], []byte("provider_installation {\n  dev_overrides {\n    \""+world.Null+"\" = \""+t.TempDir()+"\"\n  }\n  direct {}\n}\n"+s.HostBlock()), 0o600))
			}},
			"newer version": {command: []string{"init", "-no-color", "-upgrade"}},
			"data folder":   {laid: true, prepare: func(ws *clients.Workspace) { ws.Env["TF_DATA_DIR"] = "data" }},
			"chdir": {laid: true, command: []string{"-chdir=sub", "init", "-no-color"}, prepare: func(ws *clients.Workspace) {
				clients.Must(t, os.Mkdir(filepath.Join(ws.Dir, "sub"), 0o755))
				for _, name := range []string{"main.tf", clients.LockFileName} {
					clients.Must(t, os.Rename(filepath.Join(ws.Dir, name), filepath.Join(ws.Dir, "sub", name)))
				}
			}},
			"h1 alone":     {lock: func(lock string) string { return hash("zh").ReplaceAllString(lock, "") }},
			"zh alone":     {lock: func(lock string) string { return hash("h1").ReplaceAllString(lock, "") }},
			"one zh less":  {lock: func(lock string) string { return strings.Replace(lock, hash("zh").FindString(lock), "", 1) }},
			"no lock file": {lock: func(string) string { return "" }},
			"another hash": {status: 1, lock: func(lock string) string {
				return regexp.MustCompile(`"h1:....`).ReplaceAllString(hash("zh").ReplaceAllString(lock, ""), `"h1:AAAA`)
			}},
			"a plugin cache": {prepare: func(ws *clients.Workspace) { ws.Env["TF_PLUGIN_CACHE_DIR"] = t.TempDir() }},
			"an implied mirror": {prepare: func(ws *clients.Workspace) {
				dir := filepath.Join(ws.Dir, "terraform.d", "plugins", filepath.FromSlash(world.Null), nullVersion, runtime.GOOS+"_"+runtime.GOARCH)
				clients.Must(t, os.MkdirAll(dir, 0o755))
				unpack(t, s.null.Package(runtime.GOOS, runtime.GOARCH).Data, dir)
			}},
			"a folder of plugins": {command: []string{"init", "-no-color", "-plugin-dir=plugins"}, prepare: func(ws *clients.Workspace) {
				dir := filepath.Join(ws.Dir, "plugins", filepath.FromSlash(world.Null), nullVersion, runtime.GOOS+"_"+runtime.GOARCH)
				clients.Must(t, os.MkdirAll(dir, 0o755))
				unpack(t, s.null.Package(runtime.GOOS, runtime.GOARCH).Data, dir)
			}},
			"denied": {status: 1, prepare: func(ws *clients.Workspace) {
				clients.Must(t, os.WriteFile(filepath.Join(ws.Dir, "ocibridge.hcl"), []byte("gateway {\n  deny = [\""+world.Null+"@"+nullVersion+"\"]\n}\n"), 0o600))
			}},
			"a key that is not trusted": {status: 1, prepare: func(ws *clients.Workspace) {
				clients.Must(t, os.WriteFile(filepath.Join(ws.Dir, "ocibridge.hcl"), []byte("gateway {\n  verify = \"required\"\n}\ntrust \"*/*/*\" {\n  keys = [\""+strings.Repeat("AB", 20)+"\"]\n}\n"), 0o600))
			}},
		} {
			t.Run(name, func(t *testing.T) {
				results := map[bool]result{}
				locks, isLaid := map[bool]string{}, false
				for _, store := range []bool{false, true} {
					lock := s.lock
					if tc.lock != nil {
						lock = tc.lock(lock)
					}
					ws := s.folder(lock)
					if tc.prepare != nil {
						tc.prepare(ws)
					}
					command := tc.command
					if command == nil {
						command = []string{"init", "-no-color"}
					}
					var flags []string
					if !store {
						flags = []string{"--no-store"}
					}
					got := s.exec(ws, flags, append([]string{client.Path}, command...)...)
					results[store] = got
					_, err := os.Lstat(laid(ws))
					isLaid = err == nil
					dir := ws.Dir
					if name == "chdir" {
						dir = filepath.Join(dir, "sub")
					}
					if text, err := os.ReadFile(filepath.Join(dir, clients.LockFileName)); err == nil {
						locks[store] = string(text)
					}
					if store && tc.laid && tc.command == nil {
						ws.Dir = dir
						ws.MustRun(t, client, "plan", "-no-color")
					}
				}
				if results[false].status != tc.status || results[true].status != tc.status || locks[true] != locks[false] {
					t.Errorf("status %d, %d; want %d\nlock files:\n%s\n%s\noutput:\n%s\n%s", results[false].status, results[true].status, tc.status, locks[false], locks[true], results[false].stdout+results[false].stderr, results[true].stdout+results[true].stderr)
				}
				if tc.status != 0 && isLaid {
					t.Error("the package is laid")
				}
				if got := strings.Contains(results[true].stdout, "Using previously-installed"); got != tc.laid || strings.Contains(results[false].stdout, "Using previously-installed") {
					t.Errorf("laid: %t, want %t\n%s", got, tc.laid, results[true].stdout)
				}
			})
		}
	})
}

// TestStoreOtherClient shows that init ends with the same lock file if the other client has written the one that is there.
func TestStoreOtherClient(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := registry.For(t, registry.Options{})
	for _, host := range []string{"registry.terraform.io", "registry.opentofu.org"} {
		s.pushTo(r, append(s.releaseFolder(), "--as", host+"/hashicorp/null@"+nullVersion)...)
	}
	clients.Must(t, s.Close())
	folder := func(lock string) *clients.Workspace {
		ws := s.user("", nullVersion)
		ws.Home = s.ws.Home
		clients.Must(t, ws.WriteConfig(strings.ReplaceAll(world.UseNull(nullVersion), world.Null, "hashicorp/null")))
		if lock != "" {
			clients.Must(t, os.WriteFile(filepath.Join(ws.Dir, clients.LockFileName), []byte(lock), 0o644))
		}
		return ws
	}
	init := func(ws *clients.Workspace, client clients.Client, flags ...string) (lock, output string) {
		t.Helper()
		got := s.execIn(ws, append(append([]string{"--template", template(r)}, flags...), "--", client.Path, "init", "-no-color")...)
		if got.status != 0 {
			t.Fatalf("status %d\n%s%s", got.status, got.stdout, got.stderr)
		}
		return read(t, filepath.Join(ws.Dir, clients.LockFileName)), got.stdout
	}
	terraform, tofu := clients.Terraform(t), clients.Tofu(t)
	for _, pair := range [][2]clients.Client{{terraform, tofu}, {tofu, terraform}} {
		lock, _ := init(folder(""), pair[0])
		// OpenTofu 1.10.6 does not lock all hashes that its own registry lists, and 1.12 adds the others: exec leaves that to it.
		complete := pair[0].Name != "tofu" || pair[0].Since(t, "1.12.0")
		if again, out := init(folder(lock), pair[0]); again != lock || strings.Contains(out, "Using previously-installed") != complete {
			t.Errorf("%s again: laid: %t, want %t; or the lock file has changed:\n%s\n%s", pair[0].Name, !complete, complete, out, again)
		}
		without, _ := init(folder(lock), pair[1], "--no-store")
		ws := folder(lock)
		if with, _ := init(ws, pair[1]); with != without {
			t.Errorf("%s after %s:\n%s\nwithout the store:\n%s", pair[1].Name, pair[0].Name, with, without)
		}
		copied := folder("")
		clients.Must(t, os.CopyFS(filepath.Join(copied.Dir, "copy"), os.DirFS(ws.Dir)))
		copied.Dir = filepath.Join(copied.Dir, "copy")
		if with, _ := init(copied, pair[1]); with != without {
			t.Errorf("a copied workspace of %s:\n%s", pair[1].Name, with)
		}
	}
}

// TestStoreInitFetches shows that exec fetches a locked package itself for init, also in a shell, and not for other commands.
func TestStoreInitFetches(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, client clients.Client) {
		s := newStoreScene(t, client)
		cache := filepath.Join(s.ws.Home, ".cache", "ocibridge", "archives")
		for name, tc := range map[string]struct {
			command []string
			laid    bool
		}{
			"init":          {[]string{client.Path, "init", "-no-color"}, true},
			"in a shell":    {[]string{"sh", "-c", client.Path + " init -no-color"}, true},
			"below":         {[]string{"sh", "-c", "mkdir inner && cp main.tf inner && cd inner && " + client.Path + " init -no-color"}, false},
			"another":       {[]string{"sh", "-c", "true"}, false},
			"not installed": {[]string{client.Path, "version"}, false},
		} {
			clients.Must(t, os.RemoveAll(cache))
			ws := s.folder(s.lock)
			got := s.exec(ws, nil, tc.command...)
			if used := strings.Contains(got.stdout, "Using previously-installed"); got.status != 0 || used != tc.laid {
				t.Errorf("%s: status %d, laid %t\n%s%s", name, got.status, used, got.stdout, got.stderr)
			}
			if _, err := os.Stat(filepath.Join(ws.Dir, ".terraform")); name == "another" && err == nil || name == "not installed" && err == nil {
				t.Errorf("%s: there is a data folder", name)
			}
		}
	})
}

// TestStoreLinks shows that links are mended: those that dangle, and those to packages that are no longer locked.
func TestStoreLinks(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, client clients.Client) {
		s := newStoreScene(t, client)
		config := []byte("gateway {\n  cache {\n    store = \"link\"\n  }\n}\n")
		ws := s.folder(s.lock)
		clients.Must(t, os.WriteFile(filepath.Join(ws.Dir, "ocibridge.hcl"), config, 0o600))
		init := func() {
			t.Helper()
			if got := s.init(ws); got.status != 0 || !strings.Contains(got.stdout, "Using previously-installed") {
				t.Fatalf("status %d\n%s%s", got.status, got.stdout, got.stderr)
			}
			if to, err := os.Readlink(laid(ws)); err != nil || !strings.HasPrefix(to, s.ws.Home) {
				t.Errorf("%s, %v", to, err)
			}
			ws.MustRun(t, client, "plan", "-no-color")
		}
		init()
		clients.Must(t, os.RemoveAll(filepath.Join(s.ws.Home, ".cache", "ocibridge", "archives")))
		init()
		// A moved workspace still has its packages.
		moved := ws.Dir + "-moved"
		clients.Must(t, os.Rename(ws.Dir, moved))
		ws.Dir = moved
		init()
		// An upgrade, and the next exec without a lock for the linked version.
		if got := s.init(ws, "-upgrade"); got.status != 0 || !strings.Contains(read(t, filepath.Join(ws.Dir, clients.LockFileName)), newerVersion) {
			t.Fatalf("status %d\n%s%s", got.status, got.stdout, got.stderr)
		}
		s.exec(ws, nil, client.Path, "version")
		if _, err := os.Lstat(laid(ws)); err == nil {
			t.Error("the link to the old version is still there")
		}
	})
}

// TestStoreDamaged shows that a damaged package in the cache is noticed before it is laid.
func TestStoreDamaged(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, client clients.Client) {
		s := newStoreScene(t, client)
		found, err := filepath.Glob(filepath.Join(s.ws.Home, ".cache", "ocibridge", "archives", "unpacked", "*", "terraform-provider-*"))
		clients.Must(t, err)
		if len(found) != 1 {
			t.Fatalf("%v are stored", found)
		}
		clients.Must(t, os.Chmod(found[0], 0o755))
		f, err := os.OpenFile(found[0], os.O_WRONLY, 0)
		clients.Must(t, err)
		_, err = f.WriteAt([]byte{0}, 1000)
		clients.Must(t, err)
		clients.Must(t, f.Close())
		ws := s.folder(s.lock)
		if got := s.init(ws); got.status != 0 || !strings.Contains(got.stdout, "Using previously-installed") {
			t.Errorf("status %d\n%s%s", got.status, got.stdout, got.stderr)
		}
		ws.MustRun(t, client, "plan", "-no-color")
		if text := read(t, filepath.Join(ws.Dir, clients.LockFileName)); text != s.lock {
			t.Errorf("the lock file changed:\n%s", text)
		}
	})
}
