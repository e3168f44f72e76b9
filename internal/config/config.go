// Package config reads ocibridge.hcl, the one file that configures ocibridge.
//
// It finds the file, defines its syntax in schema.go, and checks everything that can be
// checked before the program starts. It also decides which value is in force if a flag, a
// variable, the file, the user's CLI configuration and a default compete. The reference page
// docs/configuration.md is generated from schema.go.
//
// Arguments are HCL expressions with two functions, env("NAME") and file("PATH"). The
// exception is repository_template: it is a template itself, and its text is not evaluated.
// Paths are relative to the folder of the file.
//
// Invariants:
//
//   - An unknown name is an error, and so is an invalid value: nothing is ignored in
//     silence.
//   - A secret is an [auth.Secret] as soon as it is evaluated. Errors, the source lines
//     in them and [Config.InForce] contain no secret. A source line shows the value of an
//     argument only if the schema says that it is no secret.
//   - The package reads the environment only through [Environment].
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

// Config is the content of a file. The zero value is the content of no file. A Config does
// not change once it is loaded.
//
// The zero value of a field means its default, unless its comment says something else.
type Config struct {
	// File is the file that was read, "" for none.
	File string
	// Warnings are about settings in the file that have no effect.
	Warnings []Diagnostic

	Data string // folder; "" for the default
	Jobs int    // 0 for the default

	// Logins are the oci_credentials blocks. Defaults is the oci_default_credentials
	// block; nil without one. They are valid.
	Logins   []auth.Login
	Defaults *auth.Defaults
	// Registries are the registry blocks.
	Registries []Registry

	Trust       trust.Rules // the trust blocks
	Providers   []Provider
	PullThrough *PullThrough // nil without a block
	Gateway     Gateway

	templates templates.Set
	mirrors   []MirrorText // the blocks of templates
	tree      *block
	files     []fileArgument
}

// Templates returns the templates of the oci_mirror blocks in the order of the file. The first
// one that includes a provider counts for it.
func (c *Config) Templates() templates.Set { return c.templates }

// Registry is a registry block.
type Registry struct {
	Host ociaddr.Registry
	// MirrorsBlobsByRedirect means that the registry redirects requests for blobs.
	MirrorsBlobsByRedirect bool

	// settings returns the settings for the registry's client. It is a function so that
	// encoders and loggers do not see the key of a client certificate.
	settings func() auth.Registry
}

// RegistrySettings returns the settings of the registry blocks for [auth.Options].
func (c *Config) RegistrySettings() map[ociaddr.Registry]auth.Registry {
	out := map[ociaddr.Registry]auth.Registry{}
	for _, r := range c.Registries {
		out[r.Host] = r.settings()
	}
	return out
}

// Provider is a provider block, which sync mirrors.
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

// Source is where sync fetches a provider from. The zero value is the provider's origin.
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

// NamesHosts reports whether the include patterns are an allow list of hosts: there is at
// least one, and each names a host.
func (p *PullThrough) NamesHosts() bool {
	return len(p.Selector.Include) > 0 && !slices.ContainsFunc(p.Selector.Include, func(p provider.Pattern) bool {
		_, named := p.ServiceHost()
		return !named
	})
}

// Gateway is the gateway block.
type Gateway struct {
	Listen            string // "" for the default
	PublicURL         string // https, ends in a slash; "" for none
	MetricsListen     string // "": the metrics have no listener of their own
	VerifyRequired    bool
	Redirect          bool
	TagTTL            time.Duration // as in [catalog.Options]: 0 is the default, and negative is none
	StaleIfError      time.Duration // likewise
	Deny              []catalog.Deny
	CapabilityKeyFile string
	HTTP              bool // plain HTTP, without TLS
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

// TLS is the tls block. [Load] does not read its files, because a push may not have the
// right to; see [Config.CheckFiles].
type TLS struct {
	CertFile, KeyFile string
	SelfSigned        bool
	ClientCAFile      string
	ACME              *ACME // nil without a block
}

// ACME is the acme block. The user has agreed to the issuer's terms.
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
