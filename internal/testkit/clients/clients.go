// Package clients runs the real clients: OpenTofu, Terraform, the ORAS CLI and Renovate.
//
// It runs only the programs that "make tools" installs in .tools/bin at the root of the module. If a program is
// missing, a test fails and is not skipped. Each client runs in a [Workspace], which has its own folders and
// environment. Therefore the configuration of the user and of the machine has no effect.
package clients

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ocibridge/ocibridge/internal/testkit"
)

// A Client is a program and its path.
type Client struct {
	Name string
	Path string
}

// Root returns the root folder of the module that contains the working directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for from := dir; ; dir = filepath.Dir(dir) {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod in %s or above: run this inside the project", from)
		}
	}
}

// Find returns the named program in .tools/bin.
func Find(name string) (Client, error) {
	path, err := tool("bin", name)
	return Client{name, path}, err
}

// tool returns the path of a file below .tools, or an error if it does not exist.
func tool(elem ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(append([]string{root, ".tools"}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: run make tools", err)
	}
	return path, nil
}

// Browsers lists the programs that the tests of the web page can use. The tests use the first one that is on
// PATH.
var Browsers = []string{"chromium", "chromium-browser", "google-chrome"}

// Tofu returns OpenTofu. It ends the test if OpenTofu is not installed.
func Tofu(tb testkit.TB) Client { tb.Helper(); return find(tb, "tofu") }

// Terraform returns Terraform. It ends the test if Terraform is not installed.
func Terraform(tb testkit.TB) Client { tb.Helper(); return find(tb, "terraform") }

// ORAS returns the ORAS CLI. It ends the test if the ORAS CLI is not installed.
func ORAS(tb testkit.TB) Client { tb.Helper(); return find(tb, "oras") }

// Registry returns the program of the distribution registry. It ends the test if the program is not installed.
func Registry(tb testkit.TB) Client { tb.Helper(); return find(tb, "registry") }

// Node returns Node.js from PATH. It ends the test if Node.js is not on PATH.
func Node(tb testkit.TB) Client {
	tb.Helper()
	path, err := exec.LookPath("node")
	if err != nil {
		tb.Fatalf("%v: run make tools", err)
	}
	return Client{"node", path}
}

// RenovateModules returns the value of NODE_PATH for Renovate. It is the folder that contains the package
// renovate and its dependencies. RenovateModules ends the test if the folder does not exist.
func RenovateModules(tb testkit.TB) string {
	tb.Helper()
	dir, err := tool("renovate", "node_modules")
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return dir
}

// GitLabCILocal returns the folder that contains the package gitlab-ci-local and its dependencies.
// GitLabCILocal ends the test if the folder does not exist.
func GitLabCILocal(tb testkit.TB) string {
	tb.Helper()
	dir, err := tool("gitlab-ci-local", "node_modules")
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return dir
}

func find(tb testkit.TB, name string) Client {
	tb.Helper()
	c, err := Find(name)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return c
}

// TofuFixtures returns the folder with the OCI layouts of OpenTofu's own tests of providers. The layouts foo and bar
// are the repositories of the providers example.com/test/foo and example.com/test/bar.
func TofuFixtures() (string, error) { return tool("tofu-fixtures") }

// TofuModuleFixtures returns the folder with the OCI layouts of OpenTofu's own tests of modules. The layout foo is the
// repository of a module. The folder fake-module-pkg contains the files of this module.
func TofuModuleFixtures() (string, error) { return tool("tofu-module-fixtures") }

// A Binary is a provider's program for one platform.
type Binary struct {
	OS, Arch string
	Path     string
}

// nullProvider is the prefix of the file names of the null provider's programs.
const nullProvider = "terraform-provider-null_"

// NullProvider returns the programs of the null provider, sorted by platform. "make tools" builds them for the
// host's platform and for two others. "make demo" builds only the program for the host's platform.
func NullProvider() ([]Binary, error) {
	dir, err := tool("providers")
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(os.DirFS(dir), nullProvider+"*")
	if err != nil {
		return nil, err
	}
	var out []Binary
	for _, name := range names {
		goos, arch, ok := strings.Cut(strings.TrimPrefix(name, nullProvider), "_")
		if ok {
			out = append(out, Binary{goos, arch, filepath.Join(dir, name)})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no null provider in %s: run make tools", dir)
	}
	return out, nil
}
