// Package auth decides which credential is sent to which OCI repository, and
// provides the HTTP client that talks to registries with it.
//
// It uses the credentials that the user already has. They come from these
// sources, in this order:
//
//   - oci_credentials blocks ([Options.Explicit]);
//   - the variables OCIBRIDGE_REGISTRY (HOST or HOST/PATH) with
//     OCIBRIDGE_REGISTRY_USERNAME and OCIBRIDGE_REGISTRY_PASSWORD, or with
//     OCIBRIDGE_REGISTRY_TOKEN (an access token), OCIBRIDGE_REGISTRY_IDENTITY_TOKEN
//     (a refresh token) or both;
//   - the helper that an oci_default_credentials block names ([Options.Defaults]);
//   - the login files that this block names. Without such a block:
//     REGISTRY_AUTH_FILE, the locations that containers-auth.json(5) lists for the
//     operating system, DOCKER_AUTH_CONFIG (which holds the content itself),
//     DOCKER_CONFIG or ~/.docker/config.json, and ~/.dockercfg. Within a file the
//     order is credHelpers, auths, credsStore. OpenTofu reads auths before
//     credHelpers. Docker ignores auths where it has a helper.
//
// The most specific login for a repository is used: the longest repository prefix
// first, then the host, then a helper for all hosts. Equally specific logins rank in
// the order above. If a helper has no credential, the next login is tried.
// [Environment] determines where files are searched. A [Client] reads the files once,
// when it first contacts a registry. It runs a helper only when a registry asks for a
// credential and the helper is the chosen source.
//
// A registry block ([Registry]) changes how the client talks to one registry.
//
// Invariants:
//
//   - A credential is sent only to the registry that it belongs to, or to the token
//     server that this registry names, and only over TLS. The exceptions for plain
//     HTTP are loopback registries, [Options.PlainHTTP] and [Registry.PlainHTTP].
//   - A token is requested and cached for one repository and action, for the two
//     repositories of a mount, or for the catalog. If a challenge names more, the
//     client ignores the rest: it requests no other resource, and no write access in
//     order to read. It renews an expired token before using it. It makes no requests
//     of its own: it probes neither /v2/ nor the referrers API.
//   - No error, log record or formatted value contains a secret. Secrets have types
//     that print as [redacted] until they are handed to oras-go. If a server repeats a
//     secret in a refusal, the secret is removed. Errors also omit the query of a
//     redirect's target, where object storage puts signatures.
//   - A request is repeated only if its body can be sent again unchanged.
//
// The package reads no environment except the [Environment] that it is given. Two lookups
// are exceptions: helpers are found on PATH, and net/http reads the proxy variables.
package auth

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/internal/telemetry"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// Environment is the part of the machine that credentials depend on. Getenv and
// ReadFile behave like their namesakes in package os, errors included. If they are
// nil, there are no variables and no files.
type Environment struct {
	Getenv   func(string) string
	ReadFile func(string) ([]byte, error)
	Home     string // the home directory; empty if there is none
	GOOS     string // a value of runtime.GOOS; it determines the file locations and the path separator
	UID      string // the numeric user ID, for /run/containers/UID/auth.json on Linux; if empty, that file is skipped
}

// Options configures a [Client]. With the zero value the client has no login, speaks
// TLS to every registry that is not on loopback, and repeats requests that fail for a
// transient reason.
type Options struct {
	Environment Environment

	// Explicit lists the logins that the user configured: first those in our own
	// configuration file, then those in the CLI configuration.
	Explicit []Login

	// Defaults configures where other logins come from; nil means the discovery that
	// the package documentation describes.
	Defaults *Defaults

	// Registries holds the settings of individual registries.
	Registries map[ociaddr.Registry]Registry

	// PlainHTTP makes the client speak plain HTTP to every registry that is not on
	// loopback, and send credentials over it.
	PlainHTTP bool

	// Transport sends the requests; nil means a transport with this package's
	// timeouts and the proxies of the environment. Registry settings that concern TLS
	// or timeouts need an [*http.Transport].
	Transport http.RoundTripper

	// UserAgent is the User-Agent header; empty means "ocibridge".
	UserAgent string

	// RetryDelay is the longest wait before a request is repeated for the first time; 0
	// means 500 ms. The longest wait doubles with each further attempt.
	RetryDelay time.Duration

	// HelperTimeout limits the duration of one run of a credential helper; 0 means 30 s.
	HelperTimeout time.Duration

	// Sent, if not nil, is called after each attempt of a request. Calls may be
	// concurrent.
	Sent func(telemetry.RegistryRequest)

	// Log receives retries and the source of each credential; nil means no log.
	Log *slog.Logger
}

// Validate checks blocks, variables and settings, as far as that needs neither a file nor
// the network. If the options of a [Client] are invalid, its methods that open a
// repository or a registry fail with the error that Validate returns.
func (o Options) Validate() error {
	for _, l := range o.Explicit {
		if err := l.Validate(); err != nil {
			return err
		}
	}
	if o.Defaults != nil {
		if err := o.Defaults.Validate(); err != nil {
			return err
		}
	}
	if _, err := o.Environment.variableLogin(); err != nil {
		return err
	}
	return newConnections(o).validate()
}

// Client opens repositories for reading and writing. It is safe for concurrent use.
// A process needs only one: all repositories of a client share its connections, its
// tokens and what it has found out about registries.
type Client struct {
	opts    Options
	sources func() (loginSources, error)
	conns   *connections
	sent    *sentSecrets
	helpers *helperRunner
	schemes *schemes
	now     func() time.Time // for the expiry of tokens

	mu    sync.Mutex
	bound map[string]*binding
}

// New returns a client. It reads no files and makes no requests yet.
func New(opts Options) *Client {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	opts.UserAgent = cmp.Or(opts.UserAgent, "ocibridge")
	opts.HelperTimeout = cmp.Or(opts.HelperTimeout, 30*time.Second)
	opts.RetryDelay = cmp.Or(opts.RetryDelay, 500*time.Millisecond)
	return &Client{
		opts: opts,
		sources: sync.OnceValues(func() (loginSources, error) {
			if err := opts.Validate(); err != nil {
				return nil, err
			}
			return findSources(opts)
		}),
		conns:   newConnections(opts),
		sent:    newSentSecrets(),
		helpers: newHelperRunner(opts.HelperTimeout),
		schemes: newSchemes(),
		now:     time.Now,
		bound:   map[string]*binding{},
	}
}

// maxTagPages is the maximum number of pages of a tag listing. Without a limit, oras-go
// follows the links between pages without end. Registries usually put 100 tags on a page.
const maxTagPages = 1000

// maxReferrerPages is the maximum number of pages of a list of referrers. Without a limit,
// oras-go follows the links between pages without end, even if the pages are empty.
const maxReferrerPages = 100

// Repository returns the client of a repository. Pass its errors to [Client.Explain]
// for a hint.
//
// It returns an error if a login file that a block names cannot be read or parsed, or
// if the repository is invalid. Its only network access is a probe that finds out
// whether a loopback registry speaks TLS.
func (c *Client) Repository(ctx context.Context, r ociaddr.Repository) (*remote.Repository, error) {
	repo, err := c.RepositoryWithReferrers(ctx, r)
	if err != nil {
		return nil, err
	}
	// Our manifests have no subject. If oras-go assumes that the registry has the
	// referrers API, it never probes for it and never writes a fallback tag.
	if err := repo.SetReferrersCapability(true); err != nil {
		return nil, err
	}
	return repo, nil
}

// RepositoryWithReferrers is [Client.Repository] for a client that reads and pushes
// referrers. oras-go then finds out whether the registry has the referrers API, and
// maintains fallback tags if it does not.
func (c *Client) RepositoryWithReferrers(ctx context.Context, r ociaddr.Repository) (*remote.Repository, error) {
	repo, err := remote.NewRepository(r.String())
	if err != nil {
		return nil, err
	}
	if repo.Client, repo.PlainHTTP, err = c.open(ctx, r, r.String()); err != nil {
		return nil, err
	}
	repo.TagListMaxPages = maxTagPages
	repo.ReferrerListMaxPages = maxReferrerPages
	repo.SkipReferrersGC = true // another process may read the list that was replaced
	return repo, nil
}

// open returns the client for a repository's registry. The bool reports whether the client
// speaks plain HTTP. Errors about the login refer to the repository as name.
func (c *Client) open(ctx context.Context, r ociaddr.Repository, name string) (remote.Client, bool, error) {
	b, err := c.bind(r)
	if err != nil {
		return nil, false, fmt.Errorf("find the login for %s: %w", name, err)
	}
	plain, err := c.PlainHTTP(ctx, r.Registry)
	return b.sender, plain, err
}

// PlainHTTP reports whether requests to a registry go over plain HTTP. The settings
// [Options.PlainHTTP] and [Registry.PlainHTTP] decide; a loopback registry is probed,
// and the result is cached. OpenTofu and Terraform never use plain HTTP.
func (c *Client) PlainHTTP(ctx context.Context, r ociaddr.Registry) (bool, error) {
	if s, _ := c.conns.settings(string(r)); s.PlainHTTP {
		return true, nil
	}
	if !r.IsLoopback() {
		return c.opts.PlainHTTP, nil
	}
	return c.schemes.plain(ctx, r)
}

// Source describes the login that was sent to the repository's registry, such as "the
// login for ghcr.io in /home/u/.docker/config.json". Before the registry asks for a
// credential, Source describes the login that would be tried first. It returns "" if there
// is no login. The description contains no secret.
func (c *Client) Source(r ociaddr.Repository) string {
	b, err := c.bind(r)
	if err != nil {
		return ""
	}
	if l := b.used.Load(); l != nil {
		return l.String()
	}
	return ""
}

// Account returns a key for the access to a repository: two repositories have the same
// key if they are on the same registry and use the same logins. The key contains no
// secret, and is valid for this [Client] only.
func (c *Client) Account(r ociaddr.Repository) string {
	b, err := c.bind(r)
	if err != nil {
		return string(r.Registry)
	}
	return fmt.Sprintf("%s %p", r.Registry, b)
}

func (env Environment) getenv(name string) string {
	if env.Getenv == nil {
		return ""
	}
	return env.Getenv(name)
}
