package e2e

import (
	"archive/zip"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
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

// both runs a test with each client that is there.
func both(t *testing.T, f func(t *testing.T, client clients.Client)) {
	for _, name := range []string{"terraform", "tofu"} {
		t.Run(name, func(t *testing.T) { f(t, clients.Program(t, name)) })
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

// execIn runs ocibridge exec in a workspace until it exits.
func (s *scene) execIn(ws *clients.Workspace, args ...string) result {
	s.t.Helper()
	was := s.ws
	s.ws = ws
	defer func() { s.ws = was }()
	return s.run(append([]string{"exec"}, args...)...)
}

// TestExecStatus shows that exec has the exit status of its command, and prints nothing itself unless it fails.
func TestExecStatus(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	file := filepath.Join(t.TempDir(), "file")
	clients.Must(t, os.WriteFile(file, nil, 0o600))
	const unasked = "note: the command requested nothing from exec, which serves the providers and modules of "
	for name, tc := range map[string]struct {
		command []string
		status  int
		stderr  string
	}{
		"success":              {[]string{"true"}, 0, ""},
		"failure":              {[]string{"sh", "-c", "exit 7"}, 7, unasked},
		"ended by a signal":    {[]string{"sh", "-c", "kill -TERM $$"}, 128 + 15, unasked},
		"no such command":      {[]string{"no-such-command"}, 127, "error: no-such-command: no such command\nhint: check its name"},
		"no such file":         {[]string{"./no-such-file"}, 127, "error: ./no-such-file: no such command\nhint: check its name"},
		"not executable":       {[]string{file}, 126, "error: " + file + " does not run: "},
		"a plan with changes":  {[]string{"sh", "-c", "echo changed; exit 2", "sh", "-detailed-exitcode"}, 2, ""},
		"flags of the command": {[]string{"sh", "-c", "exit $1", "sh", "3", "--help"}, 3, unasked},
	} {
		t.Run(name, func(t *testing.T) {
			got := s.run(append([]string{"exec", "--data", s.data, "--"}, tc.command...)...)
			if got.status != tc.status || !strings.HasPrefix(got.stderr, tc.stderr) || tc.stderr == "" && got.stderr != "" {
				t.Errorf("status %d, stderr %q; want %d, %q", got.status, got.stderr, tc.status, tc.stderr)
			}
		})
	}
	if got := s.run("exec", "--data", s.data); got.status != 2 || !strings.Contains(got.stderr, "hint: write it after --") {
		t.Errorf("without a command: %+v", got)
	}
	wantNoFile(t, s.ws)
}

// TestExecPassesThrough shows that the command has the standard streams, the environment and the arguments of exec.
func TestExecPassesThrough(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.ws.Env["MARK"] = "environment"
	cmd := s.ws.Command(t.Context(), s.bridge, "exec", "--data", s.data, "--", "sh", "-c", `cat; echo "$MARK $1"; echo errors >&2; stat -c %a "$TF_CLI_CONFIG_FILE" "$(dirname "$TF_CLI_CONFIG_FILE")"`, "sh", "argument with spaces")
	cmd.Stdin = strings.NewReader("input\n")
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	clients.Must(t, cmd.Run())
	if stdout.String() != "input\nenvironment argument with spaces\n600\n700\n" || stderr.String() != "errors\n" {
		t.Errorf("stdout %q, stderr %q", stdout.String(), stderr.String())
	}
}

// TestExecMissing shows what exec prints if the registry lacks a provider.
func TestExecMissing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := registry.For(t, registry.Options{})
	both(t, func(t *testing.T, client clients.Client) {
		ws := s.user("", nullVersion)
		got := s.execIn(ws, "--template", template(r), "--include", world.Host+"/*/*", "--", client.Path, "init", "-no-color")
		want := "error: " + r.Host + "/providers/" + world.Null + " has no signed version of " + world.Null + "\nhint: check the names of the repository and the provider; to add the newest version: ocibridge push '" + world.Null + "@>= 0', with the same --template, --include\n"
		if got.status != 1 || !strings.HasSuffix(got.stderr, want) {
			t.Errorf("status %d, stderr\n%s\nwant\n%s", got.status, got.stderr, want)
		}
		r := registry.For(t, registry.Options{})
		r.Stop()
		if got = s.execIn(ws, "--template", template(r), "--", client.Path, "init", "-no-color"); got.status != 1 || strings.Count(got.stderr, "\nerror: cannot answer: ") != 1 || !strings.Contains(got.stderr, "connection refused\nhint: nothing listens at that address") {
			t.Errorf("while the registry is down: status %d, stderr\n%s", got.status, got.stderr)
		}
	})
}

// TestExecMissingVersion shows what exec prints about a version of a stored provider that clients do not get. The
// version is absent, denied, or unsigned. The configuration or the lock file requires it.
func TestExecMissingVersion(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := registry.For(t, registry.Options{})
	s.pushTo(r, world.Null+"@"+nullVersion)
	repo, client := r.Host+"/providers/"+world.Null, clients.Terraform(t)
	fails := func(ws *clients.Workspace, want string) {
		t.Helper()
		got := s.execIn(ws, "--template", template(r), "--", client.Path, "init", "-no-color")
		if got.status != 1 || !strings.HasSuffix(got.stderr, want) {
			t.Errorf("status %d, stderr\n%s\nwant\n%s", got.status, got.stderr, want)
		}
	}
	fails(s.user("", "~> 9.1"), "error: "+repo+" has no signed version of "+world.Null+" that matches \"~> 9.1\"\nhint: to add one: ocibridge push '"+world.Null+"@~> 9.1', with the same --template\n")
	ws := s.user("", ">= 1.0.0")
	lock := fmt.Sprintf("provider %q {\n  version = \"9.0.0\"\n  hashes  = [\"h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"]\n}\n", world.Null)
	clients.Must(t, os.WriteFile(filepath.Join(ws.Dir, ".terraform.lock.hcl"), []byte(lock), 0o600))
	fails(ws, "error: "+repo+" has no signed version 9.0.0 of "+world.Null+", which the lock file names\nhint: to add it: ocibridge push "+world.Null+"@9.0.0, with the same --template\n")
	denies := s.configured("gateway {\n  deny = [{ match = \"" + world.Null + "\", reason = \"it leaks\" }]\n}\n")
	got := s.execIn(s.user("", nullVersion), "--template", template(r), "--config", denies, "--", client.Path, "init", "-no-color")
	if want := "\nerror: " + world.Null + " " + nullVersion + ": denied by configuration: it leaks\nhint: the gateway block of the configuration denies this version: see its deny\n"; got.status != 1 || !strings.HasSuffix(got.stderr, want) || strings.Count(got.stderr, "error: ") != 1 {
		t.Errorf("a denied version: status %d, stderr\n%s\nwant\n%s", got.status, got.stderr, want)
	}
	unsigned := registry.For(t, registry.Options{})
	s.pushTo(unsigned, "--allow-unsigned", "--mirror-dir", s.mirrorFolder("linux", "amd64"))
	got = s.execIn(s.user("", nullVersion), "--template", template(unsigned), "--", client.Path, "init", "-no-color")
	if want := "\nhint: " + nullVersion + " is stored without a valid signature. If the registry accepts no signatures, use oci_mirror, or network_mirror through a gateway. Otherwise, add the signature: ocibridge push --refresh-evidence " + world.Null + "@" + nullVersion + ", with the same --template\n"; got.status != 1 || !strings.HasSuffix(got.stderr, want) {
		t.Errorf("an unsigned version: status %d, stderr\n%s\nwant\n%s", got.status, got.stderr, want)
	}
	pulls := s.configured("pull_through {\n  include = [\"" + world.Host + "/*/*\"]\n}\n")
	got = s.execIn(s.user("", "~> 9.1"), "--template", template(r), "--config", pulls, "--", client.Path, "init", "-no-color")
	if want := "matches \"~> 9.1\"\nhint: pull-through cannot get it from " + world.Host + " either: check the name and the version, unless a warning above says that the origin is unavailable\n"; got.status != 1 || !strings.HasSuffix(got.stderr, want) {
		t.Errorf("with pull-through: status %d, stderr\n%s\nwant\n%s", got.status, got.stderr, want)
	}
}

// TestExecOfOCIBridge shows that ocibridge as a part of the command reads the user's files, and so connects to the true
// origin: a push, and another exec.
func TestExecOfOCIBridge(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := registry.For(t, registry.Options{})
	terraform := clients.Terraform(t)
	ws := s.user("", nullVersion)
	ws.Env["OCIBRIDGE_TEMPLATE"] = template(r)
	script := `"$0" push "$1" >&2 && "$0" exec -- "$2" init -no-color`
	got := s.execIn(ws, "--", "sh", "-c", script, s.bridge.Path, world.Null+"@"+nullVersion, terraform.Path)
	if got.status != 0 || !strings.Contains(got.stdout, "signed") {
		t.Errorf("status %d\n%s%s", got.status, got.stdout, got.stderr)
	}
	wantNoFile(t, ws)
}

// TestExecRegistryStopped shows that exec, with nothing configured but a template, caches packages. What it has
// installed once, it installs again while the registry is stopped.
func TestExecRegistryStopped(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, client clients.Client) {
		s := newScene(t)
		r := registry.For(t, registry.Options{})
		s.pushTo(r, world.Null+"@"+nullVersion)
		clients.Must(t, s.Close())
		ws := s.user("", nullVersion)
		init := func(when string) {
			t.Helper()
			if got := s.execIn(ws, "--template", template(r), "--", client.Path, "init", "-no-color"); got.status != 0 || got.stderr != "" {
				t.Errorf("%s: status %d\n%s%s", when, got.status, got.stdout, got.stderr)
			}
		}
		init("the registry runs")
		clients.Must(t, ws.Clean())
		r.Stop()
		init("the registry is stopped")
	})
}

// TestExecExcluded shows that a provider that no template is for comes from its origin. The clients follow the
// gateway's redirects there.
func TestExecExcluded(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	both(t, func(t *testing.T, client clients.Client) {
		ws := s.user("", nullVersion)
		got := s.execIn(ws, "--data", s.data, "--template", "localhost:1/${hostname}/${namespace}/${type}", "--exclude", world.Host+"/acme/*", "--include", world.Host+"/*/*", "--", client.Path, "init", "-no-color")
		if got.status != 0 || got.stderr != "" {
			t.Fatalf("status %d\n%s%s", got.status, got.stdout, got.stderr)
		}
		if locked := hashesOf(t, ws, "zh:"); len(locked) == 0 {
			t.Error("not signed")
		}
	})
}

// TestExecNothingConfigured shows that exec needs no configuration. It fetches a provider from its origin, stores it
// in the embedded registry, and installs it from there once the origin is down.
//
//testrun:scene
func TestExecNothingConfigured(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, client clients.Client) {
		s := newScene(t)
		s.ws.Env["XDG_DATA_HOME"] = t.TempDir()
		ws := s.user("", nullVersion)
		ws.Env["XDG_DATA_HOME"] = s.ws.Env["XDG_DATA_HOME"]
		// exec says that it has found no configuration.
		note := func(dir string) string {
			return "note: there is no ocibridge.hcl in " + dir + " or above it in its Git repository, and no template: exec uses the embedded registry in " +
				filepath.Join(s.ws.Env["XDG_DATA_HOME"], "ocibridge") + ", and fetches from origins what is not there\n"
		}
		if got := s.execIn(ws, "--", client.Path, "init", "-no-color"); got.status != 0 || got.stderr != note(ws.Dir) {
			t.Fatalf("status %d\n%s%s", got.status, got.stdout, got.stderr)
		}
		if list := s.ws.MustRun(t, s.bridge, "list"); !strings.Contains(list, nullVersion) {
			t.Errorf("stored:\n%s", list)
		}
		clients.Must(t, ws.Clean())
		clients.Must(t, s.Close())
		if got := s.execIn(ws, "--", client.Path, "init", "-no-color"); got.status != 0 {
			t.Errorf("status %d\n%s%s", got.status, got.stdout, got.stderr)
		}
	})
}

// TestExecBelowTheConfiguration shows that exec in a folder below ocibridge.hcl keeps to it: what it denies is not installed
// from elsewhere.
func TestExecBelowTheConfiguration(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, client clients.Client) {
		s := newScene(t)
		s.push(append(s.releaseFolder(), "--as", world.Null+"@"+nullVersion)...)
		ws := s.user("", nullVersion)
		root := ws.Dir
		ws.Dir = filepath.Join(root, "envs", "prod")
		clients.Must(t, os.MkdirAll(ws.Dir, 0o700))
		clients.Must(t, ws.WriteConfig(world.UseNull(nullVersion)))
		clients.Must(t, os.WriteFile(filepath.Join(root, "ocibridge.hcl"), []byte("gateway {\n  deny = [{ match = \""+world.Null+"\", reason = \"it leaks\" }]\n}\n"), 0o600))
		if got := s.execIn(ws, "--data", s.data, "--", client.Path, "init", "-no-color"); got.status != 1 || !strings.Contains(got.stderr, "denied by configuration: it leaks") {
			t.Errorf("status %d\n%s%s", got.status, got.stdout, got.stderr)
		}
		// The root of a repository ends the search.
		clients.Must(t, os.Mkdir(filepath.Join(root, "envs", ".git"), 0o700))
		if got := s.execIn(ws, "--data", s.data, "--", client.Path, "init", "-no-color"); got.status != 0 {
			t.Errorf("in a repository of its own: status %d\n%s%s", got.status, got.stdout, got.stderr)
		}
	})
}

// TestExecManyAtOnce runs many clients in folders of their own, with one home folder and one cache.
func TestExecManyAtOnce(t *testing.T) {
	t.Parallel()
	const many = 20
	s := newScene(t)
	r := registry.For(t, registry.Options{})
	small, err := release.Build(release.Spec{Host: world.Host, Namespace: "acme", Type: "null", Version: "4.0.0", Protocols: []string{"5.0"}, Signer: s.Signer,
		Contents: []release.Content{{OS: runtime.GOOS, Arch: runtime.GOARCH, Files: map[string][]byte{"terraform-provider-null_v4.0.0": []byte("program")}}}})
	clients.Must(t, err)
	s.Origin.Add(small)
	s.pushTo(r, world.Null+"@4.0.0")
	clients.Must(t, s.Close())
	terraform := clients.Terraform(t)
	var group errgroup.Group
	for range many {
		ws := s.user("", "4.0.0")
		ws.Home = s.ws.Home
		group.Go(func() error {
			_, err := ws.Run(s.bridge, "exec", "--template", template(r), "--", terraform.Path, "init", "-no-color")
			return err
		})
	}
	clients.Must(t, group.Wait())
	wantNoFile(t, s.ws)
}

// TestExecCLIConfig shows that the user's own configuration still applies, or that exec names what prevents it.
func TestExecCLIConfig(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	both(t, func(t *testing.T, client clients.Client) {
		ws := s.user("credentials \"registry.other.example\" {\n  token = \"marked-token\"\n}\ncredentials \""+world.Host+"\" {\n  token = \"marked-token\"\n}\n", nullVersion)
		got := s.execIn(ws, "--data", s.data, "--log-level", "debug", "--", client.Path, "init", "-no-color")
		if got.status != 0 || !strings.Contains(got.stderr, "status=200") || strings.Contains(got.stderr, "marked-token") || strings.Contains(got.stderr, "/hosts//") {
			t.Errorf("credentials: status %d\n%s%s", got.status, got.stdout, got.stderr)
		}
		ws = s.user("", nullVersion)
		ws.Env["TF_CLI_CONFIG_FILE"] = ""
		folder := filepath.Join(ws.Home, ".terraform.d")
		clients.Must(t, os.Mkdir(folder, 0o700))
		clients.Must(t, os.WriteFile(filepath.Join(folder, "credentials.tfrc.json"), []byte(`{"credentials": {"registry.other.example": {"token": "stored-token"}}}`), 0o600))
		if got := s.execIn(ws, "--data", s.data, "--", "sh", "-c", `cat "$TF_CLI_CONFIG_FILE"; "$0" init -no-color`, client.Path); got.status != 0 || !strings.Contains(got.stdout, "stored-token") {
			t.Errorf("after a login: %+v", got)
		}
		overrides := t.TempDir()
		unpack(t, s.null.Package(runtime.GOOS, runtime.GOARCH).Data, overrides)
		ws = s.user("provider_installation {\n  dev_overrides {\n    \""+world.Null+"\" = \""+overrides+"\"\n  }\n  direct {}\n}\n", nullVersion)
		if got := s.execIn(ws, "--data", s.data, "--", client.Path, "plan", "-no-color"); got.status != 0 || !strings.Contains(got.stdout, "development overrides") || !strings.Contains(got.stdout, "null_resource.example") {
			t.Errorf("dev_overrides: %+v", got)
		}
		blocked := `"registry.terraform.io/*/*", "registry.opentofu.org/*/*"`
		ws = s.user("provider_installation {\n  network_mirror {\n    url     = \"https://mirror.example/\"\n    include = ["+blocked+"]\n  }\n  direct {\n    exclude = ["+blocked+"]\n  }\n}\n", nullVersion)
		if got := s.execIn(ws, "--data", s.data, "--", client.Path, "init", "-no-color"); got.status != 0 || got.stderr != "" {
			t.Errorf("a mirror for hosts that nobody names: %+v", got)
		}
		ws = s.user(world.NetworkMirror("https://mirror.example/"), nullVersion)
		if got := s.execIn(ws, "--data", s.data, "--", client.Path, "init"); got.status != 1 || got.stdout != "" || !strings.Contains(got.stderr, "provider_installation block") || !strings.Contains(got.stderr, ws.CLIConfigPath()+":") || !strings.Contains(got.stderr, "\nhint: ") {
			t.Errorf("network_mirror: %+v", got)
		}
	})
}

// unpack writes the files of a package into a folder.
func unpack(t *testing.T, data []byte, dir string) {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	clients.Must(t, err)
	for _, f := range z.File {
		content, err := z.Open(f.Name)
		clients.Must(t, err)
		text, err := io.ReadAll(content)
		clients.Must(t, err)
		clients.Must(t, content.Close())
		clients.Must(t, os.WriteFile(filepath.Join(dir, filepath.Base(f.Name)), text, 0o700))
	}
}

// onlyFor returns flags with a template for the providers of one host, which has a port.
func onlyFor(host net.Addr, prefix string) []string {
	return []string{"--template", prefix + "/${namespace}/${type}", "--include", host.String() + "/*/*"}
}

// TestExecHangingOrigin shows that the providers of a host that does not answer discovery are served all the same.
func TestExecHangingOrigin(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := registry.For(t, registry.Options{})
	hanging, err := net.Listen("tcp", "127.0.0.1:0") // it accepts connections, and never answers
	clients.Must(t, err)
	defer hanging.Close()
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	clients.Must(t, err)
	dead.Close()
	for name, at := range map[string]net.Addr{"hanging": hanging.Addr(), "dead": dead.Addr()} {
		t.Run(name, func(t *testing.T) {
			own, flags := at.String()+"/platform/null", onlyFor(at, r.Host+"/"+name)
			s.ws.MustRun(t, s.bridge, slices.Concat([]string{"push"}, flags, s.releaseFolder(), []string{"--as", own + "@" + nullVersion})...)
			both(t, func(t *testing.T, client clients.Client) {
				ws := s.workspace("")
				clients.Must(t, ws.WriteConfig(strings.ReplaceAll(world.UseNull(nullVersion), world.Null, own)))
				if got := s.execIn(ws, append(flags, "--", client.Path, "init", "-no-color")...); got.status != 0 || got.stderr != "" || !strings.Contains(got.stdout, "signed") {
					t.Errorf("init: %+v", got)
				}
			})
		})
	}
}
