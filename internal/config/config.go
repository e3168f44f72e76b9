// Package config reads ocibridge.hcl, the one file that configures ocibridge.
//
// It owns where the file is looked for, its syntax (schema.go, from which the
// reference page docs/configuration.md is generated), what is checked before
// anything starts, and which value is in force where a flag, a variable, the
// file, the user's CLI configuration and a default compete.
//
// Arguments are HCL expressions with two functions, env("NAME") and
// file("PATH"); the one exception is repository_template, whose text is kept as
// it is written, for it is a template of its own. Paths are relative to the
// folder of the file.
//
// Invariants:
//
//   - What is unknown is an error, and so is what is known and invalid: nothing is
//     passed over in silence.
//   - A secret is an [auth.Secret] from the moment it is evaluated. No error, no
//     source line that an error shows and nothing that [Config.InForce] gives
//     holds one; a source line shows the values of arguments only that are known
//     to hold none.
//   - The environment is read through [Environment] alone.
package config

import (
	"slices"
	"time"

	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
	"github.com/ocibridge/ocibridge/trust"
)

// Config is what a file says. The zero value is that of no file at all, and
// sets nothing. It does not change once loaded.
//
// Fields that the file leaves out have the default that the schema gives for
// them, wherever their block is there.
type Config struct {
	// File is the file that was read, "" for none.
	File string
	// Warnings are about what is in the file and has no effect.
	Warnings []Diagnostic

	Data string // folder; "" for the default
	Jobs int    // 0 for the default

	// Mirrors are the oci_mirror blocks in the order of the file, the first that
	// is for a provider being the one that counts.
	Mirrors []Mirror
	// Logins are the oci_credentials blocks, and Defaults is the
	// oci_default_credentials block, nil if there is none. They are valid.
	Logins   []auth.Login
	Defaults *auth.Defaults
	// Registries are the registry blocks.
	Registries []Registry

	Trust       trust.Rules // the trust blocks
	Providers   []Provider
	PullThrough *PullThrough // nil without a block
	Gateway     Gateway

	tree  *block
	files []fileArgument
}

// Mirror is an oci_mirror block.
type Mirror struct {
	Template         *templates.Template
	Include, Exclude []provider.Pattern
	Source           string // "FILE:LINE"
}

// Templates returns the templates of the oci_mirror blocks, in order.
func (c *Config) Templates() templates.Set {
	var set templates.Set
	for _, m := range c.Mirrors {
		set = append(set, m.Template)
	}
	return set
}

// Registry is a registry block.
type Registry struct {
	Host ociaddr.Registry
	// MirrorsBlobsByRedirect says that blobs may be had by redirect.
	MirrorsBlobsByRedirect bool

	// settings returns how the registry is spoken to. A function keeps the key of
	// a client's certificate from encoders and loggers.
	settings func() auth.Registry
}

// RegistrySettings returns how each registry with a block is spoken to, as
// [auth.Options] takes it.
func (c *Config) RegistrySettings() map[ociaddr.Registry]auth.Registry {
	out := map[ociaddr.Registry]auth.Registry{}
	for _, r := range c.Registries {
		out[r.Host] = r.settings()
	}
	return out
}

// Provider is a provider block: what sync keeps in the registry.
type Provider struct {
	Address     provider.Address
	Versions    provider.VersionSet // zero: all, of which Latest says how many
	Platforms   []provider.Platform // none: all that there are
	Latest      int                 // 0: no bound
	Prereleases bool
	Cooldown    time.Duration
	From        Source
	Source      string // "FILE:LINE"
}

// Source is where a provider comes from. The zero value is its origin.
type Source struct {
	MirrorURL string // https, ends in a slash
	Folder    string
}

// PullThrough is the pull_through block.
type PullThrough struct {
	Enabled       bool
	Selector      provider.Selector
	Platforms     []provider.Platform
	Versions      provider.VersionSet // zero: all
	Cooldown      time.Duration
	MaxSize       int64 // bytes; 0: no bound
	MaxConcurrent int   // 0: the default
	MaxPerDay     int64 // bytes; 0: no bound
	MaxSpool      int64 // bytes; 0: the default
}

// NamesHosts reports whether the include patterns are an allow list: there are
// some, and each names a host.
func (p *PullThrough) NamesHosts() bool {
	return len(p.Selector.Include) > 0 && !slices.ContainsFunc(p.Selector.Include, func(p provider.Pattern) bool {
		_, named := p.ServiceHost()
		return !named
	})
}

// Gateway is the gateway block.
type Gateway struct {
	Listen            string // "" for the default
	PublicURL         string // https, ends in a slash; "" if it is not said
	MetricsListen     string // "" for none of its own
	VerifyRequired    bool
	Redirect          bool
	TagTTL            time.Duration // as in [catalog.Options]: 0 is the default, and negative is none
	StaleIfError      time.Duration // likewise
	Deny              []catalog.Deny
	CapabilityKeyFile string
	HTTP              bool // and no TLS
	ShutdownDelay     time.Duration
	ShutdownTimeout   time.Duration // 0 for the default

	TLS    TLS
	Cache  *Cache // nil without a block
	Tokens []access.Token
	OIDC   []access.Issuer
	Login  *gateway.Login // nil without a block
}

// AsksForTokens reports whether the gateway refuses requests without a token.
func (g *Gateway) AsksForTokens() bool { return len(g.Tokens)+len(g.OIDC) > 0 }

// TLS is the tls block. Its files are not read by [Load], for a push may not be
// allowed to; see [Config.CheckFiles].
type TLS struct {
	CertFile, KeyFile string
	SelfSigned        bool
	ClientCAFile      string
	ACME              *ACME // nil without a block
}

// ACME is the acme block. The terms are agreed to.
type ACME struct {
	Domains      []string // at least one
	Email        string   // "" for none
	DirectoryURL string
	CAFile       string // "" for none
	Directory    string // "" for the default
}

// Cache is the cache block.
type Cache struct {
	Directory string
	MaxSize   int64 // bytes
}
