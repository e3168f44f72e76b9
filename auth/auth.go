// Package auth decides which credential is sent to which OCI repository. It also provides
// the HTTP client that sends requests with this credential to registries.
//
// Only ocibridge itself imports this package: it can change at any time.
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
//   - the login files that the oci_default_credentials block names. Without this block:
//     REGISTRY_AUTH_FILE, the locations that containers-auth.json(5) lists for the
//     operating system, DOCKER_AUTH_CONFIG (the variable holds the content of a login
//     file), DOCKER_CONFIG or ~/.docker/config.json, and ~/.dockercfg. Within a file the
//     order is credHelpers, auths, credsStore. OpenTofu reads auths before credHelpers.
//     Docker ignores auths if it has a helper for the registry.
//
// The most specific login for a repository is used: the longest repository prefix first,
// then the host, then a helper for all hosts. Equally specific logins rank in the order of
// the sources above. If a helper has no credential, the next login is tried. [Environment]
// determines where files are searched. A [Client] reads the files once, when it first
// contacts a registry. It runs a helper only if a registry asks for a credential and no
// better login has one.
//
// A registry block ([Registry]) changes how the client talks to one registry.
//
// Invariants:
//
//   - A credential is sent only to the registry that it belongs to, or to the token server
//     that this registry names. It is sent only over TLS. Plain HTTP is allowed only for
//     loopback registries, or with [Options.PlainHTTP] or [Registry.PlainHTTP].
//   - A token is requested and cached for one repository and action, for the two
//     repositories of a mount, or for the catalog. If a challenge names more scopes, the
//     client ignores the additional scopes. It requests no other resource, and no write
//     access for a read. The client renews an expired token before using it. It probes
//     neither /v2/ nor the referrers API.
//   - No error, log record or formatted value contains a secret. The types of secrets
//     print as [redacted]. Their values are passed only to code that sends the secrets or
//     removes them from texts. If a server repeats a secret in a refusal, the client
//     removes the secret from the refusal. Errors also omit the query of a redirect's
//     target, because object storage puts signatures there.
//   - A request is sent again only if its body can be read again from the start.
//
// [Client.StoreLogin] and [Client.RemoveLogin] write logins where docker writes them. They
// follow the same rules for the order of sources and the names of registries.
//
// The package reads variables and files only through [Options.Environment]. There are three
// exceptions: helpers are found on PATH, net/http reads the proxy variables, and the file that
// StoreLogin and RemoveLogin edit is read from the disk.
package auth

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// Environment is the part of the machine that credentials depend on. Getenv and ReadFile
// behave like the functions of the same name in package os, and return the same errors. If
// Getenv is nil, no variable is set. If ReadFile is nil, no file exists.
type Environment struct {
	Getenv   func(string) string
	ReadFile func(string) ([]byte, error)
	Home     string // the home directory; empty if there is none
	GOOS     string // a value of runtime.GOOS; it determines the file locations and the path separator
	UID      string // the numeric user ID, for /run/containers/UID/auth.json on Linux; if empty, that file is skipped
}

// Options configures a [Client]. With the zero value, the client has no login. It speaks
// TLS to every registry that is not on loopback, and retries requests that fail for a
// transient reason.
type Options struct {
	Environment Environment

	// Explicit lists the logins that the user configured. The logins in ocibridge.hcl come
	// before the logins in the CLI configuration.
	Explicit []Login

	// Defaults configures the sources of other logins. nil means the sources that the
	// package documentation lists.
	Defaults *Defaults

	// Registries holds the settings of individual registries.
	Registries map[ociaddr.Registry]Registry

	// PlainHTTP makes the client send requests and credentials over plain HTTP to every
	// registry that is not on loopback.
	PlainHTTP bool

	// CAs is a PEM bundle of certificate authorities to trust in addition to the system's, for
	// every registry and every host that a registry refers to. nil means none.
	CAs []byte

	// Transport sends the requests; nil means a transport with this package's
	// timeouts and the proxies of the environment. CAs, and registry settings that
	// concern TLS or timeouts, need an [*http.Transport].
	Transport http.RoundTripper

	// UserAgent is the User-Agent header; empty means "ocibridge".
	UserAgent string

	// RetryDelay is the maximum wait before the first retry of a request. 0 means 500 ms.
	// The maximum wait doubles with each further retry.
	RetryDelay time.Duration

	// HelperTimeout limits the duration of one run of a credential helper; 0 means 30 s.
	HelperTimeout time.Duration

	// Sent is called after each attempt of a request, unless it is nil. Calls may be
	// concurrent.
	Sent func(telemetry.RegistryRequest)

	// Log receives retries and the source of each credential; nil means no log.
	Log *slog.Logger
}

// Validate checks the blocks, variables and settings. It reads no file and makes no
// request. If the options of a [Client] are invalid, [Client.Repository] and
// [Client.Registry] return the error that Validate returns.
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

// Client opens repositories for reading and writing. It is safe for concurrent use. A
// process needs only one client. All repositories of a client share its connections, its
// tokens and its knowledge about registries.
type Client struct {
	opts    Options
	sources func() (loginSources, error)
	conns   *connections
	sent    *sentSecrets
	helpers *helperRunner
	schemes *schemes
	now     func() time.Time // the clock that decides whether a token has expired
	lookup  lookupFunc

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
		lookup:  net.DefaultResolver.LookupNetIP,
		bound:   map[string]*binding{},
	}
}

// maxTagPages is the maximum number of pages of a tag listing. Without a limit, oras-go
// follows links from page to page without end. Registries usually put 100 tags on a page.
const maxTagPages = 1000

// maxReferrerPages is the maximum number of pages of a list of referrers. Without a limit,
// oras-go follows links from page to page without end, even if the pages are empty.
const maxReferrerPages = 100

// Repository returns an oras-go client for the repository. [Client.Explain] adds a hint to
// the errors of that client.
//
// Repository returns an error if a login file that a block names cannot be read or parsed,
// or if the repository is invalid. It accesses the network only to find out whether a
// loopback registry speaks TLS.
func (c *Client) Repository(ctx context.Context, r ociaddr.Repository) (*remote.Repository, error) {
	repo, err := c.RepositoryWithReferrers(ctx, r)
	if err != nil {
		return nil, err
	}
	// The manifests that are pushed through this client have no subject. If oras-go
	// assumes that the registry has the referrers API, oras-go never probes for that API
	// and never writes a fallback tag.
	if err := repo.SetReferrersCapability(true); err != nil {
		return nil, err
	}
	return repo, nil
}

// RepositoryWithReferrers is like [Client.Repository], but the result can read and push
// referrers. It finds out whether the registry has the referrers API. If the registry
// lacks the API, it maintains fallback tags.
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
	repo.SkipReferrersGC = true // another process may still read the old list of referrers
	return repo, nil
}

// open returns the HTTP client for the repository's registry, and whether requests to the
// registry go over plain HTTP. Errors about the login contain name.
func (c *Client) open(ctx context.Context, r ociaddr.Repository, name string) (remote.Client, bool, error) {
	b, err := c.bind(r)
	if err != nil {
		return nil, false, fmt.Errorf("find the login for %s: %w", name, err)
	}
	plain, err := c.PlainHTTP(ctx, r.Registry)
	return b.sender, plain, err
}

// PlainHTTP reports whether requests to a registry go over plain HTTP.
// [Registry.PlainHTTP] decides first. Without it, a loopback registry is probed once, and
// [Options.PlainHTTP] decides for every other registry. OpenTofu and Terraform never use
// plain HTTP.
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
// credential, Source describes the best login. It returns "" if there is no login. The
// description contains no secret.
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

// Account returns a key for the logins of a repository. Two repositories have the same key
// if they are on the same registry and use the same logins. The key contains no secret. It
// is valid for this [Client] only.
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
