package cliconfig

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/internal/base/files"
)

// Client is a client that reads the configuration. The clients read different files.
type Client int

// OpenTofu reads Terraform's main file if OpenTofu's own is missing. Terraform reads only its own main file.
const (
	OpenTofu Client = iota
	Terraform
)

// textFile is a file of the configuration.
type textFile struct {
	name string
	text []byte
}

// read returns the files that a client reads, in order. The warnings are sentences about files that the client
// ignores, although the user may expect otherwise.
func (env Environment) read(client Client) (found []textFile, warnings []string, err error) {
	override := env.override()
	main, warnings := env.readMain(client, override)
	// An override replaces all standard files, including the files in the configuration folder.
	if override != "" {
		return main, warnings, nil
	}
	folder, err := env.readFolder(env.folder(client))
	return append(main, folder...), warnings, err
}

// readMain returns the main file, if it exists and can be read. Like the clients, it only warns about a main file that
// cannot be read. A missing file causes a warning only if override names it.
func (env Environment) readMain(client Client, override string) (found []textFile, warnings []string) {
	name := override
	if name == "" {
		name = env.mainFile(client)
	}
	if name == "" {
		return nil, nil
	}
	src, err := env.ReadFile(name)
	switch {
	case err == nil:
		return []textFile{{name, src}}, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, []string{fmt.Sprintf("the CLI configuration file %s was not read: %v", name, files.Cause(err))}
	case override != "":
		return nil, []string{fmt.Sprintf("the CLI configuration file %s does not exist", name)}
	}
	return nil, nil
}

// readFolder returns the *.tfrc and *.tfrc.json files in a folder in the order of their names. Unlike the main file, a
// file that cannot be read is an error.
func (env Environment) readFolder(dir string) ([]textFile, error) {
	if dir == "" {
		return nil, nil
	}
	entries, err := env.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil // the clients also ignore a path that is not a folder
	}
	if err != nil {
		return nil, fmt.Errorf("read the CLI configuration folder %s: %w", dir, files.Cause(err))
	}
	var found []textFile
	for _, e := range entries {
		if e.IsDir() || !strings.HasSuffix(e.Name(), ".tfrc") && !strings.HasSuffix(e.Name(), ".tfrc.json") {
			continue
		}
		name := env.join(dir, e.Name())
		src, err := env.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read the CLI configuration file %s: %w", name, files.Cause(err))
		}
		found = append(found, textFile{name, src})
	}
	return found, nil
}

// override returns the file that TF_CLI_CONFIG_FILE or TERRAFORM_CONFIG names, or "" if neither is set. This file
// replaces all standard files. A file that [Environment.Substitute] has named does not count: override returns the file
// that the user named instead.
func (env Environment) override() string {
	name := env.Getenv("TF_CLI_CONFIG_FILE")
	if name != "" && name == env.Getenv(substitute) {
		name = env.Getenv(substituted)
	}
	return cmp.Or(name, env.Getenv("TERRAFORM_CONFIG"))
}

// These variables tell an ocibridge in the command which file Substitute has named, and which file is the user's own.
const (
	substitute  = "OCIBRIDGE_EXEC_CLI_CONFIG"
	substituted = "OCIBRIDGE_EXEC_OWN_CLI_CONFIG"
)

// Substitute returns variables for a command, as "NAME=value". The variables make clients read the file at the path
// name instead of the user's files. If the command runs ocibridge, that ocibridge still reads the user's files, so that
// it connects to the true origins.
func (env Environment) Substitute(name string) []string {
	return []string{"TF_CLI_CONFIG_FILE=" + name, substitute + "=" + name, substituted + "=" + env.override()}
}

// mainFile returns the path of the client's standard main file, or "" if the user has no home folder. For OpenTofu, it
// is the path of Terraform's file if only that file exists.
func (env Environment) mainFile(client Client) string {
	windows := env.GOOS == "windows"
	switch dir := env.appData(); {
	case windows && dir == "" || client == Terraform && !windows && env.Home == "":
		return ""
	case client == Terraform && windows:
		return env.join(dir, "terraform.rc")
	case client == Terraform:
		return env.join(env.Home, ".terraformrc")
	case windows:
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

// folder returns the path of the client's configuration folder, or "" if the user has no home folder. Terraform ignores
// XDG_CONFIG_HOME.
func (env Environment) folder(client Client) string {
	if dir := env.appData(); env.GOOS == "windows" && dir != "" {
		return env.join(dir, "terraform.d")
	}
	if env.GOOS == "windows" {
		return ""
	}
	var inHome string
	if env.Home != "" {
		inHome = env.join(env.Home, ".terraform.d")
	}
	if xdg := env.Getenv("XDG_CONFIG_HOME"); client == OpenTofu && xdg != "" && (inHome == "" || !env.isFolder(inHome)) {
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

// firstExisting returns the first of the names at which a file or folder exists, or else the first name.
func (env Environment) firstExisting(names ...string) string {
	return names[max(0, slices.IndexFunc(names, env.exists))]
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

// warnOfPassedOver adds a warning for each standard main file that was not read because another one was read. It does
// so only if the file has blocks that the configuration lacks. A user of both clients may have credentials in the other
// client's file.
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
