// Package cliconfig reads the user's CLI configuration of OpenTofu and Terraform.
//
// It finds and reads that configuration as OpenTofu does: TF_CLI_CONFIG_FILE (or TERRAFORM_CONFIG) names the
// only file to read. Without it, there is a main file in the user's home folder, and in addition every *.tfrc
// and *.tfrc.json in the configuration folder, including credentials.tfrc.json. The syntax is HCL 1 or JSON.
// The package reads these blocks:
//
//	host "NAME" { services = { ... } }
//	credentials "NAME" { token = "..." }
//	credentials_helper "NAME" { args = [...] }
//	oci_credentials "PREFIX" { ... }
//	oci_default_credentials { ... }
//	oci_mirror { repository_template = "..." ... }
//
// oci_mirror may be inside provider_installation, as in OpenTofu, or at top level. All other settings belong to
// the clients, and are ignored.
//
// Invariants: the package reads the environment only through [Environment]. A token leaves the package only in
// the Authorization header of a request (see [Config.CredentialsSource]), or as a redacted value. No error
// quotes the text of a file, because it may contain a token. The package runs only one program: the helper that
// a credentials_helper block names.
package cliconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"syscall"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/internal/files"
	"github.com/ocibridge/ocibridge/internal/hint"
)

// Environment is the part of the machine that the configuration depends on. Getenv, Environ, ReadFile and
// ReadDir behave like the functions of package os with the same names, including their errors.
type Environment struct {
	Getenv   func(string) string
	Environ  func() []string // "NAME=value"
	ReadFile func(string) ([]byte, error)
	ReadDir  func(string) ([]fs.DirEntry, error)
	Home     string // the user's home folder, or ""
	GOOS     string // as runtime.GOOS; determines locations and the path separator
	GOARCH   string // as runtime.GOARCH; "" means this program's
}

// Config is the part of the user's CLI configuration that concerns ocibridge.
// It does not change once it is loaded.
type Config struct {
	// Files are the files that were read, in order.
	Files []string
	// Warnings are sentences for the user about ignored settings.
	Warnings []string
	// OCIMirrors are the oci_mirror blocks, ordered by file and line.
	OCIMirrors []OCIMirror

	services    map[svchost.Hostname]map[string]any // from host blocks
	tokens      map[svchost.Hostname]filedToken     // from credentials blocks
	env         map[svchost.Hostname]filedToken     // from TF_TOKEN_ variables
	helpers     map[string]hidden                   // credentials_helper blocks: arguments by name
	helper      *credentialsHelper                  // the program of the credentials_helper block, or nil
	credentials []auth.Login
	defaults    *auth.Defaults
}

// OCIMirror is an oci_mirror block, which maps providers to repositories. The template and the patterns are
// unchecked text.
type OCIMirror struct {
	Template string   `hcl:"repository_template"`
	Include  []string `hcl:"include"`
	Exclude  []string `hcl:"exclude"`
	Source   string   // "FILE:LINE", or "FILE" for JSON, whose parser records no lines
}

// Services returns the services of each host with a host block, in the form that
// [disco.Disco.ForceHostServices] accepts.
//
// [disco.Disco.ForceHostServices]: https://pkg.go.dev/github.com/opentofu/svchost/disco#Disco.ForceHostServices
func (c *Config) Services() map[svchost.Hostname]map[string]any {
	return maps.Clone(c.services)
}

// Load reads the user's configuration. It is no error if there is no file. If an override names a missing file,
// the result only contains a warning, because the clients only warn. A file that cannot be read or parsed is an
// error that names the file.
func Load(env Environment) (*Config, error) {
	c := &Config{
		services: map[svchost.Hostname]map[string]any{},
		tokens:   map[svchost.Hostname]filedToken{},
		env:      tokensFromEnviron(env.Environ()),
		helpers:  map[string]hidden{},
	}
	override := env.override()
	main := override
	if main == "" {
		main = env.mainFile()
	}
	if err := c.readMain(env, main, override != ""); err != nil {
		return nil, err
	}
	// An override, as in automation, replaces all standard files, including those in the configuration
	// folder.
	if override == "" {
		if err := c.readFolder(env, env.folder()); err != nil {
			return nil, err
		}
	}
	if err := c.findHelper(env); err != nil {
		return nil, err
	}
	return c, nil
}

// readMain reads the main file. Like the clients, it warns if the file cannot be opened, unless it is merely
// absent from its standard location.
func (c *Config) readMain(env Environment, name string, mustExist bool) error {
	if name == "" {
		return nil
	}
	src, err := env.ReadFile(name)
	switch {
	case err == nil:
		return c.add(env, name, src)
	case !errors.Is(err, fs.ErrNotExist):
		c.Warnings = append(c.Warnings, fmt.Sprintf("the CLI configuration file %s was not read: %v", name, files.Cause(err)))
	case mustExist:
		c.Warnings = append(c.Warnings, fmt.Sprintf("the CLI configuration file %s does not exist", name))
	}
	return nil
}

// readFolder reads the *.tfrc and *.tfrc.json files of a folder in the order of their names; for each host, the
// last file wins.
func (c *Config) readFolder(env Environment, dir string) error {
	if dir == "" {
		return nil
	}
	entries, err := env.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil // the clients also ignore a file in place of the folder
	}
	if err != nil {
		return fmt.Errorf("read the CLI configuration folder %s: %w", dir, files.Cause(err))
	}
	for _, e := range entries {
		if e.IsDir() || !strings.HasSuffix(e.Name(), ".tfrc") && !strings.HasSuffix(e.Name(), ".tfrc.json") {
			continue
		}
		name := env.join(dir, e.Name())
		src, err := env.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read the CLI configuration file %s: %w", name, files.Cause(err))
		}
		if err := c.add(env, name, src); err != nil {
			return err
		}
	}
	return nil
}

// add adds the settings in a file. For each host, the last file wins.
func (c *Config) add(env Environment, name string, src []byte) error {
	f, err := parse(env, name, src)
	if err != nil {
		return fmt.Errorf("CLI configuration: %w", err)
	}
	for given, h := range f.Hosts {
		host, err := hostname(name, "host", given)
		if err != nil {
			return err
		}
		c.services[host] = h.Services
	}
	for given, block := range f.Credentials {
		host, err := hostname(name, "credentials", given)
		if err != nil {
			return err
		}
		token, _ := block["token"].(string)
		c.tokens[host] = filedToken{auth.NewSecret(token), name}
	}
	for helper, block := range f.Helpers {
		c.helpers[helper] = func() []string { return block.Args }
	}
	if err := c.addOCI(f); err != nil {
		return err
	}
	c.OCIMirrors = append(c.OCIMirrors, f.mirrors...)
	c.Warnings = append(c.Warnings, f.warnings...)
	c.Files = append(c.Files, name)
	return nil
}

func hostname(file, block, given string) (svchost.Hostname, error) {
	host, err := svchost.ForComparison(given)
	if err != nil {
		return "", hint.Wrap(fmt.Errorf("CLI configuration: %s: the %s block %q has an invalid host name: %w", file, block, given, err),
			"write the host name as in a provider address, such as registry.opentofu.org, without https:// and not in Punycode")
	}
	return host, nil
}

// override returns the file that the environment names in place of all standard files, or "" if it names none.
func (env Environment) override() string {
	for _, name := range []string{"TF_CLI_CONFIG_FILE", "TERRAFORM_CONFIG"} {
		if v := env.Getenv(name); v != "" {
			return v
		}
	}
	return ""
}

// mainFile returns the standard main file: OpenTofu's file, unless only Terraform's file exists.
func (env Environment) mainFile() string {
	if env.GOOS == "windows" {
		dir := env.appData()
		if dir == "" {
			return ""
		}
		return env.firstExisting(env.join(dir, "tofu.rc"), env.join(dir, "terraform.rc"))
	}
	xdg := env.Getenv("XDG_CONFIG_HOME")
	if env.Home == "" && xdg == "" {
		return ""
	}
	var inHome []string
	if env.Home != "" {
		inHome = []string{env.join(env.Home, ".tofurc"), env.join(env.Home, ".terraformrc")}
	}
	if xdg != "" && !slices.ContainsFunc(inHome, env.exists) {
		return env.join(xdg, "opentofu", "tofurc")
	}
	return env.firstExisting(inHome...)
}

// folder returns the configuration folder, or "" if there is none.
func (env Environment) folder() string {
	if env.GOOS == "windows" {
		if dir := env.appData(); dir != "" {
			return env.join(dir, "terraform.d")
		}
		return ""
	}
	var inHome string
	if env.Home != "" {
		inHome = env.join(env.Home, ".terraform.d")
	}
	if xdg := env.Getenv("XDG_CONFIG_HOME"); xdg != "" && (inHome == "" || !env.isFolder(inHome)) {
		return env.join(xdg, "opentofu")
	}
	return inHome
}

func (env Environment) appData() string {
	if dir := env.Getenv("APPDATA"); dir != "" || env.Home == "" {
		return dir
	}
	return env.join(env.Home, "AppData", "Roaming")
}

// firstExisting returns the first name of an existing file or folder, or the first name if none exists.
func (env Environment) firstExisting(names ...string) string {
	for _, name := range names {
		if env.exists(name) {
			return name
		}
	}
	return names[0]
}

// exists reports whether a file or folder exists, even if it cannot be read.
func (env Environment) exists(name string) bool {
	_, err := env.ReadFile(name)
	return !errors.Is(err, fs.ErrNotExist)
}

func (env Environment) isFolder(name string) bool {
	_, err := env.ReadDir(name)
	return !errors.Is(err, fs.ErrNotExist)
}

// join joins a path with the separator of GOOS.
func (env Environment) join(elem ...string) string { return files.Paths(env.GOOS).Join(elem...) }
