// Package clients runs the real clients: OpenTofu, Terraform, the ORAS CLI and Renovate.
//
// It runs only the programs that "make tools" installs in .tools at the root of the module, and the program that "make
// build" builds. Which programs are on PATH has no effect. [Must] skips or fails a test whose program is missing. Each
// client runs in a [Workspace], which has its own folders and environment. Therefore the configuration of the user and
// of the machine has no effect.
package clients

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/provider"
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
	path, err := tool(name, "bin", name)
	return Client{name, path}, err
}

// BuiltVariable is the environment variable that, if set, makes tests run the program of [Bridge] where they would run
// themselves as the program. Under the race detector, a test takes ten times as long to start. internal/test/testrun sets it after
// "make build"; without make, the program might be older than the sources.
const BuiltVariable = "OCIBRIDGE_BUILT"

// Bridge returns the program under test, which "make build" builds.
func Bridge() (Client, error) {
	const name = "ocibridge"
	root, err := Root()
	if err != nil {
		return Client{}, err
	}
	c := Client{name, filepath.Join(root, "bin", name)}
	// Opening the file tells the go command that the result of the test depends on the file.
	f, err := os.Open(c.Path)
	if err != nil {
		return c, &Missing{name, fmt.Errorf("%w: run make build", err)}
	}
	if err := f.Close(); err != nil {
		return c, err
	}
	return c, offered(name)
}

// tool returns the path of a file below .tools, or a [Missing] error if the tests must not use the named tool, or if the
// file does not exist.
func tool(name string, elem ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(append([]string{root, ".tools"}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		return "", &Missing{name, fmt.Errorf("%w: run make tools", err)}
	}
	return path, offered(name)
}

// Tofu returns OpenTofu. It ends the test if OpenTofu is missing.
func Tofu(tb testkit.TB) Client { tb.Helper(); return Program(tb, "tofu") }

// Terraform returns Terraform. It ends the test if Terraform is missing.
func Terraform(tb testkit.TB) Client { tb.Helper(); return Program(tb, "terraform") }

// ORAS returns the ORAS CLI. It ends the test if the ORAS CLI is missing.
func ORAS(tb testkit.TB) Client { tb.Helper(); return Program(tb, "oras") }

// Registry returns the program of the distribution registry. It ends the test if the program is missing.
func Registry(tb testkit.TB) Client { tb.Helper(); return Program(tb, "registry") }

// Version returns the version of OpenTofu or Terraform, as it prints it in the workspace.
func (c Client) Version(w *Workspace) (version provider.Version, err error) {
	out, err := w.Stdout(c, "version", "-json")
	if err != nil {
		return version, err
	}
	var got struct {
		Version provider.Version `json:"terraform_version"`
	}
	err = json.Unmarshal(out, &got)
	return got.Version, err
}

// Since reports whether OpenTofu or Terraform has the given version or a newer one.
func (c Client) Since(tb testkit.TB, version string) bool {
	tb.Helper()
	got, err := c.Version(For(tb))
	if err != nil {
		tb.Fatalf("the version of %s: %v", c.Name, err)
	}
	return got.Compare(provider.MustParseVersion(version)) >= 0
}

// RenovateModules returns the value of NODE_PATH for Renovate. It is the folder that contains the package
// renovate and its dependencies. RenovateModules ends the test if the folder is missing.
func RenovateModules(tb testkit.TB) string {
	tb.Helper()
	dir, err := tool("renovate", "renovate", "node_modules")
	Must(tb, err)
	return dir
}

// GitLabCILocal returns the folder that contains the package gitlab-ci-local and its dependencies.
// GitLabCILocal ends the test if the folder is missing.
func GitLabCILocal(tb testkit.TB) string {
	tb.Helper()
	dir, err := tool("gitlab-ci-local", "gitlab-ci-local", "node_modules")
	Must(tb, err)
	return dir
}

// Axe returns the path of the source of axe-core. It ends the test if the file is missing.
func Axe(tb testkit.TB) string {
	tb.Helper()
	path, err := tool("axe", "axe", "axe.min.js")
	Must(tb, err)
	return path
}

// OnPath returns a program that a system usually has, such as make, from PATH. It ends the test if PATH has none.
func OnPath(tb testkit.TB, name string) Client {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Must(tb, &Missing{name, fmt.Errorf("%w: install it", err)})
	}
	return Client{name, path}
}

// Program returns the named program in .tools/bin. It ends the test if the program is missing.
func Program(tb testkit.TB, name string) Client {
	tb.Helper()
	c, err := Find(name)
	Must(tb, err)
	return c
}

// TofuFixtures returns the folder with the OCI layouts of OpenTofu's own tests of providers. The layouts foo and bar
// are the repositories of the providers example.com/test/foo and example.com/test/bar.
func TofuFixtures() (string, error) { return tool("tofu-fixtures", "tofu-fixtures") }

// TofuModuleFixtures returns the folder with the OCI layouts of OpenTofu's own tests of modules. The layout foo is the
// repository of a module. The folder fake-module-pkg contains the files of this module.
func TofuModuleFixtures() (string, error) {
	return tool("tofu-module-fixtures", "tofu-module-fixtures")
}

// ProviderDocs returns the folder with the documentation of the time provider, as terraform-plugin-docs has written it.
func ProviderDocs() (string, error) { return tool("provider-docs", "provider-docs") }

// A Binary is a provider's program for one platform.
type Binary struct {
	OS, Arch string
	Path     string
}

// NullProvider returns the programs of the null provider, sorted by platform. "make tools" builds them for the
// host's platform and for two others. "make demo" builds only the program for the host's platform.
func NullProvider() ([]Binary, error) { return programsOf("null", "run make tools") }

// TimeProvider returns the program of the time provider. "make bench" builds it for the host's platform.
func TimeProvider() ([]Binary, error) {
	return programsOf("time", "run tools/install.sh provider-time")
}

// programsOf returns the programs of a provider, sorted by platform. help says how to build them.
func programsOf(provider, help string) ([]Binary, error) {
	name := "provider-" + provider
	dir, err := tool(name, "providers")
	if err != nil {
		return nil, err
	}
	prefix := "terraform-" + name + "_"
	names, err := fs.Glob(os.DirFS(dir), prefix+"*")
	if err != nil {
		return nil, err
	}
	var out []Binary
	for _, name := range names {
		goos, arch, ok := strings.Cut(strings.TrimPrefix(name, prefix), "_")
		if ok {
			out = append(out, Binary{goos, arch, filepath.Join(dir, name)})
		}
	}
	if len(out) == 0 {
		return nil, &Missing{name, fmt.Errorf("no program of the %s provider in %s: %s", provider, dir, help)}
	}
	return out, nil
}
