// Package cliconfig reads the user's CLI configuration for OpenTofu and Terraform.
//
// It finds and reads the files as OpenTofu does. If TF_CLI_CONFIG_FILE or TERRAFORM_CONFIG names a file, the package
// reads only that file. Otherwise it reads the main file in the user's home folder, and every *.tfrc and *.tfrc.json in
// the configuration folder, including credentials.tfrc.json. The syntax is HCL 1 or JSON. The package reads these
// blocks:
//
//	host "NAME" { services = { ... } }
//	credentials "NAME" { token = "..." }
//	credentials_helper "NAME" { args = [...] }
//	oci_credentials "PREFIX" { ... }
//	oci_default_credentials { ... }
//	oci_mirror { repository_template = "..." ... }
//
// An oci_mirror block may be inside provider_installation, as OpenTofu requires, or at top level. All other settings
// concern only OpenTofu and Terraform, and are ignored.
//
// Invariants: the package reads the environment only through [Environment]. A token leaves the package only in the
// Authorization header of a request (see [Config.CredentialsSource]) or as a redacted value. No error quotes the text
// of a file, because the text may contain a token. The package runs only one program, which is the helper that a
// credentials_helper block names.
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
	GOOS     string // a value of runtime.GOOS; determines the locations of files and the path separator
	GOARCH   string // a value of runtime.GOARCH; "" means the value of this program
}

// Config is the part of the user's CLI configuration that concerns ocibridge. A Config does
// not change after it was loaded.
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
	helpers     map[string]hidden                   // the arguments in each credentials_helper block, by name
	helper      *credentialsHelper                  // the program of the credentials_helper block, or nil
	credentials []auth.Login
	defaults    *auth.Defaults
}

// OCIMirror is an oci_mirror block, which maps providers to repositories. The template and the patterns are the user's
// text and are not validated.
type OCIMirror struct {
	Template string   `hcl:"repository_template"`
	Include  []string `hcl:"include"`
	Exclude  []string `hcl:"exclude"`
	Source   string   // "FILE:LINE", or "FILE" for JSON, because its parser records no lines
}

// Services returns the services in the host blocks, by host. The services have the form
// that [disco.Disco.ForceHostServices] accepts.
//
// [disco.Disco.ForceHostServices]: https://pkg.go.dev/github.com/opentofu/svchost/disco#Disco.ForceHostServices
func (c *Config) Services() map[svchost.Hostname]map[string]any {
	return maps.Clone(c.services)
}

// Load reads the user's configuration. If there is no file, Load returns an empty configuration and no error. If
// TF_CLI_CONFIG_FILE or TERRAFORM_CONFIG names a missing file, Load only adds a warning, as the clients do. Load
// returns an error that names the file if a file cannot be parsed, or if a file in the configuration folder cannot be
// read.
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
	// An override replaces all standard files, including the files in the configuration folder.
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

// readMain reads the main file. Like the clients, it adds a warning if the file cannot be read. A missing file causes a
// warning only if mustExist is true.
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

// readFolder reads the *.tfrc and *.tfrc.json files in a folder in the order of their names. If several files configure
// a host, the last file wins. Unlike the main file, a file that cannot be read is an error.
func (c *Config) readFolder(env Environment, dir string) error {
	if dir == "" {
		return nil
	}
	entries, err := env.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil // the clients also ignore a path that is not a folder
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

// add adds the settings in a file to the configuration. If several files configure a host,
// the last file wins.
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

// override returns the file that TF_CLI_CONFIG_FILE or TERRAFORM_CONFIG names, or "" if neither is set. This file
// replaces all standard files.
func (env Environment) override() string {
	for _, name := range []string{"TF_CLI_CONFIG_FILE", "TERRAFORM_CONFIG"} {
		if v := env.Getenv(name); v != "" {
			return v
		}
	}
	return ""
}

// mainFile returns the path of the standard main file, or "" if the user has no home folder. It
// is the path of OpenTofu's file, unless only Terraform's file exists.
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

// folder returns the path of the configuration folder, or "" if the user has no home
// folder.
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

// firstExisting returns the first of the names at which a file or folder exists. It returns the first
// name if nothing exists at any of them.
func (env Environment) firstExisting(names ...string) string {
	for _, name := range names {
		if env.exists(name) {
			return name
		}
	}
	return names[0]
}

// exists reports whether a file or folder exists. It returns true for a file that cannot be
// read.
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
