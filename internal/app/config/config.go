// Package config reads ocibridge.hcl, the one file that configures ocibridge.
//
// The package finds the file, and checks everything that can be checked before the program
// starts. schema.go defines the syntax of the file. The package also decides whether a
// flag, a variable, the file, the user's CLI configuration or a default sets a value. The
// reference page docs/reference/configuration.md is generated from schema.go.
//
// The value of an argument is an HCL expression, which can call two functions, env("NAME")
// and file("PATH"). The value of repository_template is not evaluated, because it is itself
// a template. Paths are relative to the folder of the file.
//
// Invariants:
//
//   - An unknown name is an error, and so is an invalid value: nothing is silently
//     ignored.
//   - A secret is a [login.Secret] as soon as it is evaluated. Errors, the source lines in them and [Config.Effective]
//     contain no secret. A source line shows the value of an argument only if the schema says that the argument is not
//     secret.
//   - The package reads the environment only through [Environment].
package config

import (
	"slices"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/origins/pull"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/templates"
	"github.com/ocibridge/ocibridge/trust"
)

// Config is the content of a configuration file. The zero value is the configuration without
// a file. A Config does not change once it is loaded.
//
// The zero value of a field means its default, unless the comment of the field says
// otherwise.
type Config struct {
	// File is the name of the file that was read, or "" if there is no file.
	File string
	// Warnings report settings in the file that have no effect, or an effect that the user
	// might not expect.
	Warnings []Diagnostic

	Jobs int // 0 for the default

	// Logins are the oci_credentials blocks. Defaults is the oci_default_credentials block,
	// or nil without such a block. All logins and defaults are validated.
	Logins   []login.Login
	Defaults *login.Defaults

	Trust       trust.Rules    // the trust blocks for providers
	Approvals   approval.Rules // the require blocks of all trust blocks; nil without a require block
	Sign        *Sign          // nil without a sign block
	Providers   []Provider
	Modules     []Module
	PullThrough *PullThrough // nil without a pull_through block
	Gateway     Gateway

	// registries returns the settings of the registry blocks. The settings contain the keys
	// of client certificates. registries is a function because encoders and loggers would
	// write these keys if a field contained the settings.
	registries func() map[ociaddr.Registry]wire.Settings

	templates templates.Set // of the oci_mirror blocks, and then of the module_mirror blocks
	mirrors   []MirrorText  // the oci_mirror blocks that define templates
	modules   []ModuleMirror
	tree      *block
	files     []fileArgument
}

// Templates returns the templates of the oci_mirror and module_mirror blocks. Templates of the same kind are in the
// order of the file.
func (c *Config) Templates() templates.Set { return c.templates }

// ModuleMirror is a module_mirror block.
type ModuleMirror struct {
	Template *templates.Template
	// FallThrough means that the gateway redirects clients to a module's origin if the registry lacks the requested
	// version.
	FallThrough bool
	// Direct means that clients download the module from its repository.
	Direct bool
}

// NamesHosts is like [PullThrough.NamesHosts], for the include patterns of the block.
func (m ModuleMirror) NamesHosts() bool { return namesHosts(m.Template.Selector()) }

func namesHosts[P subject.Pattern](s subject.SelectorOf[P]) bool {
	return len(s.Include) > 0 && !slices.ContainsFunc(s.Include, func(p P) bool {
		_, named := p.ServiceHost()
		return !named
	})
}

// ModuleMirrors returns the module_mirror blocks in the order of the file.
func (c *Config) ModuleMirrors() []ModuleMirror { return c.modules }

// ModuleMirror returns the module_mirror block that applies to a module, or the zero value if no block applies.
func (c *Config) ModuleMirror(a module.Address) ModuleMirror {
	for _, m := range c.modules {
		if m.Template.Selects(a) {
			return m
		}
	}
	return ModuleMirror{}
}

// namesRepositories reports whether the file names repositories. Otherwise, the registry is embedded, unless the
// CLI configuration or a flag names repositories.
func (c *Config) namesRepositories() bool { return len(c.templates) > 0 }

// RegistrySettings returns the settings of the registry blocks for [auth.Options].
func (c *Config) RegistrySettings() map[ociaddr.Registry]wire.Settings {
	if c.registries == nil {
		return nil
	}
	return c.registries()
}

// PullThrough is the pull_through block.
type PullThrough struct {
	Enabled bool
	pull.Scope
	pull.Limits
	Retention *Retention // nil without a retention block
}

// NamesHosts reports whether there is at least one include pattern, and every include
// pattern names a host. The patterns are then an allow list of hosts.
func (p *PullThrough) NamesHosts() bool { return namesHosts(p.Selector) }
