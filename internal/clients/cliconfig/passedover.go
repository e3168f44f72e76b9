package cliconfig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/auth/login"
)

// warnOfPassedOver adds a warning for each standard main file that was not read because of another main file, and that
// has blocks that the configuration lacks. A user of both clients may have credentials in the file of the other one.
func (c *Config) warnOfPassedOver(env Environment) {
	if env.override() != "" {
		return
	}
	read := env.mainFile(OpenTofu)
	for _, name := range env.mainFiles() {
		if name == read {
			continue
		}
		src, err := env.ReadFile(name)
		if err != nil {
			continue
		}
		f, err := parse(env, name, src)
		if err != nil {
			continue // the file concerns its own client only
		}
		if lacking := c.lacking(f); len(lacking) > 0 {
			c.Warnings = append(c.Warnings, fmt.Sprintf("%s in %s: without effect, because ocibridge reads %s instead, as OpenTofu does. Copy the blocks that ocibridge needs, or name the file in TF_CLI_CONFIG_FILE",
				strings.Join(lacking, ", "), name, read))
		}
	}
}

// mainFiles returns the paths of all standard main files.
func (env Environment) mainFiles() []string {
	if env.GOOS == "windows" {
		if dir := env.appData(); dir != "" {
			return []string{env.join(dir, "tofu.rc"), env.join(dir, "terraform.rc")}
		}
		return nil
	}
	var out []string
	if env.Home != "" {
		out = append(out, env.join(env.Home, ".tofurc"), env.join(env.Home, ".terraformrc"))
	}
	if xdg := env.Getenv("XDG_CONFIG_HOME"); xdg != "" {
		out = append(out, env.join(xdg, "opentofu", "tofurc"))
	}
	return out
}

// lacking returns the headers of the blocks in f for which the configuration has no block.
func (c *Config) lacking(f *file) []string {
	var out []string
	for given := range f.Hosts {
		host, err := svchost.ForComparison(given)
		if _, ok := c.services[host]; err == nil && !ok {
			out = append(out, fmt.Sprintf("host %q", given))
		}
	}
	for given := range f.Credentials {
		host, err := svchost.ForComparison(given)
		if _, ok := c.tokens[host]; err == nil && !ok {
			out = append(out, fmt.Sprintf("credentials %q", given))
		}
	}
	for name := range f.Helpers {
		if len(c.helpers) == 0 {
			out = append(out, fmt.Sprintf("credentials_helper %q", name))
		}
	}
	for _, l := range f.credentials {
		if !slices.ContainsFunc(c.credentials, func(other login.Login) bool { return other.Prefix == l.Prefix }) {
			out = append(out, fmt.Sprintf("oci_credentials %q", l.Prefix))
		}
	}
	if len(f.defaults) > 0 && c.defaults == nil {
		out = append(out, "oci_default_credentials")
	}
	if len(f.mirrors) > 0 && len(c.OCIMirrors) == 0 {
		out = append(out, "oci_mirror")
	}
	slices.Sort(out)
	return out
}
