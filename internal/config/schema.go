package config

import "github.com/hashicorp/hcl/v2"

//go:generate go run ./reference schema.go ../../docs/configuration.md

// The types of this file are the syntax of ocibridge.hcl, for gohcl, and the
// source of docs/configuration.md: the comment of a field is what the page says
// of the argument or block. All values are as written; [Config] has what they
// mean. Beside hcl, the tags are
//
//	value     what is written there, as the page names it; secret, template,
//	          sha256, file, folder and files are treated as such
//	required  the argument cannot be left out
//	default   the value in force where nothing is written
//	flag      the flag that overrides the argument, with its variable; one that
//	          begins with no- is for the opposite
//	group     of flags: one of them overrides every argument of the group

// fileBlock is the whole file.
type fileBlock struct {
	// The folder of the embedded registry, and of what `serve` keeps. Without it, it is the system's place for a user's
	// data: `$XDG_DATA_HOME/ocibridge` or `~/.local/share/ocibridge`, on macOS `~/Library/Application Support/ocibridge`, on
	// Windows `%LocalAppData%\ocibridge`.
	Data *string `hcl:"data,optional" value:"folder" flag:"data"`
	// How many packages are under way at once, of all versions together, from 1 to 256.
	Jobs *int `hcl:"jobs,optional" value:"number" default:"4" flag:"jobs"`
	// The least level to log: `debug`, `info`, `warn` or `error`. Without it, `serve` logs from `info` on, other commands from
	// `warn` on.
	LogLevel *string `hcl:"log_level,optional" value:"level" flag:"log-level"`
	// How `serve` writes its log: `text`, or `json`, an object a line, for what collects logs. Without it, `text`.
	LogFormat *string `hcl:"log_format,optional" value:"text or json" flag:"log-format"`

	// Which repository holds which provider, as in OpenTofu's CLI configuration. May be repeated: the first block that is
	// for a provider counts. `--template` takes the place of all; with none, those of the CLI configuration count, and if
	// there are none either, the embedded registry is used.
	Mirrors []mirrorBlock `hcl:"oci_mirror,block"`
	// Where clients install from. `oci_mirror` blocks may stand in here as they do in a CLI configuration; the other
	// installation methods are for clients and mean nothing here.
	Installations []installationBlock `hcl:"provider_installation,block"`

	// A login for a registry, or for the repositories of a registry whose names begin with a path. The most specific block
	// counts; those of the CLI configuration count, too, after those of this file. One of `username` with `password`,
	// `access_token`, and `docker_credentials_helper` must be given.
	Credentials []credentialsBlock `hcl:"oci_credentials,block"`
	// Where logins come from that no `oci_credentials` block is for. It takes the place of the block in the CLI configuration.
	Defaults *defaultsBlock `hcl:"oci_default_credentials,block"`
	// How one registry is spoken to.
	Registries []registryBlock `hcl:"registry,block"`

	// What makes a package of the providers that a pattern matches acceptable. Of several patterns the most specific counts.
	Trust []trustBlock `hcl:"trust,block"`
	// A provider that `sync` keeps in the registry.
	Providers []providerBlock `hcl:"provider,block"`
	// Providers that the gateway fetches, verifies and stores when they are first asked for; `ocibridge help pull-through` has more.
	// Without the block nothing is fetched, unless `serve` has neither a configuration file nor a template: then all are, as
	// long as it listens on a loopback address.
	PullThrough *pullThroughBlock `hcl:"pull_through,block"`
	// What `serve` does.
	Gateway *gatewayBlock `hcl:"gateway,block"`

	Body hcl.Body `hcl:",body"`
}

type mirrorBlock struct {
	// The repository of a provider. It sees `hostname`, `namespace` and `type`, and no function, as in OpenTofu: the text is
	// taken as it is written, in one pair of quotes.
	Template hcl.Expression `hcl:"repository_template,optional" value:"template" required:"true" flag:"template"`
	// The providers that the block is for; without it, all.
	Include []string `hcl:"include,optional" value:"patterns" flag:"include"`
	// The providers that it is not for, of those included.
	Exclude []string `hcl:"exclude,optional" value:"patterns" flag:"exclude"`

	Range hcl.Range `hcl:",def_range"`
	Body  hcl.Body  `hcl:",body"`
}

type installationBlock struct {
	// As at top level.
	Mirrors []mirrorBlock `hcl:"oci_mirror,block"`
	// For clients: passed over with a warning.
	Direct []clientBlock `hcl:"direct,block"`
	// For clients: passed over with a warning.
	Network []clientBlock `hcl:"network_mirror,block"`
	// For clients: passed over with a warning.
	Filesystem []clientBlock `hcl:"filesystem_mirror,block"`

	Range hcl.Range `hcl:",def_range"`
	Body  hcl.Body  `hcl:",body"`
}

// clientBlock is an installation method of clients, whatever stands in it.
type clientBlock struct {
	Range  hcl.Range `hcl:",def_range"`
	Body   hcl.Body  `hcl:",body"`
	Remain hcl.Body  `hcl:",remain"`
}

type credentialsBlock struct {
	Prefix string `hcl:"HOST[/PATH],label"`

	// The user name. A `$` in it, as in the names of Harbor's robots, needs no escape.
	Username hcl.Expression `hcl:"username,optional" value:"secret"`
	// The password, or the token that takes its place.
	Password hcl.Expression `hcl:"password,optional" value:"secret"`
	// A token that is sent to the registry as it is.
	AccessToken hcl.Expression `hcl:"access_token,optional" value:"secret"`
	// What takes the place of `access_token` when the registry refuses it.
	RefreshToken hcl.Expression `hcl:"refresh_token,optional" value:"secret"`
	// The rest of the name of a program `docker-credential-...` on PATH. It goes with a host without a path.
	Helper *string `hcl:"docker_credentials_helper,optional" value:"name"`

	Range hcl.Range `hcl:",def_range"`
	Body  hcl.Body  `hcl:",body"`
}

type defaultsBlock struct {
	// Whether logins are looked for in the login files of docker, podman and their kin.
	Discover *bool `hcl:"discover_ambient_credentials,optional" value:"bool" default:"true"`
	// The login files to read in place of the usual ones. An empty list means none.
	Files []string `hcl:"docker_style_config_files,optional" value:"files"`
	// The credential helper for registries that nothing more specific is for.
	Helper *string `hcl:"docker_credentials_helper,optional" value:"name"`

	Range hcl.Range `hcl:",def_range"`
	Body  hcl.Body  `hcl:",body"`
}

type registryBlock struct {
	Host string `hcl:"HOST[:PORT],label"`

	// Speak plain HTTP to it, credentials included. Registries on a loopback address need no leave.
	PlainHTTP *bool `hcl:"plain_http,optional" value:"bool" default:"false"`
	// A PEM file with certificate authorities to trust beside the system's.
	CAFile *string `hcl:"ca_file,optional" value:"file"`
	// A PEM file with the certificate to show to a registry that asks for one. It goes with `client_key_file`.
	ClientCertFile *string `hcl:"client_cert_file,optional" value:"file"`
	// The PEM file with the key of that certificate, without a passphrase.
	ClientKeyFile *string `hcl:"client_key_file,optional" value:"file"`
	// Accept any certificate: whoever is in between can then read and change everything.
	InsecureSkipVerify *bool `hcl:"insecure_skip_verify,optional" value:"bool" default:"false"`
	// The registry answers blobs with a redirect to object storage, so that the gateway may pass that on.
	MirrorsBlobsByRedirect *bool `hcl:"mirrors_blobs_by_redirect,optional" value:"bool" default:"false"`
	// The registry answers "denied" for repositories that are absent, as GHCR does, so that the gateway takes it for that,
	// as long as the registry still answers about a repository that the gateway has seen to exist.
	DeniedMeansAbsent *bool `hcl:"denied_means_absent,optional" value:"bool" default:"false"`
	// How often the registry is asked at most. Without it there is no bound.
	RequestsPerSecond *float64 `hcl:"requests_per_second,optional" value:"number"`
	// How many requests are under way at once at most. Without it there is no bound.
	MaxConcurrent *int `hcl:"max_concurrent,optional" value:"number"`
	// How long to wait until an answer begins.
	Timeout *string `hcl:"timeout,optional" value:"duration" default:"60s"`

	Range hcl.Range `hcl:",def_range"`
	Body  hcl.Body  `hcl:",body"`
}

type trustBlock struct {
	Pattern string `hcl:"PATTERN,label"`

	// The full fingerprints of the primary keys that may sign; without it and `key_files`, the keys that the origin offers, as
	// clients have it.
	Keys []string `hcl:"keys,optional" value:"fingerprints"`
	// Files with public keys in ASCII armour, whose primary keys may sign, too. `ocibridge fingerprint` prints what they hold.
	KeyFiles []string `hcl:"key_files,optional" value:"files"`
	// Accept packages by their checksum alone where nothing is signed. It is recorded, and shown in every listing. It does
	// not go with `keys` and `key_files`.
	AllowUnsigned *bool `hcl:"allow_unsigned,optional" value:"bool" default:"false"`
	// Refuse signatures by expired keys, rather than warn about them.
	StrictExpiry *bool `hcl:"strict_expiry,optional" value:"bool" default:"false"`

	Range hcl.Range `hcl:",def_range"`
	Body  hcl.Body  `hcl:",body"`
}

type providerBlock struct {
	Address string `hcl:"ADDRESS,label"`

	// Which versions, as in `required_providers`. It or `latest` must be given.
	Versions *string `hcl:"versions,optional" value:"version constraint"`
	// Which platforms; without it, all that there are.
	Platforms []string `hcl:"platforms,optional" value:"platforms"`
	// Of those versions, only so many of the newest.
	Latest *int `hcl:"latest,optional" value:"number"`
	// Take prereleases into account that the constraint does not name.
	Prereleases *bool `hcl:"prereleases,optional" value:"bool" default:"false"`
	// How old a version must be, counted from when a sync first saw it.
	Cooldown *string `hcl:"cooldown,optional" value:"duration" default:"0s"`
	// Where it comes from: `origin`, the `https:` URL of another network mirror, or a folder that `providers mirror` wrote,
	// beginning with `./`, `../` or `/`.
	From *string `hcl:"from,optional" value:"source" default:"origin"`

	Range hcl.Range `hcl:",def_range"`
	Body  hcl.Body  `hcl:",body"`
}

type pullThroughBlock struct {
	// Whether to fetch at all. `--no-pull-through` stands for `false`.
	Enabled *bool `hcl:"enabled,optional" value:"bool" default:"true" flag:"no-pull-through"`
	// The providers that may be fetched; without it, all. It must be given where the gateway listens beyond loopback without
	// access control. A host that a pattern names may be at a private address, on port 443 or the port in the pattern. Other
	// hosts may not.
	Include []string `hcl:"include,optional" value:"patterns"`
	// The providers that may not be fetched, of those included.
	Exclude []string `hcl:"exclude,optional" value:"patterns"`
	// The platforms that are stored before a version is tagged, and the rest as it is asked for; without it, all that there
	// are.
	Platforms []string `hcl:"platforms,optional" value:"platforms"`
	// Which versions may be fetched; without it, all.
	Versions *string `hcl:"versions,optional" value:"version constraint"`
	// How old a version must be, counted from when this gateway first saw it, which it keeps in the cache's folder; versions
	// that are there when a provider is first asked for do not wait.
	Cooldown *string `hcl:"cooldown,optional" value:"duration" default:"0s"`
	// The largest package that is fetched. Without it there is no bound.
	MaxSize *string `hcl:"max_size,optional" value:"size"`
	// How many packages are fetched at once at most.
	MaxConcurrent *int `hcl:"max_concurrent,optional" value:"number" default:"8"`
	// How many bytes of packages are fetched in a day at most, which begins at midnight UTC. Each gateway counts its own,
	// from when it was started. Without it there is no bound.
	MaxPerDay *string `hcl:"max_per_day,optional" value:"size"`
	// How much disk packages may take while they are under way.
	MaxSpool *string `hcl:"max_spool,optional" value:"size" default:"8GiB"`

	Range hcl.Range `hcl:",def_range"`
	Body  hcl.Body  `hcl:",body"`
}

type gatewayBlock struct {
	// The address to listen on; without a host, every interface.
	Listen *string `hcl:"listen,optional" value:"HOST:PORT" default:"localhost:8443" flag:"listen"`
	// The URL by which clients reach the gateway, `https:`. `config client` writes it into
	// client configuration, and its host name is that of the providers that the gateway is itself the origin of.
	// Absolute URLs in the provider registry protocol begin with it: set it wherever a proxy speaks TLS to clients.
	PublicURL *string `hcl:"public_url,optional" value:"URL"`
	// Whether the stored evidence is checked before a version is served: `off`, or `required`, which serves only what is
	// signed by keys that `trust` blocks name.
	Verify *string `hcl:"verify,optional" value:"off or required" default:"off"`
	// Whether clients are redirected to object storage, for registries with `mirrors_blobs_by_redirect`. Their packages are
	// neither cached nor seen by the gateway then.
	Redirect *bool `hcl:"redirect,optional" value:"bool" default:"false"`
	// Another address, on which plain HTTP answers `/metrics`, `/healthz` and `/readyz`, and nothing else, without access
	// control. Without it, the gateway answers them where it answers all else, and `/metrics` where access is controlled
	// for an operator's token alone.
	MetricsListen *string `hcl:"metrics_listen,optional" value:"HOST:PORT" flag:"metrics-listen"`
	// How long a tag listing, and what a tag names, is taken for current; after that it is asked about again. The
	// embedded registry is asked each time where nothing is written.
	TagTTL *string `hcl:"tag_ttl,optional" value:"duration" default:"30s"`
	// How long the last good answer is served while the registry is in trouble, counted from when the registry last confirmed
	// it. With a `cache` block it outlives a restart.
	StaleIfError *string `hcl:"stale_if_error,optional" value:"duration" default:"24h"`
	// What is never served: provider patterns, each with `@` and a version or version constraint where not all are meant. A
	// constraint is for prereleases only where it names them.
	Deny []string `hcl:"deny,optional" value:"PATTERN[@VERSIONS] list"`
	// The file with the keys that sign the capabilities in URLs of archives, checksums and signatures: one a line, as
	// `openssl rand -hex 32` prints them, the first of which signs while all verify. Gateways side by side share it. Without
	// it, each process has a key of its own.
	CapabilityKeyFile *string `hcl:"capability_key_file,optional" value:"file"`

	// Speak plain HTTP, behind a proxy that speaks TLS to clients, which accept nothing else.
	HTTP *bool `hcl:"http,optional" value:"bool" default:"false" flag:"http" group:"tls"`

	// How long requests are still answered after the gateway was asked to end, so that load balancers notice that it is not
	// ready any more. In Kubernetes, `terminationGracePeriodSeconds` must exceed it and `shutdown_timeout` together.
	ShutdownDelay *string `hcl:"shutdown_delay,optional" value:"duration" default:"0s"`
	// How long downloads under way may then take to finish, before they are broken off.
	ShutdownTimeout *string `hcl:"shutdown_timeout,optional" value:"duration" default:"5m"`

	// The gateway's certificate. Without it, one is made on a loopback address.
	TLS *tlsBlock `hcl:"tls,block"`
	// The cache on disk: packages, and what the registry said of versions. Without it, every download is streamed from the
	// registry, and what it said is forgotten at the end.
	Cache *cacheBlock `hcl:"cache,block"`
	// A bearer token that clients may show. With a `token` or `oidc` block, clients that show none are refused.
	Tokens []tokenBlock `hcl:"token,block"`
	// An issuer of OpenID Connect tokens that clients may show, such as a CI's.
	OIDC []oidcBlock `hcl:"oidc,block"`
	// Where `terraform login` and `tofu login` send people to get such a token: the login protocol (`login.v1`) for the
	// gateway's host name.
	Login *loginBlock `hcl:"login,block"`

	Range hcl.Range `hcl:",def_range"`
	Body  hcl.Body  `hcl:",body"`
}

type tlsBlock struct {
	// A PEM file with the certificate and its chain. It goes with `key_file`.
	CertFile *string `hcl:"cert_file,optional" value:"file" flag:"tls-cert" group:"tls"`
	// The PEM file with the certificate's key, without a passphrase.
	KeyFile *string `hcl:"key_file,optional" value:"file" flag:"tls-key" group:"tls"`
	// Have a CA in the data folder sign the certificate, and print how clients trust that CA.
	SelfSigned *bool `hcl:"self_signed,optional" value:"bool" default:"false" flag:"tls-self-signed" group:"tls"`
	// A PEM file with the authorities by one of which a client's certificate must be signed. Without it, clients are asked for
	// none. Terraform and OpenTofu have none to show: it is for proxies.
	ClientCAFile *string `hcl:"client_ca_file,optional" value:"file"`
	// Have certificates issued, and renewed, by an authority that speaks ACME, such as Let's Encrypt, for a gateway that the
	// authority can reach by its name. It takes the place of the files, and `--tls-cert` and `--tls-self-signed` that of it.
	ACME *acmeBlock `hcl:"acme,block"`

	Range hcl.Range `hcl:",def_range"`
	Body  hcl.Body  `hcl:",body"`
}

type acmeBlock struct {
	// Whether the authority's terms of service are agreed to. It must be `true`.
	AcceptTerms *bool `hcl:"accept_terms,optional" value:"bool" required:"true"`
	// The names to have certificates for. Without it, the host of `public_url`. No others are ever asked for.
	Domains []string `hcl:"domains,optional" value:"list of names"`
	// Where the authority writes to when something is wrong with the certificates.
	Email *string `hcl:"email,optional" value:"address"`
	// The authority's directory.
	DirectoryURL *string `hcl:"directory_url,optional" value:"URL" default:"https://acme-v02.api.letsencrypt.org/directory"`
	// A PEM file with certificate authorities to trust beside the system's when speaking to it.
	CAFile *string `hcl:"ca_file,optional" value:"file"`
	// Where certificates, their keys and that of the account are kept, for nobody else to look into. Without it, the folder
	// `acme` in that of `data`. Gateways side by side share it.
	Directory *string `hcl:"directory,optional" value:"folder"`

	Range hcl.Range `hcl:",def_range"`
	Body  hcl.Body  `hcl:",body"`
}

type cacheBlock struct {
	// Where packages are kept. It is made if it is not there, and nobody else should be able to write to it.
	Directory *string `hcl:"directory,optional" value:"folder" required:"true"`
	// How much is kept, what is being fetched included; what was not used for longest goes first.
	MaxSize *string `hcl:"max_size,optional" value:"size" default:"20GiB"`

	Range hcl.Range `hcl:",def_range"`
	Body  hcl.Body  `hcl:",body"`
}

type tokenBlock struct {
	Name string `hcl:"NAME,label"`

	// The SHA-256 sum of the token, in hexadecimal: `printf %s "$TOKEN" | sha256sum`. The token itself is in no file.
	SHA256 *string `hcl:"sha256,optional" value:"sha256" required:"true"`
	// The providers that its bearer may read; without it, all.
	Include []string `hcl:"include,optional" value:"patterns"`
	// The providers that its bearer may not read, of those included.
	Exclude []string `hcl:"exclude,optional" value:"patterns"`
	// When it ends: a date (the start of that day in UTC), or a time as in RFC 3339.
	Expires *string `hcl:"expires,optional" value:"time"`
	// Whether it is an operator's, who may also drop what the gateway has cached.
	Operator *bool `hcl:"operator,optional" value:"bool" default:"false"`

	Range hcl.Range `hcl:",def_range"`
	Body  hcl.Body  `hcl:",body"`
}

type oidcBlock struct {
	Name string `hcl:"NAME,label"`

	// The issuer's URL, where its discovery document is.
	Issuer *string `hcl:"issuer,optional" value:"URL" required:"true"`
	// The audience that a token must be for.
	Audience *string `hcl:"audience,optional" value:"text" required:"true"`

	// What the bearer of a token may read, by its claims. At least one must be given; what any of those that apply allows
	// is allowed.
	Rules []ruleBlock `hcl:"rule,block"`

	Range hcl.Range `hcl:",def_range"`
	Body  hcl.Body  `hcl:",body"`
}

type loginBlock struct {
	// The identifier that the issuer knows the clients by. They are public clients, without a secret, that prove themselves
	// by PKCE.
	Client *string `hcl:"client,optional" value:"text" required:"true"`
	// The issuer's authorization endpoint.
	Authz *string `hcl:"authz,optional" value:"URL" required:"true"`
	// The issuer's token endpoint. What clients file, and then show to the gateway, is the access token that it answers.
	Token *string `hcl:"token,optional" value:"URL" required:"true"`
	// The range of ports on `localhost` that clients may be called back at, the second of which they never take. The issuer
	// must allow `http://localhost:PORT/login` for each. Without it, clients take any from 1024 on.
	Ports []int `hcl:"ports,optional" value:"list of two numbers"`
	// The scopes to ask for.
	Scopes []string `hcl:"scopes,optional" value:"list of text"`

	Range hcl.Range `hcl:",def_range"`
	Body  hcl.Body  `hcl:",body"`
}

type ruleBlock struct {
	// The claims that the token must have, each with exactly that value.
	Claims map[string]string `hcl:"claims,optional" value:"map of text" required:"true"`
	// The providers that may then be read; without it, all.
	Include []string `hcl:"include,optional" value:"patterns"`
	// The providers that may not, of those included.
	Exclude []string `hcl:"exclude,optional" value:"patterns"`

	Range hcl.Range `hcl:",def_range"`
	Body  hcl.Body  `hcl:",body"`
}
