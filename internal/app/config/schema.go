package config

import (
	"cmp"
	"crypto/sha256"
	"log/slog"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

//go:generate go run ./reference schema.go ../../../docs/reference/configuration.md

// The types of this file define the syntax of ocibridge.hcl, and are the source of
// docs/reference/configuration.md: the comment of a field becomes the page's description of
// the argument or block. A field holds the parsed value of its argument, or the
// default if the file does not set the argument. Some defaults are constants, which
// the tags name. A field with such a default is 0 if the file does not set the
// argument. The package that uses the field then applies the constant. In addition
// to hcl, the tags are
//
//	value     the kind of value, as the page names it; it selects the parser
//	required  the argument must be given
//	default   the value without the argument, or the name of its constant
//	flag      the flag that overrides the argument, with its variable; a flag
//	          that begins with no- sets the opposite
//	group     a group of flags, each of which overrides every argument of the group
//
// A struct with the same fields as a type of another package is converted to that
// type.

// fileBlock is the whole file.
type fileBlock struct {
	// The folder of the embedded registry, and of other data that `serve` stores. Without it:
	// `$XDG_DATA_HOME/ocibridge` or `~/.local/share/ocibridge`, on macOS `~/Library/Application Support/ocibridge`, on
	// Windows `%LocalAppData%\ocibridge`.
	Data string `hcl:"data,optional" value:"folder" flag:"data"`
	// A PEM file with certificate authorities to trust in addition to the system's, for connections to registries and
	// origins. The `ca_file` of a `registry` block adds authorities for one registry.
	CAFile string `hcl:"ca_file,optional" value:"file" flag:"ca-file"`
	// The maximum number of packages in progress at once, over all versions together, from 1 to 256.
	Jobs int `hcl:"jobs,optional" value:"number" default:"4" flag:"jobs"`
	// The lowest level to log: `debug`, `info`, `warn` or `error`. Without it, `serve` logs from `info`, and other
	// commands log from `warn`.
	LogLevel slog.Level `hcl:"log_level,optional" value:"level" flag:"log-level"`
	// The format of the log of `serve`: `text`, or `json` with one object per line, for log collectors. Without it,
	// `text`.
	LogFormat string `hcl:"log_format,optional" value:"text or json" flag:"log-format"`

	// The repository of each provider, as in OpenTofu's CLI configuration. May be repeated: the first block that
	// covers a provider applies. `--template` replaces all blocks. Without any block, ocibridge uses the blocks of the
	// CLI configuration, or else the embedded registry.
	Mirrors []mirrorBlock `hcl:"oci_mirror,block"`
	// Where clients install from. The block may contain `oci_mirror` blocks, as in a CLI configuration; the other
	// installation methods concern only clients and have no effect here.
	Installations []installationBlock `hcl:"provider_installation,block"`

	// The repository of each module. May be repeated: the first block that covers a module applies. `--template` of the
	// `module` commands replaces all blocks. With an `oci_mirror` block and no `module_mirror` block, there is no
	// repository for modules. With neither block, the embedded registry holds providers and modules.
	ModuleMirrors []moduleMirrorBlock `hcl:"module_mirror,block"`

	// A login for a registry, or for the repositories of a registry whose names begin with a path. The most specific
	// block applies. If two are equally specific, a block in this file takes precedence over one in the CLI
	// configuration. Set exactly one of these: `username` and `password` together, or `access_token`, or
	// `docker_credentials_helper`.
	Credentials []credentialsBlock `hcl:"oci_credentials,block"`
	// Where to find logins that no `oci_credentials` block covers. This block replaces the `oci_default_credentials`
	// block of the CLI configuration.
	Defaults *defaultsBlock `hcl:"oci_default_credentials,block"`
	// How to connect to one registry.
	Registries []registryBlock `hcl:"registry,block"`

	// Which packages to accept for the providers that a pattern of three parts matches, and which versions of providers or
	// modules need an approval. A pattern of four parts is for modules. If several patterns match, only the block with the
	// most specific pattern applies.
	Trust []trustBlock `hcl:"trust,block"`
	// The key with which `push`, `sync`, `module push` and pull-through approve the versions that they have verified and
	// stored. Without the block, they approve nothing.
	Sign *Sign `hcl:"sign,block"`
	// A provider that `sync` keeps in the registry.
	Providers []Provider `hcl:"provider,block"`
	// A public module that `sync` keeps in the registry.
	Modules []Module `hcl:"module,block"`
	// Providers that the gateway fetches, verifies and stores at their first request; see `ocibridge help
	// pull-through`. Without the block, the gateway fetches nothing. The exception is a `serve` with neither a
	// configuration file nor a template: it fetches all providers as long as it listens on a loopback address.
	PullThrough *pullThroughBlock `hcl:"pull_through,block"`
	// The settings of `serve`.
	Gateway Gateway `hcl:"gateway,block"`
}

type mirrorBlock struct {
	// The repository of a provider. As in OpenTofu, it must be one quoted string, which can use `hostname`,
	// `namespace` and `type`, but no function.
	Template string `hcl:"repository_template,optional" value:"template" required:"true" flag:"template"`
	// The providers that the block covers; without it, all.
	Include []provider.Pattern `hcl:"include,optional" value:"patterns" flag:"include"`
	// Exceptions from `include`.
	Exclude []provider.Pattern `hcl:"exclude,optional" value:"patterns" flag:"exclude"`
}

type moduleMirrorBlock struct {
	// The repository of a module. It must be one quoted string, which can use `hostname`, `namespace`, `name` and
	// `system`, but no function.
	Template string `hcl:"repository_template,optional" value:"template" required:"true"`
	// The modules that the block covers, such as `registry.acme.example/platform/*/*`; without it, all.
	Include []module.Pattern `hcl:"include,optional" value:"module patterns"`
	// Exceptions from `include`.
	Exclude []module.Pattern `hcl:"exclude,optional" value:"module patterns"`
	// Whether the gateway redirects clients to a module's origin if the registry lacks the requested version. Clients
	// send no token to the origin after such a redirect, so use this argument only for public modules.
	FallThrough bool `hcl:"fall_through,optional" value:"bool" default:"false"`
	// Whether OpenTofu downloads modules directly from the registry, by `oci://`. The gateway then only lists the
	// modules' versions and names their digests. OpenTofu needs a login of its own if the registry requires one, and
	// the registry must speak TLS. Terraform cannot read `oci://`, and Terragrunt only with `--experiment oci`, so
	// use this argument only for OpenTofu.
	Direct bool `hcl:"direct,optional" value:"bool" default:"false"`
}

type installationBlock struct {
	// As at top level.
	Mirrors []mirrorBlock `hcl:"oci_mirror,block"`
	// Only for clients: ignored with a warning.
	Direct []clientBlock `hcl:"direct,block"`
	// Only for clients: ignored with a warning.
	Network []clientBlock `hcl:"network_mirror,block"`
	// Only for clients: ignored with a warning.
	Filesystem []clientBlock `hcl:"filesystem_mirror,block"`
}

// clientBlock is an installation method of clients, with any content.
type clientBlock struct {
	Remain hcl.Body `hcl:",remain"`
}

type credentialsBlock struct {
	Prefix string `hcl:"HOST[/PATH],label"`

	// The user name. A `$` in it, as in the names of Harbor's robots, needs no escape.
	Username login.Secret `hcl:"username,optional" value:"secret"`
	// The password, or a token in place of a password.
	Password login.Secret `hcl:"password,optional" value:"secret"`
	// A token that ocibridge sends to the registry unchanged.
	AccessToken login.Secret `hcl:"access_token,optional" value:"secret"`
	// The token that renews `access_token` when the registry refuses `access_token`.
	RefreshToken login.Secret `hcl:"refresh_token,optional" value:"secret"`
	// The credential helper: NAME for a program `docker-credential-NAME` on PATH. The block's label must then be a
	// host without a path.
	Helper string `hcl:"docker_credentials_helper,optional" value:"name"`

	Origin      string
	InCLIConfig bool
}

type defaultsBlock struct {
	// Whether to look for logins in the login files of docker, podman and similar tools.
	Discover bool `hcl:"discover_ambient_credentials,optional" value:"bool" default:"true"`
	// The login files to read instead of the standard ones. An empty list means none.
	Files []string `hcl:"docker_style_config_files,optional" value:"files"`
	// The credential helper for registries that no more specific login covers.
	Helper string `hcl:"docker_credentials_helper,optional" value:"name"`

	Origin      string
	InCLIConfig bool
}

type registryBlock struct {
	Host ociaddr.Registry `hcl:"HOST[:PORT],label" value:"registry"`

	// Use plain HTTP, even for credentials. Registries on a loopback address do not need this.
	PlainHTTP bool `hcl:"plain_http,optional" value:"bool" default:"false"`
	// A PEM file with certificate authorities to trust in addition to the system's.
	CAFile string `hcl:"ca_file,optional" value:"file"`
	// A PEM file with the client certificate for registries that require one. It requires `client_key_file`.
	ClientCertFile string `hcl:"client_cert_file,optional" value:"file"`
	// The PEM file with the client certificate's key, without a passphrase.
	ClientKeyFile string `hcl:"client_key_file,optional" value:"file"`
	// Accept any certificate. Anyone on the network path can then read and change everything.
	InsecureSkipVerify bool `hcl:"insecure_skip_verify,optional" value:"bool" default:"false"`
	// The registry redirects downloads of blobs to object storage, and the gateway may pass these redirects on.
	MirrorsBlobsByRedirect bool `hcl:"mirrors_blobs_by_redirect,optional" value:"bool" default:"false"`
	// The registry answers "denied" for absent repositories, as GHCR does. The gateway then treats "denied" as absent,
	// as long as the registry still answers requests for another repository that the gateway has read before.
	DeniedMeansAbsent bool `hcl:"denied_means_absent,optional" value:"bool" default:"false"`
	// The maximum rate of requests to the registry. Without it, there is no limit.
	RequestsPerSecond float64 `hcl:"requests_per_second,optional" value:"number"`
	// The maximum number of requests at once. Without it, there is no limit.
	MaxConcurrent int `hcl:"max_concurrent,optional" value:"number"`
	// How long to wait for the beginning of an answer.
	Timeout time.Duration `hcl:"timeout,optional" value:"duration" default:"wire.DefaultTimeout"`
}

type trustBlock struct {
	Pattern subject.Pattern `hcl:"PATTERN,label" value:"trust pattern"`

	// The full fingerprints of the primary keys that may sign. Without `keys` and `key_files`, any key that the
	// origin offers may sign, as in clients.
	Keys []string `hcl:"keys,optional" value:"fingerprints"`
	// Files with public keys in ASCII armour. The primary keys in these files may also sign. `ocibridge fingerprint`
	// prints their fingerprints.
	KeyFiles []string `hcl:"key_files,optional" value:"files"`
	// Accept unsigned packages by their checksum. ocibridge records that they are unsigned, and every listing shows
	// it. `"where-clients-do"` accepts such packages only for providers for which registry.opentofu.org has no key,
	// as OpenTofu does, and only as long as no signed version of the provider is stored. Neither `true` nor
	// `"where-clients-do"` can be combined with `keys` or `key_files`.
	AllowUnsigned unsigned `hcl:"allow_unsigned,optional" value:"unsigned" default:"false"`
	// Refuse signatures by expired keys, instead of warning about them.
	StrictExpiry bool `hcl:"strict_expiry,optional" value:"bool" default:"false"`

	// An approval that versions need. With several blocks, a version needs all of these approvals. See
	// [approvals](../explanation/trust.md#approvals). `keys`, `key_files`, `allow_unsigned` and `strict_expiry` are only for
	// providers, and `require` is for providers and modules.
	Requires []requireBlock `hcl:"require,block"`
}

type requireBlock struct {
	Name string `hcl:"NAME,label" value:"requirement name"`

	// The public key of the signer in PEM: ECDSA, Ed25519 or RSA, such as `file("platform.pub")`. Set either `public_key`,
	// or `issuer`, `identity` and `trusted_root` together.
	PublicKey string `hcl:"public_key,optional" value:"public key in PEM"`
	// The issuer of the signer's OpenID Connect token, as the signer's certificate names it.
	Issuer string `hcl:"issuer,optional" value:"URL"`
	// The signer's identity in the certificate: a URI or an email address. A `*` matches any number of characters except
	// `/`.
	Identity string `hcl:"identity,optional" value:"identity"`
	// A `trusted_root.json` file of Sigstore, of at most 1 MiB, with the authorities that may issue the certificate and
	// prove the time of the signature. Nothing is fetched, so it also works behind an air gap.
	TrustedRoot string `hcl:"trusted_root,optional" value:"file"`
	// The predicate type of the attestation that is required, such as `https://slsa.dev/provenance/v1`. Without it, a
	// signature by cosign or by `ocibridge approve` is required.
	Predicate string `hcl:"predicate,optional" value:"predicate type"`
	// Whether a version without this approval is refused. With `false`, the log, the page, the metrics and
	// `verify --waiting` report the version, and the gateway serves it.
	Enforce bool `hcl:"enforce,optional" value:"bool" default:"true"`
}

// Sign is the sign block. [Load] does not read the key, because a user who only reads may have no access to it.
// [Config.CheckFiles] checks it.
type Sign struct {
	// The file with the private key, as `cosign generate-key-pair` writes it or in PKCS #8 (PEM). The password of an
	// encrypted key is in the variable `COSIGN_PASSWORD`.
	Key string `hcl:"key,optional" value:"file" required:"true"`
	// Whether the gateway also approves the versions that pull-through fetches for a client's request. Every requested
	// version that passes the other checks is then approved, and no person reviews it.
	PullThrough bool `hcl:"pull_through,optional" value:"bool" default:"false"`
}

// Provider is a provider block. The command sync mirrors the provider.
type Provider struct {
	Address provider.Address `hcl:"ADDRESS,label" value:"provider address"`

	// The versions, as in `required_providers`. You must set `versions` or `latest`.
	Versions provider.VersionSet `hcl:"versions,optional" value:"version constraint"`
	// The platforms; without it, all.
	Platforms []provider.Platform `hcl:"platforms,optional" value:"platforms"`
	// The number of versions to keep, counted from the newest one that matches.
	Latest int `hcl:"latest,optional" value:"number"`
	// Include prereleases that the constraint does not name.
	Prereleases bool `hcl:"prereleases,optional" value:"bool" default:"false"`
	// The minimum age of a version, counted from when a sync first saw it.
	Cooldown time.Duration `hcl:"cooldown,optional" value:"duration" default:"0s"`
	// The source: `origin`, the `https:` URL of another network mirror, or the path of a folder that `providers
	// mirror` wrote. The path must begin with `./`, `../` or `/`.
	From Source `hcl:"from,optional" value:"source" default:"origin"`

	Source string // "FILE:LINE"
}

// Module is a module block. The command sync mirrors the public module.
type Module struct {
	Address module.Address `hcl:"ADDRESS,label" value:"module address"`

	// The versions, as in `required_providers`. You must set `versions` or `latest`. In a `module` block of a configuration,
	// constraints differ in one form: there, `~> 1` also allows 2.0.0. Write `>= 1` here for that.
	Versions provider.VersionSet `hcl:"versions,optional" value:"version constraint"`
	// The number of versions to keep, counted from the newest one that matches.
	Latest int `hcl:"latest,optional" value:"number"`
	// Include prereleases that the constraint does not name.
	Prereleases bool `hcl:"prereleases,optional" value:"bool" default:"false"`
	// The minimum age of a version, counted from when a sync first saw it, or a push first fetched it.
	Cooldown time.Duration `hcl:"cooldown,optional" value:"duration" default:"0s"`
	// Also keep the modules that the selected versions call, and those that these call. A called module without a block of
	// its own has the longest `cooldown` of the blocks with `closure`, and `--prune` removes none of its versions.
	Closure bool `hcl:"closure,optional" value:"bool" default:"false"`
	// Store pointers of Git LFS as they are, as clients without git-lfs get them. Otherwise, a version with such a pointer
	// is refused. With `closure`, this also applies to called modules without a block of their own.
	AllowLFSPointers bool `hcl:"allow_lfs_pointers,optional" value:"bool" default:"false"`

	Source string // "FILE:LINE"
}

// Source is where sync fetches a provider from. The zero value is the provider's origin.
type Source struct {
	MirrorURL string // https, ends in a slash
	Folder    string
}

type pullThroughBlock struct {
	// Whether to fetch at all. `--no-pull-through` sets it to `false`.
	Enabled bool `hcl:"enabled,optional" value:"bool" default:"true" flag:"no-pull-through"`
	// The providers and modules that may be fetched; without it, all providers and no modules. A pattern of three parts is
	// for providers, and a pattern of four parts for modules. Required if the gateway listens on addresses other than
	// loopback, and has no access control. A host that a pattern names may be at a private address, on port 443 or the
	// port in the pattern. Other hosts may not be at private addresses.
	Include []subject.Pattern `hcl:"include,optional" value:"provider and module patterns"`
	// Exceptions from `include`.
	Exclude []subject.Pattern `hcl:"exclude,optional" value:"provider and module patterns"`
	// The platforms to store before a version is tagged; others are stored when a client requests them. Without it,
	// all platforms are stored first.
	Platforms []provider.Platform `hcl:"platforms,optional" value:"platforms"`
	// The versions that may be fetched; without it, all.
	Versions provider.VersionSet `hcl:"versions,optional" value:"version constraint"`
	// The minimum age of a version, counted from when this gateway first saw it. The gateway stores that time in the
	// cache's folder, or else in the data folder if the registry is embedded. `cooldown` does not apply to versions
	// that exist when a client first requests the provider or the module.
	Cooldown time.Duration `hcl:"cooldown,optional" value:"duration" default:"0s"`
	// The maximum size of a package, and of what is received for a module. Without it, there is no limit.
	MaxSize int64 `hcl:"max_size,optional" value:"size"`
	// The maximum number of packages and modules that are fetched at once.
	MaxConcurrent int `hcl:"max_concurrent,optional" value:"number" default:"pull.DefaultConcurrent"`
	// The maximum number of bytes of packages and modules to fetch per day. A day begins at midnight UTC. Each gateway counts
	// only the bytes that it has fetched itself since it was started. Without it, there is no limit.
	MaxPerDay int64 `hcl:"max_per_day,optional" value:"size"`
	// The maximum disk space for packages and modules that are being fetched.
	MaxSpool int64 `hcl:"max_spool,optional" value:"size" default:"pull.DefaultSpool"`

	// What `gc` removes from the embedded registry. `gc` removes only versions that pull-through has stored, and that
	// no `push`, `sync` or `copy` has stored, completed or found in place. At the next request for a removed version,
	// the gateway fetches and stores it again. Other registries have their own retention. Set at least one of the
	// arguments.
	Retention *Retention `hcl:"retention,block"`
}

// Retention is the retention block. It has the fields of [embedded.Retention].
type Retention struct {
	// How long a version may be unused, at least `2d`. The gateway records the use of a version once a day. Without it,
	// there is no limit.
	Unused time.Duration `hcl:"unused,optional" value:"duration" flag:"unused"`
	// The maximum number of bytes that are stored only for versions that `gc` may remove. The versions that were used
	// longest ago are removed first. Without it, there is no limit.
	MaxSize int64 `hcl:"max_size,optional" value:"size" flag:"max-size"`
}

// Gateway is the gateway block.
type Gateway struct {
	// The address to listen on; without a host, on every interface.
	Listen string `hcl:"listen,optional" value:"HOST:PORT" default:"localhost:8443" flag:"listen"`
	// The `https:` URL that clients use to reach the gateway. `config client` writes it into client configuration.
	// The gateway is itself the origin of providers that have the host name of this URL. Absolute URLs in the
	// provider registry protocol begin with this URL, so set it if a proxy speaks TLS to clients.
	PublicURL string `hcl:"public_url,optional" value:"URL"`
	// Whether the gateway checks the stored evidence before it serves a version: `off`, or `required` to serve only
	// versions that are signed by keys in `trust` blocks.
	VerifyRequired bool `hcl:"verify,optional" value:"off or required" default:"off"`
	// Whether to redirect clients to object storage, for registries with `mirrors_blobs_by_redirect`. The gateway then
	// neither caches nor checks these packages.
	Redirect bool `hcl:"redirect,optional" value:"bool" default:"false"`
	// Another address, which answers only `/metrics`, `/healthz` and `/readyz`, over plain HTTP and without access
	// control. Without it, the gateway answers them on its main address, and with access control it answers `/metrics`
	// only to an operator's token.
	MetricsListen string `hcl:"metrics_listen,optional" value:"HOST:PORT" flag:"metrics-listen"`
	// How long to cache a tag listing, and the manifest that a tag names, before asking the registry again. Without
	// this setting, the embedded registry is asked each time.
	TagTTL time.Duration `hcl:"tag_ttl,optional" value:"duration" default:"catalog.DefaultTagTTL"`
	// How long to serve stale answers while the registry cannot answer, counted from when the registry last confirmed
	// them. With the cache on disk, stale answers survive a restart.
	StaleIfError time.Duration `hcl:"stale_if_error,optional" value:"duration" default:"catalog.DefaultStaleIfError"`
	// Versions that the gateway never serves: patterns of providers (three parts) or modules (four parts), each
	// optionally with `@` and a version, a version constraint, or the digest `sha256:...` of the manifest that a version's
	// tag names. A constraint covers prereleases only if it names them. A digest is denied under every tag.
	// An object such as `{ match = "...", reason = "..." }` also gives a reason, of at most 500 bytes. The log,
	// `inspect`, the page and the answers to clients show the reason.
	Deny []catalog.Deny `hcl:"deny,optional" value:"list of PATTERN[@VERSIONS] or { match, reason }"`
	// Versions that the gateway serves with a warning: like `deny`, but each element has a reason, and none names a
	// digest. Both clients print the reasons of providers in the registry protocol, and `exec` those of modules. `list`,
	// `inspect`, `verify` and the page show them.
	Deprecate []catalog.Deny `hcl:"deprecate,optional" value:"list of { match, reason }"`
	// The file with the keys that sign the capabilities in URLs of archives, checksums and signatures. It has one key
	// per line, as `openssl rand -hex 32` prints them; the first one signs, and all of them verify. Parallel gateways
	// must use the same file. Without it, each process has its own key.
	CapabilityKeyFile string `hcl:"capability_key_file,optional" value:"file"`

	// Speak plain HTTP, behind a proxy that speaks TLS to clients. Clients themselves require TLS.
	HTTP bool `hcl:"http,optional" value:"bool" default:"false" flag:"http" group:"tls"`

	// How long to continue answering after the gateway was asked to stop, so that load balancers notice that it is not
	// ready any more. In Kubernetes, `terminationGracePeriodSeconds` must be longer than this and `shutdown_timeout`
	// together.
	ShutdownDelay time.Duration `hcl:"shutdown_delay,optional" value:"duration" default:"0s"`
	// How long running downloads may take to finish after `shutdown_delay`, before the gateway aborts them.
	ShutdownTimeout time.Duration `hcl:"shutdown_timeout,optional" value:"duration" default:"DefaultShutdownTimeout"`

	// The gateway's certificate. Without it, the gateway creates one if it listens on a loopback address.
	TLS TLS `hcl:"tls,block"`
	// The cache on disk, for packages and the registry's answers about versions. It is on by default, except with the
	// embedded registry. Without it, the gateway streams every download from the registry, and forgets the answers when
	// it stops. Any number of processes may share the folder.
	Cache *Cache `hcl:"cache,block"`
	// A bearer token that clients may send. With a `token` or `oidc` block, the gateway refuses clients without a
	// token.
	TokenBlocks []tokenBlock `hcl:"token,block"`
	// An issuer of OpenID Connect tokens that clients may send, such as a CI service.
	IssuerBlocks []oidcBlock `hcl:"oidc,block"`
	// Where `terraform login` and `tofu login` get a token for their user: the login protocol (`login.v1`) for the
	// gateway's host name.
	Login *Login `hcl:"login,block"`

	// Tokens and OIDC are the token and oidc blocks.
	Tokens []access.Token
	OIDC   []access.Issuer
}

// EffectiveCache returns the cache block with the defaults of this machine. Without the block,
// the cache is on unless the registry is embedded. folder is the default folder, or "" if there
// is none.
func (g *Gateway) EffectiveCache(embedded bool, folder string) Cache {
	c := Cache{Enabled: !embedded, Store: StoreCopy}
	if g.Cache != nil {
		c = *g.Cache
	}
	c.Directory = cmp.Or(c.Directory, folder)
	return c
}

// AsksForTokens reports whether the gateway refuses requests without a token.
func (g *Gateway) AsksForTokens() bool { return len(g.Tokens)+len(g.OIDC) > 0 }

// TLS is the tls block. [Load] does not read the files that the block names, because a user who only pushes may have
// no access to them. [Config.CheckFiles] checks them.
type TLS struct {
	// A PEM file with the certificate and its chain. It requires `key_file`.
	CertFile string `hcl:"cert_file,optional" value:"file" flag:"tls-cert" group:"tls"`
	// The PEM file with the certificate's key, without a passphrase.
	KeyFile string `hcl:"key_file,optional" value:"file" flag:"tls-key" group:"tls"`
	// Sign the certificate with a CA in the data folder, and print how clients trust that CA.
	SelfSigned bool `hcl:"self_signed,optional" value:"bool" default:"false" flag:"tls-self-signed" group:"tls"`
	// A PEM file with the authorities for client certificates. With this argument, clients must present a certificate
	// that one of these authorities has signed. Terraform and OpenTofu cannot present a certificate, so use this
	// argument only behind a proxy.
	ClientCAFile string `hcl:"client_ca_file,optional" value:"file"`
	// Obtain and renew certificates from an authority that speaks ACME, such as Let's Encrypt. The authority must be
	// able to reach the gateway by its name. The block replaces the certificate files; `--tls-cert` and
	// `--tls-self-signed` override the block.
	ACME *ACME `hcl:"acme,block"`
}

// ACME is the acme block.
type ACME struct {
	// Whether you accept the authority's terms of service. It must be `true`.
	AcceptTerms bool `hcl:"accept_terms,optional" value:"bool" required:"true"`
	// The names to obtain certificates for; the gateway never requests a certificate for another name. Without it,
	// the host of `public_url`.
	Domains []string `hcl:"domains,optional" value:"list of names"`
	// The address that the authority notifies about problems with the certificates.
	Email string `hcl:"email,optional" value:"address"`
	// The authority's directory.
	DirectoryURL string `hcl:"directory_url,optional" value:"URL" default:"https://acme-v02.api.letsencrypt.org/directory"`
	// A PEM file with certificate authorities to trust in addition to the system's, for connections to the authority.
	CAFile string `hcl:"ca_file,optional" value:"file"`
	// The folder for certificates, their keys and the account's key. Other users must not have access to it. Without
	// it, the folder `acme` in the folder that `data` names. Parallel gateways can share this folder.
	Directory string `hcl:"directory,optional" value:"folder"`
}

// Cache is the cache block.
type Cache struct {
	// Whether to cache on disk at all. `--no-cache` sets it to `false`.
	Enabled bool `hcl:"enabled,optional" value:"bool" default:"true" flag:"no-cache"`
	// The folder of the cache. The gateway creates it if necessary. Other users should not be able to write to it.
	// Without it, the first folder in `$CACHE_DIRECTORY` (systemd sets it) if its path is absolute, else `ocibridge` in
	// the user's cache folder; if that folder cannot be written, the gateway warns and runs without a cache.
	Directory string `hcl:"directory,optional" value:"folder"`
	// The maximum size of all packages, packed and unpacked, including those that are being fetched. The least recently
	// used packages are evicted first, but before these, zips whose packages are also stored unpacked. Without it, 10 GiB, or a tenth of the disk space that is free or that the cache already uses,
	// whichever is less.
	MaxSize int64 `hcl:"max_size,optional" value:"size"`
	// How `exec` lays packages into the folder in which a client installs providers: `copy`; `link`, by a symbolic link to
	// the one unpacked copy in the cache; or `off`, to let each client download and unpack them. Copies share their bytes
	// where the file system can clone files. Before you choose `link`, read
	// [what links cost](../howto/without-server.md#packages-unpacked-once-per-machine).
	Store Store `hcl:"store,optional" value:"copy, link or off" default:"copy"`
}

type tokenBlock struct {
	Name string `hcl:"NAME,label" value:"token name"`

	// The SHA-256 sum of the token, in hexadecimal: `printf %s "$TOKEN" | sha256sum`. The configuration does not
	// contain the token itself.
	SHA256 [sha256.Size]byte `hcl:"sha256,optional" value:"sha256" required:"true"`
	// The providers and modules that the token may read; without it, all. A pattern of three parts is for providers, a
	// pattern of four parts for modules. A token whose patterns are all for providers reads no modules, and a token
	// whose patterns are all for modules reads no providers.
	Include []subject.Pattern `hcl:"include,optional" value:"provider and module patterns"`
	// Exceptions from `include`.
	Exclude []subject.Pattern `hcl:"exclude,optional" value:"provider and module patterns"`
	// When the token expires: a date (at the start of that day in UTC), or a time as in RFC 3339.
	Expires time.Time `hcl:"expires,optional" value:"time"`
	// Whether the token belongs to an operator, who may also read metrics and drop cached answers.
	Operator bool `hcl:"operator,optional" value:"bool" default:"false"`
}

type oidcBlock struct {
	Name string `hcl:"NAME,label" value:"oidc name"`

	// The issuer's URL. Its discovery document is below this URL.
	Issuer string `hcl:"issuer,optional" value:"URL" required:"true"`
	// The audience that a token must have.
	Audience string `hcl:"audience,optional" value:"text" required:"true"`

	// What a token may read, by its claims. You must write at least one rule; the token may read everything that any
	// matching rule includes.
	Rules []ruleBlock `hcl:"rule,block"`
}

// Login is the login block. It has the fields of [gateway.Login].
type Login struct {
	// The client ID of Terraform and OpenTofu at the issuer. Both are public clients, without a secret, and use PKCE.
	Client string `hcl:"client,optional" value:"text" required:"true"`
	// The issuer's authorization endpoint.
	Authz string `hcl:"authz,optional" value:"URL" required:"true"`
	// The issuer's token endpoint. Clients save the access token that it returns, and send it to the gateway.
	Token string `hcl:"token,optional" value:"URL" required:"true"`
	// The range of ports on `localhost` for the clients' redirect URIs. Clients never use the last port. The issuer
	// must allow `http://localhost:PORT/login` for each port. Without it, clients use any port from 1024.
	Ports [2]int `hcl:"ports,optional" value:"list of two numbers"`
	// The scopes to request.
	Scopes []string `hcl:"scopes,optional" value:"list of text"`
}

type ruleBlock struct {
	// The claims that the token must have, each with exactly the given value.
	Claims map[string]string `hcl:"claims,optional" value:"map of text" required:"true"`
	// The providers and modules that a token with these claims may read; without it, all. The patterns have the same
	// syntax as in a `token` block.
	Include []subject.Pattern `hcl:"include,optional" value:"provider and module patterns"`
	// Exceptions from `include`.
	Exclude []subject.Pattern `hcl:"exclude,optional" value:"provider and module patterns"`
}
