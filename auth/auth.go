// Package auth opens OCI repositories with the user's logins. Package [login] decides which
// login a repository has, and package [wire] sends the requests.
//
// Only ocibridge itself imports this package: it can change at any time.
package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// Options configures a [Client]. The zero value works: it means no login and no settings.
type Options struct {
	Login login.Options
	Wire  wire.Options
}

// Validate checks the blocks, variables and settings. It reads no file and makes no
// request. If the options of a [Client] are invalid, [Client.Repository] and
// [Client.Registry] return the error that Validate returns.
func (o Options) Validate() error { return cmp.Or(o.Login.Validate(), o.Wire.Validate()) }

// Client opens repositories for reading and writing. It is safe for concurrent use. All
// repositories of a client share its logins, connections, tokens and knowledge about registries.
type Client struct {
	Logins      *login.Logins
	Connections *wire.Connections

	opts    Options
	valid   func() error // validates opts.Wire once
	mu      sync.Mutex
	senders map[*login.Account]*wire.Sender
}

// New returns a client. It reads no files and makes no requests yet.
func New(opts Options) *Client {
	return &Client{
		Logins: login.New(opts.Login), Connections: wire.New(opts.Wire), opts: opts,
		valid: sync.OnceValue(opts.Wire.Validate), senders: map[*login.Account]*wire.Sender{},
	}
}

// bind returns the account and the sender of the repository. Repositories with the same
// account share a sender.
func (c *Client) bind(r ociaddr.Repository) (*login.Account, *wire.Sender, error) {
	account, err := c.Logins.For(r)
	if err == nil {
		err = c.valid()
	}
	if err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.senders[account] == nil {
		c.senders[account] = c.Connections.Sender(r.Registry, account)
	}
	return account, c.senders[account], nil
}

// The maximum number of pages of a list. Without a limit, oras-go follows links from page to
// page without end, even if the pages are empty.
const (
	maxTagPages      = 1000 // registries usually put 100 tags on a page
	maxReferrerPages = 100
)

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
	// The manifests that are pushed through this client have no subject. So oras-go may assume
	// that the registry has the referrers API. It then never probes for that API, and never
	// writes a fallback tag.
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

// Registry returns an oras-go client for the registry's catalog, which some registries lack. It
// uses the login for the whole registry. Registry returns the same errors as [Client.Repository].
func (c *Client) Registry(ctx context.Context, r ociaddr.Registry) (*remote.Registry, error) {
	registry, err := remote.NewRegistry(string(r))
	if err != nil {
		return nil, err
	}
	if registry.Client, registry.PlainHTTP, err = c.open(ctx, ociaddr.Repository{Registry: r}, string(r)); err != nil {
		return nil, err
	}
	return registry, nil
}

// open returns the HTTP client for the repository's registry, and whether requests to the
// registry go over plain HTTP. Errors about the login use name for the repository or registry.
func (c *Client) open(ctx context.Context, r ociaddr.Repository, name string) (remote.Client, bool, error) {
	_, sender, err := c.bind(r)
	if err != nil {
		return nil, false, fmt.Errorf("find the login for %s: %w", name, err)
	}
	plain, err := c.Connections.PlainHTTP(ctx, r.Registry)
	return sender, plain, err
}

// Account returns a key for the logins of a repository. Two repositories have the same key
// if they are on the same registry and use the same logins. The key contains no secret. It
// is valid for this [Client] only.
func (c *Client) Account(r ociaddr.Repository) string {
	account, _, err := c.bind(r)
	if err != nil {
		return string(r.Registry)
	}
	return fmt.Sprintf("%s %p", r.Registry, account)
}

// CheckLogin checks a user name and a password by a request for the registry's /v2/, as docker
// login does. The options configure the connection; their logins are not used. The error has a
// hint. It wraps [wire.ErrNotAsked] if the registry accepts the request without asking for a
// credential.
func CheckLogin(ctx context.Context, opts Options, r ociaddr.Registry, username string, password login.Secret) error {
	opts.Login.Explicit = []login.Login{{Prefix: string(r), Username: login.NewSecret(username), Password: password}}
	opts.Login.Defaults = &login.Defaults{} // no login files
	c := New(opts)
	registry, err := c.Registry(ctx, r)
	if err != nil {
		return err
	}
	_, sender, _ := c.bind(ociaddr.Repository{Registry: r}) // cannot fail, because Registry has succeeded
	err = registry.Ping(wire.WithFreshToken(ctx))
	refused := hasStatus(http.StatusUnauthorized, http.StatusForbidden)(err)
	if err == nil && !sender.Vouched() {
		refused, err = true, errors.New("its token is for clients without a login")
	}
	switch {
	case err == nil || errors.Is(err, wire.ErrNotAsked):
		return err
	case refused:
		return hint.Wrap(fmt.Errorf("%s refused the user name or the password of %s: %w", r, username, err),
			"check both; in a shell, put a name that contains a $ into single quotes, such as 'robot$ci'%s", rightsNote(ociaddr.Repository{Registry: r}))
	}
	err = c.Explain(fmt.Errorf("check the login at %s: %w", r, err), ociaddr.Repository{Registry: r})
	return hint.Wrap(err, "check that %s is the host name of a registry", r)
}
