// Package cliconfig reads the user's CLI configuration for OpenTofu and Terraform.
//
// It finds and reads the files as OpenTofu does. If TF_CLI_CONFIG_FILE or TERRAFORM_CONFIG names a file, the package
// reads only that file. Otherwise it reads the main file in the user's home folder, and every *.tfrc and *.tfrc.json in
// the configuration folder, including credentials.tfrc.json. [Load] warns about settings in the main file of Terraform
// if OpenTofu has a main file of its own. The syntax is HCL 1 or JSON. The package reads these
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
// concern only OpenTofu and Terraform. [Load] ignores them.
//
// [ReadMerged] reads the files of one client with all their settings, for a program that starts this client with another
// configuration.
//
// Invariants: the package reads the environment only through [Environment]. A token leaves the package only in the
// Authorization header of a request (see [Config.CredentialsSource]), in the text of a merged configuration (see
// [Merged.WithHosts]), or as a redacted value. No error quotes the text of a file, because the text may contain a token.
// The package runs only one program, which is the helper that a credentials_helper block names.
package cliconfig

import (
	"fmt"
	"io/fs"
	"maps"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// Environment is the part of the machine that the configuration depends on. Its functions behave like those of package os.
type Environment struct {
	Getenv   func(string) string
	Environ  func() []string // "NAME=value"
	ReadFile func(string) ([]byte, error)
	ReadDir  func(string) ([]fs.DirEntry, error)
	Home     string // the user's home folder, or ""
	Dir      string // the working folder; only ReadMerged needs it
	GOOS     string // a value of runtime.GOOS; determines the locations of files and the path separator
	GOARCH   string // a value of runtime.GOARCH; "" means the value of this program
}

// Config is the part of the user's CLI configuration that concerns ocibridge. It does not change after it was loaded.
type Config struct {
	Files      []string    // the files that were read, in order
	Warnings   []string    // sentences for the user about ignored settings
	OCIMirrors []OCIMirror // the oci_mirror blocks, ordered by file and line

	services    map[svchost.Hostname]map[string]any // from host blocks
	tokens      map[svchost.Hostname]filedToken     // from credentials blocks
	env         map[svchost.Hostname]filedToken     // from TF_TOKEN_ variables
	helpers     map[string]hidden                   // the arguments in each credentials_helper block, by name
	helper      *credentialsHelper                  // the program of the credentials_helper block, or nil
	credentials []login.Login
	defaults    *login.Defaults
}

// OCIMirror is an oci_mirror block, which maps providers to repositories. The template and the patterns are the user's
// text and are not validated.
type OCIMirror struct {
	Template string   `hcl:"repository_template"`
	Include  []string `hcl:"include"`
	Exclude  []string `hcl:"exclude"`
	Source   string   // "FILE:LINE", or "FILE" for JSON, because its parser records no lines
}

// Services returns the services in the host blocks, by host, in the form that svchost's disco.ForceHostServices accepts.
func (c *Config) Services() map[svchost.Hostname]map[string]any { return maps.Clone(c.services) }

// Load reads the user's configuration. It warns if a main file that OpenTofu does not read has blocks that concern
// ocibridge. If there is no file, Load returns an empty configuration and no error. If TF_CLI_CONFIG_FILE or
// TERRAFORM_CONFIG names a missing file, Load only adds a warning, as the clients do. Load returns an error that names the
// file if a file cannot be parsed, or if a file in the configuration folder cannot be read.
func Load(env Environment) (*Config, error) {
	c := &Config{
		services: map[svchost.Hostname]map[string]any{},
		tokens:   map[svchost.Hostname]filedToken{},
		env:      tokensFromEnviron(env.Environ()),
		helpers:  map[string]hidden{},
	}
	found, warnings, err := env.read(OpenTofu)
	if err != nil {
		return nil, err
	}
	c.Warnings = warnings
	for _, f := range found {
		if err := c.add(env, f.name, f.text); err != nil {
			return nil, err
		}
	}
	if err := c.findHelper(env); err != nil {
		return nil, err
	}
	c.warnOfPassedOver(env)
	return c, nil
}

// add adds the settings in a file to the configuration. If several files configure a host, the last file wins.
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
		c.tokens[host] = filedToken{login.NewSecret(token), name}
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
