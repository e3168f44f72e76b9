// Package auth owns which credential goes to which OCI repository, and the HTTP
// client that talks to registries with it.
//
// Credentials are those that the user already has. They come, in this order,
// from
//
//   - oci_credentials blocks ([Options.Explicit]);
//   - the variables OCIBRIDGE_REGISTRY (HOST or HOST/PATH) with
//     OCIBRIDGE_REGISTRY_USERNAME and OCIBRIDGE_REGISTRY_PASSWORD, or with
//     OCIBRIDGE_REGISTRY_TOKEN (an access token), OCIBRIDGE_REGISTRY_IDENTITY_TOKEN
//     (a refresh token) or both;
//   - the helper that an oci_default_credentials block names ([Options.Defaults]);
//   - the login files that this block names, or else: REGISTRY_AUTH_FILE, the
//     places of containers-auth.json(5) on the operating system, DOCKER_AUTH_CONFIG
//     (which holds the content itself), DOCKER_CONFIG or ~/.docker/config.json,
//     ~/.dockercfg. Within a file the order is credHelpers,
//     auths, credsStore. OpenTofu has auths before credHelpers, and docker asks no
//     auths where a helper is named.
//
// For a repository the most specific one counts: a repository prefix by its
// length, then the host, then a helper for all hosts. Of equals it is the first in
// the order above. A helper that knows nothing leaves it to the next.
// [Environment] says where files are looked for. Files are read once for a
// [Client], when a registry is first spoken to; helpers run only when a registry
// asks for a credential and they are its chosen source.
//
// A registry block ([Registry]) changes how one registry is spoken to.
//
// Invariants:
//
//   - A credential goes to the registry that it is filed for (or to the token
//     server that this registry names), over TLS. It goes over plain HTTP only to
//     a loopback registry, or where [Options.PlainHTTP] or [Registry.PlainHTTP]
//     says so.
//   - Tokens are asked for, and kept, for a repository and an action (for a mount,
//     two repositories), or for the catalog. Of a challenge that names more, the
//     rest is not asked for: no other resource, and no right to write in order to
//     read. One that ends is renewed before it is used. No request but the ones
//     asked for is made: neither a probe of /v2/ nor one of the referrers API.
//   - No secret is in an error, a log record or the text of any value: secrets
//     are of a type that shows nothing, until they are handed to oras-go. Where a
//     server repeats one in a refusal it is taken out. The query of a redirect's
//     target, where object storage puts signatures, is cut from errors too.
//   - A request that cannot be sent again as it was is never sent again.
//
// The package reads no environment but the one that it is given, except that
// helpers are looked up on PATH and proxies in the variables that net/http knows.
package auth

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// Environment is what of the machine credentials depend on. Getenv and ReadFile
// have the meaning of their namesakes in package os, errors included; nil means
// no variables and no files.
type Environment struct {
	Getenv   func(string) string
	ReadFile func(string) ([]byte, error)
	Home     string // the user's folder; none when empty
	GOOS     string // as runtime.GOOS; decides places and path separator
	UID      string // the user's number, for /run/containers/UID/auth.json on Linux; not looked at when empty
}

// Options configures a [Client]. Its zero value knows no login, speaks TLS to
// all but loopback registries, and retries as [Retry] says.
type Options struct {
	Environment Environment

	// Explicit are logins that the user configured for this program, in order:
	// first its own, then those of the CLI configuration.
	Explicit []Login

	// Defaults say where other logins come from; nil is discovery, as the
	// package's documentation describes it.
	Defaults *Defaults

	// Registries are settings of single registries.
	Registries map[ociaddr.Registry]Registry

	// PlainHTTP makes every registry that is not on this machine be spoken to
	// over plain HTTP, credentials included.
	PlainHTTP bool

	// Transport is what requests finally go through; nil is a transport with
	// the timeouts of this package and the proxies of the environment. Settings
	// of single registries that concern TLS or time need an [*http.Transport].
	Transport http.RoundTripper

	// UserAgent names the program to registries; empty means "ocibridge".
	UserAgent string

	Retry Retry

	// HelperTimeout bounds one run of a credential helper; 0 means 30 s.
	HelperTimeout time.Duration

	// Sent is told of each request that is sent, by many at once; nil: nobody is.
	Sent func(Sent)

	// Log takes what is worth knowing when something is slow or refused: retries,
	// and which source a credential came from. nil means no log.
	Log *slog.Logger
}

// Validate checks what can be checked without reading a file or contacting
// anybody: blocks, variables and settings. A [Client] that is made of options
// that it refuses fails in each use, with the same error.
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

// Client makes repositories that a program reads from and writes to. It is safe
// for concurrent use, and one is enough for a process: repositories share
// connections, tokens and what was learnt about registries.
type Client struct {
	opts    Options
	invalid func() error // what [Options.Validate] says
	survey  func() (*survey, error)
	conns   *connections
	sent    *sentSecrets
	helpers *helperRunner
	schemes *schemes
	now     func() time.Time // for the ends of tokens

	mu    sync.Mutex
	bound map[string]*binding
	http  map[string]*http.Client // by registry on whose behalf, "" for those without settings
}

// New returns a client. It reads nothing yet.
func New(opts Options) *Client {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	opts.UserAgent = cmp.Or(opts.UserAgent, "ocibridge")
	opts.HelperTimeout = cmp.Or(opts.HelperTimeout, 30*time.Second)
	return &Client{
		opts:    opts,
		invalid: sync.OnceValue(opts.Validate),
		survey:  sync.OnceValues(func() (*survey, error) { return newSurvey(opts) }),
		conns:   newConnections(opts),
		sent:    &sentSecrets{},
		helpers: newHelperRunner(opts.HelperTimeout),
		schemes: newSchemes(),
		now:     time.Now,
		bound:   map[string]*binding{},
		http:    map[string]*http.Client{},
	}
}

// binding is the way to a registry with one ranking of logins. Tokens are kept
// here and not for the whole registry, because two repositories of it may have
// logins of their own, and oras-go keeps Basic credentials by registry.
type binding struct {
	registry ociaddr.Registry
	logins   []*login // the best first
	sender   *sender

	lacksRight atomic.Bool // whether the last answer was that the token does not reach so far

	mu      sync.Mutex
	asked   bool
	used    *login // that gave the last credential; nil for none
	refused bool   // whether its access token was, and the refresh token counts
}

// maxTagPages bounds a tag listing, which oras-go follows as long as a registry
// names a next page. Registries page by 100.
const maxTagPages = 1000

// maxReferrerPages bounds a listing of referrers, which oras-go follows in the same
// way, even through pages that list nothing.
const maxReferrerPages = 100

// Repository returns the client of a repository. Its errors are better for
// [Client.Explain].
//
// It fails where a login file that a block names cannot be read or does not
// parse, and for a repository that is none. Of the network it needs at most to find out, once,
// whether a loopback registry speaks TLS.
func (c *Client) Repository(ctx context.Context, r ociaddr.Repository) (*remote.Repository, error) {
	repo, err := c.RepositoryWithReferrers(ctx, r)
	if err != nil {
		return nil, err
	}
	// What is pushed has no subject. Said to be there, the referrers API is
	// never probed for, and no referrers tag is kept up in its place.
	if err := repo.SetReferrersCapability(true); err != nil {
		return nil, err
	}
	return repo, nil
}

// RepositoryWithReferrers is [Client.Repository] for a client that reads and pushes
// referrers: it finds out whether the registry has the referrers API, and keeps
// fallback tags up where it has none.
func (c *Client) RepositoryWithReferrers(ctx context.Context, r ociaddr.Repository) (*remote.Repository, error) {
	if err := c.invalid(); err != nil {
		return nil, err
	}
	b, err := c.bind(r)
	if err != nil {
		return nil, fmt.Errorf("find the login for %s: %w", r, err)
	}
	repo, err := remote.NewRepository(r.String())
	if err != nil {
		return nil, err
	}
	if repo.PlainHTTP, err = c.plainHTTP(ctx, r.Registry); err != nil {
		return nil, err
	}
	repo.Client = b.sender
	repo.TagListMaxPages = maxTagPages
	repo.ReferrerListMaxPages = maxReferrerPages
	repo.SkipReferrersGC = true // another process may read the list that was replaced
	return repo, nil
}

// plainHTTP decides how a registry is spoken to: see [Options.PlainHTTP] and
// [Registry.PlainHTTP]; else a registry on this machine is asked.
func (c *Client) plainHTTP(ctx context.Context, r ociaddr.Registry) (bool, error) {
	if s, _ := c.conns.settings(string(r)); s.PlainHTTP {
		return true, nil
	}
	if !r.IsLoopback() {
		return c.opts.PlainHTTP, nil
	}
	return c.schemes.plain(ctx, r)
}

// Source says in words which login the repository's registry was given, such as
// "the login for ghcr.io in /home/u/.docker/config.json"; while it has asked for
// none, which one it would be given first. It is "" when there is none. It never
// holds a secret.
func (c *Client) Source(r ociaddr.Repository) string {
	b, err := c.bind(r)
	if err != nil {
		return ""
	}
	if l := b.current(); l != nil {
		return l.String()
	}
	return ""
}

// Account returns a name for how a repository is spoken to: it is equal for
// repositories of one registry that are read with the same logins. It holds no
// secret, and means nothing to another [Client].
func (c *Client) Account(r ociaddr.Repository) string {
	b, err := c.bind(r)
	if err != nil {
		return string(r.Registry)
	}
	return fmt.Sprintf("%s %p", r.Registry, b)
}

// bind returns the way to a repository's registry with the logins that match
// the repository.
func (c *Client) bind(r ociaddr.Repository) (*binding, error) {
	all, err := c.survey()
	if err != nil {
		return nil, err
	}
	matching := rank(all.logins, r)
	id := string(r.Registry)
	for _, l := range matching {
		id += fmt.Sprintf(" %p", l)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b, ok := c.bound[id]
	if !ok {
		b = c.newBinding(r.Registry, matching)
		c.bound[id] = b
	}
	return b, nil
}

// newBinding is called with c.mu held.
func (c *Client) newBinding(registry ociaddr.Registry, logins []*login) *binding {
	b := &binding{registry: registry, logins: logins}
	tokens := newTokenCache(func() time.Time { return c.now() })
	client := &auth.Client{
		Client:   c.httpClient(registry),
		Cache:    tokens,
		ClientID: "ocibridge",
		Credential: func(ctx context.Context, hostport string) (auth.Credential, error) {
			if canonicalHost(hostport) != canonicalHost(string(registry)) {
				return auth.EmptyCredential, nil
			}
			return c.credential(ctx, b)
		},
	}
	client.SetUserAgent(c.opts.UserAgent)
	b.sender = &sender{client: client, tokens: tokens, binding: b}
	return b
}

// httpClient returns the client for a registry: one for all, unless settings
// follow the registry's clients to wherever it sends them. It is called with
// c.mu held.
func (c *Client) httpClient(registry ociaddr.Registry) *http.Client {
	behalf := ""
	if s, ok := c.conns.settings(string(registry)); ok && s.CAs != nil {
		behalf = settingsHost(string(registry))
	}
	if _, ok := c.http[behalf]; !ok {
		c.http[behalf] = &http.Client{Transport: newTransport(router{c.conns, behalf}, c.sent), CheckRedirect: followRedirect}
	}
	return c.http[behalf]
}

// credential returns what the first of the binding's logins that has something
// gives. A helper that knows nothing of the registry leaves it to the next.
func (c *Client) credential(ctx context.Context, b *binding) (auth.Credential, error) {
	l, cred, err := c.choose(ctx, b)
	b.set(l)
	switch {
	case err != nil:
		return auth.EmptyCredential, &LoginError{l.String(), err}
	case l == nil:
		c.opts.Log.LogAttrs(ctx, slog.LevelDebug, "registry asks for a credential; there is none",
			slog.String("registry", string(b.registry)))
		return auth.EmptyCredential, nil
	}
	c.opts.Log.LogAttrs(ctx, slog.LevelDebug, "registry asks for a credential",
		slog.String("registry", string(b.registry)), slog.String("source", l.String()))
	revealed := cred.reveal()
	c.sent.add(revealed)
	if b.accessTokenRefused() {
		revealed.AccessToken = ""
	}
	return revealed, nil
}

func (b *binding) set(l *login) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked, b.used = true, l
}

// refuseAccessToken takes note of an answer that refuses the access token of a
// login. It reports whether that has a refresh token to try in its place.
func (b *binding) refuseAccessToken(resp *http.Response) bool {
	if resp.Request == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used == nil || b.used.helper != "" {
		return false
	}
	cred := b.used.cred.reveal()
	if cred.AccessToken == "" || cred.RefreshToken == "" || resp.Request.Header.Get("Authorization") != "Bearer "+cred.AccessToken {
		return false
	}
	b.refused = true
	return true
}

func (b *binding) accessTokenRefused() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refused
}

// current returns the login in use, or the first to be tried.
func (b *binding) current() *login {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.asked && len(b.logins) > 0 {
		return b.logins[0]
	}
	return b.used
}

// join joins a path as GOOS writes it, which package filepath does only for the
// system that the program runs on.
func (env Environment) join(elem ...string) string {
	sep := "/"
	if env.GOOS == "windows" {
		sep = `\`
	}
	for i := range elem[:len(elem)-1] {
		elem[i] = strings.TrimRight(elem[i], sep)
	}
	return strings.Join(elem, sep)
}

func (env Environment) getenv(name string) string {
	if env.Getenv == nil {
		return ""
	}
	return env.Getenv(name)
}
