//go:build unix

// Package tools_test runs tools/install.sh on a machine on which nothing is installed. The machine
// is a copy of the script, and a PATH of one folder with the basic programs and fakes.
package tools_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
)

// machine is the machine that the script sees.
type machine struct {
	t    *testing.T
	root string // a project that at first contains only the script
	bin  string // the only folder of PATH
	apt  string // the log of the fake apt-get; it has a line with the arguments of each call
	made string // the log of the fake go; it has a line with the output file of each build
}

// basics are the programs that the script may call on every machine. Systems have different checksum
// tools. Only Linux has flock.
var basics = []string{"bash", "env", "awk", "cat", "cp", "cut", "dirname", "find", "ln", "mkdir", "mv", "rm", "sort", "touch", "chmod", "xargs", "flock", "sha256sum", "shasum"}

// newMachine creates a machine with the basics, a fake Go, and a user with the given ID.
func newMachine(t *testing.T, uid int) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{t: t, root: filepath.Join(dir, "root"), bin: filepath.Join(dir, "bin"), apt: filepath.Join(dir, "apt"), made: filepath.Join(dir, "made")}
	m.copy("install.sh", 0o755)
	clients.Must(t, os.Mkdir(m.bin, 0o755))
	for _, name := range basics {
		if path, err := exec.LookPath(name); err == nil {
			clients.Must(t, os.Symlink(path, filepath.Join(m.bin, name)))
		}
	}
	m.fake("id", fmt.Sprintf("echo %d", uid))
	m.fake("go", fmt.Sprintf(`case "$1 $2" in
"env GOHOSTOS") echo %s ;;
"env GOHOSTARCH") echo %s ;;
"version ") echo go0 ;;
build*)
	while [ "$1" != -o ]; do shift; done
	echo "$2" >>%q
	touch "$2" && chmod +x "$2" ;;
*) exit 1 ;;
esac`, runtime.GOOS, runtime.GOARCH, m.made))
	return m
}

// copy copies a file of tools/ into the machine's project.
func (m *machine) copy(name string, mode os.FileMode) {
	m.t.Helper()
	data, err := os.ReadFile(name)
	clients.Must(m.t, err)
	to := filepath.Join(m.root, "tools", name)
	clients.Must(m.t, os.MkdirAll(filepath.Dir(to), 0o755))
	clients.Must(m.t, os.WriteFile(to, data, mode))
}

// fake puts a program on PATH.
func (m *machine) fake(name, script string) {
	m.t.Helper()
	text := "#!" + filepath.Join(m.bin, "bash") + "\n" + script + "\n"
	clients.Must(m.t, os.WriteFile(filepath.Join(m.bin, name), []byte(text), 0o755))
}

// fakeApt puts an apt-get on PATH that installs the given programs.
func (m *machine) fakeApt(programs ...string) {
	m.t.Helper()
	script := fmt.Sprintf("echo \"$*\" >>%q\n[ $1 = install ] || exit 0\n", m.apt)
	for _, name := range programs {
		script += fmt.Sprintf("touch %[1]q && chmod +x %[1]q\n", filepath.Join(m.bin, name))
	}
	m.fake("apt-get", script)
}

// install runs the script, and returns the script's output.
func (m *machine) install(names ...string) (string, error) {
	cmd := exec.CommandContext(m.t.Context(), filepath.Join(m.bin, "bash"), append([]string{filepath.Join(m.root, "tools", "install.sh")}, names...)...)
	cmd.Env = []string{"PATH=" + m.bin, "HOME=" + m.root}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// lines returns the lines of a file, or none if the file is missing.
func lines(t *testing.T, name string) []string {
	t.Helper()
	data, err := os.ReadFile(name)
	if os.IsNotExist(err) {
		return nil
	}
	clients.Must(t, err)
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

// wantInstalled checks that the script called apt-get for exactly one installation, and that this
// installation includes pkg.
func (m *machine) wantInstalled(pkg string) {
	m.t.Helper()
	calls := slices.DeleteFunc(lines(m.t, m.apt), func(call string) bool { return !strings.HasPrefix(call, "install ") })
	if len(calls) != 1 || !slices.Contains(strings.Fields(calls[0]), pkg) {
		m.t.Errorf("apt-get was asked for %q, want %s", calls, pkg)
	}
}

// TestBrowserIsInstalled shows that the script does not mistake its own function chromium
// for the browser.
func TestBrowserIsInstalled(t *testing.T) {
	testkit.LeaveToAll(t)
	m := newMachine(t, 0)
	m.fakeApt("chromium")
	if out, err := m.install("chromium"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m.wantInstalled("chromium")
}

// browsers are the programs that the end-to-end tests can drive.
var browsers = []string{"chromium", "chromium-browser", "google-chrome"}

// wantLink checks that .tools/bin has a link to a program on PATH.
func (m *machine) wantLink(name, program string) {
	m.t.Helper()
	got, err := os.Readlink(filepath.Join(m.root, ".tools", "bin", name))
	if want := filepath.Join(m.bin, program); err != nil || got != want {
		m.t.Errorf(".tools/bin/%s is a link to %q, %v, want %s", name, got, err, want)
	}
}

// TestBrowserIsThere shows that the script uses a browser on PATH, for each browser that
// the end-to-end tests can drive.
func TestBrowserIsThere(t *testing.T) {
	testkit.LeaveToAll(t)
	for _, name := range browsers {
		m := newMachine(t, 0)
		m.fakeApt()
		m.fake(name, "")
		if out, err := m.install("chromium"); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if calls := lines(t, m.apt); calls != nil {
			t.Errorf("with %s on PATH, apt-get was asked for %q", name, calls)
		}
		m.wantLink("chromium", name)
	}
}

// TestProgramsOnPath shows that .tools/bin has links to the programs that the script finds on PATH, and that a link changes
// with PATH.
func TestProgramsOnPath(t *testing.T) {
	testkit.LeaveToAll(t)
	m := newMachine(t, 1000)
	m.fake("uname", "echo Linux")
	programs := map[string][]string{"systemd": {"systemd-analyze"}, "nginx": {"nginx"}, "gnupg": {"gpg", "zip", "jq", "openssl"}, "node": {"node"}, "chromium": {"chromium"}}
	for _, names := range programs {
		for _, name := range names {
			m.fake(name, "")
		}
	}
	m.fake("npm", "")
	for tool, names := range programs {
		if out, err := m.install(tool); err != nil {
			t.Fatalf("%s: %v\n%s", tool, err, out)
		}
		for _, name := range names {
			m.wantLink(name, name)
		}
	}
	clients.Must(t, os.Remove(filepath.Join(m.bin, "chromium")))
	m.fake("google-chrome", "")
	if out, err := m.install("chromium"); err != nil || !strings.Contains(out, "chromium is the one on PATH: "+filepath.Join(m.bin, "google-chrome")) {
		t.Errorf("%v\n%s", err, out)
	}
	m.wantLink("chromium", "google-chrome")
	clients.Must(t, os.Remove(filepath.Join(m.bin, "nginx")))
	if out, err := m.install("nginx"); err == nil || !strings.Contains(out, "PATH has none. Install nginx") {
		t.Errorf("without nginx: %v\n%s", err, out)
	}
}

// TestBrowserCannotBeInstalled checks that, if the browser cannot be installed, the error says what
// to do.
func TestBrowserCannotBeInstalled(t *testing.T) {
	testkit.LeaveToAll(t)
	for what, test := range map[string]struct {
		uid   int
		apt   bool
		wants string
	}{
		"not root":             {1000, true, "as root: apt-get install chromium"},
		"no apt-get":           {0, false, "Install Chromium or Google Chrome"},
		"apt-get brought none": {0, true, "still PATH has none of: " + strings.Join(browsers, " ")},
	} {
		t.Run(what, func(t *testing.T) {
			m := newMachine(t, test.uid)
			if test.apt {
				m.fakeApt()
			}
			out, err := m.install("chromium")
			if err == nil || !strings.Contains(out, "tools: error: ") || !strings.Contains(out, test.wants) {
				t.Errorf("%v, %s", err, out)
			}
			if calls := lines(t, m.apt); test.uid != 0 && calls != nil {
				t.Errorf("apt-get was asked for %q", calls)
			}
		})
	}
}

// fakeNpm is an npm that logs its arguments, its working directory and the files there.
// It installs a package with the file that the axe tests need.
const fakeNpm = `echo "$*" >>%[1]q
echo "$PWD" >>%[1]q
echo * >>%[1]q
mkdir -p node_modules/axe-core && touch node_modules/axe-core/axe.min.js`

// copyPins copies the files that pin the packages that npm installs for a tool.
func (m *machine) copyPins(tool string) {
	m.t.Helper()
	m.copy(tool+"/package.json", 0o644)
	m.copy(tool+"/package-lock.json", 0o644)
}

// fakeNode puts Node.js on PATH, and returns the file that its npm logs to.
func (m *machine) fakeNode() string {
	log := filepath.Join(m.root, "npm")
	m.fake("node", "")
	m.fake("npm", fmt.Sprintf(fakeNpm, log))
	return log
}

// TestPackagesFromNpm shows that npm installs the pinned packages without running the packages'
// scripts. npm installs the packages again only when the pins have changed.
func TestPackagesFromNpm(t *testing.T) {
	testkit.LeaveToAll(t)
	for name, output := range map[string]string{"axe": "axe/axe.min.js", "renovate": "renovate/node_modules", "gitlab-ci-local": "gitlab-ci-local/node_modules"} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, 0)
			m.fakeApt()
			m.copyPins(name)
			log := m.fakeNode()
			install := func() {
				t.Helper()
				if out, err := m.install(name); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				if _, err := os.Stat(filepath.Join(m.root, ".tools", output)); err != nil {
					t.Error(err)
				}
			}
			install()
			install()
			calls := lines(t, log)
			if len(calls) != 3 {
				t.Fatalf("npm was called %q, want one call", calls)
			}
			for _, flag := range []string{"ci", "--ignore-scripts", "--omit=dev", "--omit=optional"} {
				if !slices.Contains(strings.Fields(calls[0]), flag) {
					t.Errorf("npm ran without %s: %s", flag, calls[0])
				}
			}
			if dir := filepath.Join(m.root, ".tools", name); calls[1] != dir || calls[2] != "package-lock.json package.json" {
				t.Errorf("npm ran in %s, want %s, with %s", calls[1], dir, calls[2])
			}
			clients.Must(t, os.WriteFile(filepath.Join(m.root, "tools", name, "package-lock.json"), []byte("{}"), 0o644))
			install()
			if calls := lines(t, log); len(calls) != 6 {
				t.Errorf("npm was called %q, want a second call for other pins", calls)
			}
			if calls := lines(t, m.apt); calls != nil {
				t.Errorf("with Node.js on PATH, apt-get was asked for %q", calls)
			}
		})
	}
}

// TestFailedNpmIsRunAgain shows that the script runs npm again after a failed installation of other
// versions. It does not mistake the failed installation for a complete installation.
func TestFailedNpmIsRunAgain(t *testing.T) {
	testkit.LeaveToAll(t)
	m := newMachine(t, 0)
	m.copyPins("renovate")
	log := m.fakeNode()
	if out, err := m.install("renovate"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	clients.Must(t, os.WriteFile(filepath.Join(m.root, "tools", "renovate", "package-lock.json"), []byte("{}"), 0o644))
	m.fake("npm", "mkdir node_modules; exit 1")
	if out, err := m.install("renovate"); err == nil || !strings.Contains(out, "tools: error: npm could not install renovate") {
		t.Errorf("%v, %s", err, out)
	}
	m.copyPins("renovate")
	m.fake("npm", fmt.Sprintf(fakeNpm, log))
	if out, err := m.install("renovate"); err != nil || len(lines(t, log)) != 6 {
		t.Errorf("%v, %s", err, out)
	}
}

// TestNodeIsInstalled shows that Node.js is installed like the browser, even if PATH contains only
// one of the programs node and npm.
func TestNodeIsInstalled(t *testing.T) {
	testkit.LeaveToAll(t)
	for what, there := range map[string][]string{"neither": nil, "node alone": {"node"}, "npm alone": {"npm"}} {
		t.Run(what, func(t *testing.T) {
			m := newMachine(t, 0)
			m.copyPins("renovate")
			for _, name := range there {
				m.fake(name, "")
			}
			m.fakeApt("node", "npm")
			if out, err := m.install("renovate"); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			m.wantInstalled("nodejs")
			m.wantInstalled("npm")
		})
	}
}

// TestNodeCannotBeInstalled checks that, if Node.js cannot be installed, the error says what to do.
func TestNodeCannotBeInstalled(t *testing.T) {
	testkit.LeaveToAll(t)
	for what, test := range map[string]struct {
		uid   int
		apt   []string // the programs that apt-get installs; nil if there is no apt-get
		wants string
	}{
		"not root":               {1000, []string{"node", "npm"}, "as root: apt-get install nodejs npm"},
		"no apt-get":             {0, nil, "Install Node.js"},
		"apt-get brought no npm": {0, []string{"node"}, "still PATH lacks one of them"},
	} {
		t.Run(what, func(t *testing.T) {
			m := newMachine(t, test.uid)
			m.copyPins("renovate")
			if test.apt != nil {
				m.fakeApt(test.apt...)
			}
			out, err := m.install("renovate")
			if err == nil || !strings.Contains(out, "tools: error: ") || !strings.Contains(out, test.wants) {
				t.Errorf("%v, %s", err, out)
			}
			if calls := lines(t, m.apt); test.uid != 0 && calls != nil {
				t.Errorf("apt-get was asked for %q", calls)
			}
		})
	}
}

// TestSystemdIsInstalled shows that the script installs systemd-analyze by apt-get if it is missing.
func TestSystemdIsInstalled(t *testing.T) {
	testkit.LeaveToAll(t)
	m := newMachine(t, 0)
	m.fake("uname", "echo Linux")
	m.fakeApt("systemd-analyze")
	if out, err := m.install("systemd"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m.wantInstalled("systemd")
}

// TestNginxIsInstalled shows that the script does not mistake its own function nginx for the program.
func TestNginxIsInstalled(t *testing.T) {
	testkit.LeaveToAll(t)
	m := newMachine(t, 0)
	m.fakeApt("nginx")
	if out, err := m.install("nginx"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m.wantInstalled("nginx-light")
}

// TestGnuPGIsInstalled shows that GnuPG, zip, jq and OpenSSL are installed, even if PATH contains only one of them.
func TestGnuPGIsInstalled(t *testing.T) {
	testkit.LeaveToAll(t)
	for _, there := range []string{"gpg", "zip", "jq", "openssl"} {
		m := newMachine(t, 0)
		m.fake(there, "")
		m.fakeApt("gpg", "zip", "jq", "openssl")
		if out, err := m.install("gnupg"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		m.wantInstalled("gnupg")
		m.wantInstalled("zip")
		m.wantInstalled("jq")
		m.wantInstalled("openssl")
		if out, err := m.install("gnupg"); err != nil || len(lines(t, m.apt)) != 2 {
			t.Errorf("the second run: %v\n%s", err, out)
		}
	}
}

// fakeDebian puts an apt-get and a dpkg on PATH. They download a package, and unpack a
// docker-registry of the given version from it.
func (m *machine) fakeDebian(version string) {
	m.t.Helper()
	m.fake("apt-get", fmt.Sprintf("echo \"$*\" >>%q\n[ $1 != download ] || touch docker-registry_1_x.deb", m.apt))
	m.fake("dpkg", fmt.Sprintf("[ \"$*\" = '-x docker-registry_1_x.deb .' ] && mkdir -p usr/bin && cp %q usr/bin", m.registry(version)))
}

// registry returns the path of a docker-registry of the given version.
func (m *machine) registry(version string) string {
	m.t.Helper()
	path := filepath.Join(m.t.TempDir(), "docker-registry")
	text := "#!" + filepath.Join(m.bin, "bash") + "\necho registry github.com/docker/distribution " + version + "\n"
	clients.Must(m.t, os.WriteFile(path, []byte(text), 0o755))
	return path
}

// TestDockerRegistryIsUnpacked shows that the script unpacks the program from Debian's package for
// any user, and only once. The script does not install the package, because an installed package
// would start a service.
func TestDockerRegistryIsUnpacked(t *testing.T) {
	testkit.LeaveToAll(t)
	for uid, want := range map[int][]string{0: {"update -qq", "download -qq docker-registry"}, 1000: {"download -qq docker-registry"}} {
		m := newMachine(t, uid)
		m.fakeDebian("2.8.2+ds1")
		for range 2 {
			if out, err := m.install("docker-registry"); err != nil {
				t.Fatalf("user %d: %v\n%s", uid, err, out)
			}
		}
		if calls := lines(t, m.apt); !slices.Equal(calls, want) {
			t.Errorf("user %d: apt-get was asked for %q, want %q", uid, calls, want)
		}
		if info, err := os.Lstat(filepath.Join(m.root, ".tools/bin/docker-registry")); err != nil || !info.Mode().IsRegular() {
			t.Errorf("user %d: %v, %v", uid, info, err)
		}
	}
}

// TestDockerRegistryOnPath shows that the script uses the program on PATH if its version
// is 2.8.
func TestDockerRegistryOnPath(t *testing.T) {
	testkit.LeaveToAll(t)
	for version, linked := range map[string]bool{"v2.8.3": true, "2.8.2+ds1": true, "v2.7.1": false, "v3.0.0": false} {
		m := newMachine(t, 1000)
		m.fakeDebian("2.8.2+ds1")
		path := filepath.Join(m.bin, "docker-registry")
		clients.Must(t, os.Rename(m.registry(version), path))
		if out, err := m.install("docker-registry"); err != nil {
			t.Fatalf("%s: %v\n%s", version, err, out)
		}
		link, _ := os.Readlink(filepath.Join(m.root, ".tools/bin/docker-registry"))
		if (link == path) != linked {
			t.Errorf("%s: linked to %q", version, link)
		}
	}
}

// TestDockerRegistryCannotBeHad checks that, if the program cannot be downloaded or unpacked, the
// error says what to do.
func TestDockerRegistryCannotBeHad(t *testing.T) {
	testkit.LeaveToAll(t)
	for what, prepare := range map[string]func(m *machine){
		"there is no apt-get": func(*machine) {},
		"the download fails": func(m *machine) {
			m.fakeDebian("2.8.2")
			m.fake("apt-get", "exit 1")
		},
		"it is another version": func(m *machine) { m.fakeDebian("v3.0.0") },
	} {
		m := newMachine(t, 1000)
		prepare(m)
		out, err := m.install("docker-registry")
		if err == nil || !strings.Contains(out, "tools: error: ") || !strings.Contains(out, "Build cmd/registry of github.com/distribution/distribution at v2.8.3") {
			t.Errorf("%s: %v, %s", what, err, out)
		}
		if _, err := os.Stat(filepath.Join(m.root, ".tools/bin/docker-registry")); err == nil {
			t.Errorf("%s: a program is there", what)
		}
	}
}

// TestFixtures shows that the script copies the fixtures from a read-only module, once
// for each go.mod.
func TestFixtures(t *testing.T) {
	m := newMachine(t, 0)
	m.copy("tofu/go.mod", 0o644)
	m.copy("tofu/go.sum", 0o644)
	const layout = "internal/command/e2etest/testdata/oci-provider-mirror/fake-registry/foo"
	module := filepath.Join(t.TempDir(), "module")
	clients.Must(t, os.MkdirAll(filepath.Join(module, layout), 0o755))
	clients.Must(t, os.WriteFile(filepath.Join(module, layout, "index.json"), []byte("{}"), 0o444))
	if out, err := m.install("tofu-fixtures"); err == nil || !strings.Contains(out, "no module github.com/opentofu/opentofu") {
		t.Errorf("without a network: %v\n%s", err, out)
	}
	m.fake("go", fmt.Sprintf(`case "$1 $2" in
"mod download") echo >>%q ;;
"list -m") echo %q ;;
"env "*) echo x ;;
*) exit 1 ;;
esac`, m.made, module))
	for range 2 {
		if out, err := m.install("tofu-fixtures"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if _, err := os.ReadFile(filepath.Join(m.root, ".tools", "tofu-fixtures", "foo", "index.json")); err != nil {
			t.Error(err)
		}
	}
	if n := len(lines(t, m.made)); n != 1 {
		t.Errorf("downloaded %d times", n)
	}
}

// toolsOf returns the names of the tools that a target of the Makefile lets the script obtain.
func toolsOf(t *testing.T, target string) []string {
	t.Helper()
	clients.OnPath(t, "make")
	if _, err := os.Stat("../Makefile"); err != nil { // so that go test runs the test again when the Makefile has changed
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "make", "-C", "..", "--no-print-directory", "-n", target)
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	calls := regexp.MustCompile(`(?m)^tools/install\.sh *(.*)$`).FindAllStringSubmatch(string(out), -1)
	if len(calls) != 1 || calls[0][1] == "" {
		t.Fatalf("make %s calls %q", target, calls)
	}
	return strings.Fields(calls[0][1])
}

// TestTestObtainsLittle shows that "make test" builds only the registry and the null provider of this platform. The provider's
// packages for other platforms are different copies of it. A client is linked if it is on PATH.
func TestTestObtainsLittle(t *testing.T) {
	testkit.LeaveToAll(t)
	names := toolsOf(t, "test")
	m := newMachine(t, 1000)
	for _, name := range []string{"registry", "tofu", "terraform", "provider-null"} {
		m.copy(name+"/go.mod", 0o644)
		m.copy(name+"/go.sum", 0o644)
	}
	for range 2 {
		if out, err := m.install(names...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	var built []string
	for _, name := range lines(t, m.made) {
		built = append(built, strings.TrimPrefix(filepath.Base(name), ".new."))
	}
	host := "terraform-provider-null_" + runtime.GOOS + "_" + runtime.GOARCH
	if want := []string{"registry", host}; !slices.Equal(built, want) {
		t.Errorf("built %q, want %q", built, want)
	}
	providers, err := filepath.Glob(filepath.Join(m.root, ".tools", "providers", "terraform-provider-null_*"))
	clients.Must(t, err)
	for _, name := range providers {
		text, err := os.ReadFile(name)
		clients.Must(t, err)
		_, platform, _ := strings.Cut(filepath.Base(name), "null_")
		if filepath.Base(name) != host && string(text) != platform {
			t.Errorf("%s ends with %q", name, text)
		}
	}
	if len(providers) != 3 {
		t.Errorf("the providers are %q", providers)
	}
}

// TestClientsOnPath shows which clients on PATH "make test" uses: those that are new enough, and that run without the user's
// variables. It removes a link to a client that is no longer used.
func TestClientsOnPath(t *testing.T) {
	testkit.LeaveToAll(t)
	for client, c := range map[string]struct{ good, old string }{
		"tofu":      {"echo OpenTofu v1.10.0-rc1", "echo OpenTofu v1.9.4"},
		"terraform": {"echo Terraform v1.5.7", "echo Terraform v1.4.7"},
	} {
		m := newMachine(t, 1000)
		link := filepath.Join(m.root, ".tools", "bin", client)
		used := func() {
			t.Helper()
			m.fake(client, c.good)
			if out, err := m.install(client + "-on-path"); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			m.wantLink(client, client)
		}
		for _, script := range []string{c.old, `[ -n "$SHIM" ] && ` + c.good, "exit 1", ""} {
			used()
			m.fake(client, script)
			out, err := m.install(client + "-on-path")
			if _, there := os.Lstat(link); err != nil || there == nil || !strings.Contains(out, "no "+client+" is on PATH, and none is built") || !strings.Contains(out, "is not used: ") {
				t.Errorf("%s: %s: %v, link %v\n%s", client, script, err, there, out)
			}
		}
		used()
		clients.Must(t, os.Remove(filepath.Join(m.bin, client)))
		if out, err := m.install(client + "-on-path"); err != nil || !strings.Contains(out, "no "+client+" is on PATH, and none is built") {
			t.Errorf("%v\n%s", err, out)
		}
		if _, err := os.Lstat(link); err == nil {
			t.Errorf("the link to a %s that is gone is left", client)
		}
		clients.Must(t, os.WriteFile(link, nil, 0o755)) // as it is after a build
		if out, err := m.install(client + "-on-path"); err != nil || strings.Contains(out, "none is built") {
			t.Errorf("%v\n%s", err, out)
		}
	}
}
