package auth

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// binding combines a registry with a ranked list of logins. Each binding has its own
// token cache. The reason is that two repositories of one registry may have different
// logins, while oras-go caches Basic credentials by registry.
type binding struct {
	registry ociaddr.Registry
	logins   []*login // in order of preference
	sender   *sender

	// used is the login that was chosen when the registry last asked for a credential.
	// It is nil if no login had a credential. Before the registry asks for a
	// credential, used is the best login.
	used       atomic.Pointer[login]
	refused    atomic.Bool // the registry refused the access token of the login used
	lacksRight atomic.Bool // the last response said that the scope of the token is insufficient
}

// bind returns the binding for the repository's registry and the logins that match the
// repository. It creates the binding if needed.
func (c *Client) bind(r ociaddr.Repository) (*binding, error) {
	all, err := c.sources()
	if err != nil {
		return nil, err
	}
	matching := rank(all, r)
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

// newBinding creates a binding of the registry and the logins. The HTTP clients of all
// bindings share their connections.
func (c *Client) newBinding(registry ociaddr.Registry, logins []*login) *binding {
	b := &binding{registry: registry, logins: logins}
	if len(logins) > 0 {
		b.used.Store(logins[0])
	}
	tokens := newTokenCache(func() time.Time { return c.now() })
	client := &auth.Client{
		Client:   &http.Client{Transport: newTransport(router{c.conns, string(registry)}, c.sent, c.lookup), CheckRedirect: followRedirect},
		Cache:    tokens,
		ClientID: "ocibridge",
		Credential: func(ctx context.Context, hostport string) (auth.Credential, error) {
			if canonicalHost(hostport) != canonicalHost(string(registry)) {
				return auth.EmptyCredential, nil
			}
			return c.credential(ctx, b)
		},
		BlockedRealmPrefixes: blockedRealms(nil),
	}
	client.SetUserAgent(c.opts.UserAgent)
	b.sender = &sender{client: client, tokens: tokens, binding: b}
	return b
}

// credential returns the credential of the first login in the binding that has one. If
// a helper has no credential for the registry, credential tries the next login.
func (c *Client) credential(ctx context.Context, b *binding) (auth.Credential, error) {
	l, cred, err := c.choose(ctx, b)
	b.used.Store(l)
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
	if b.refused.Load() {
		revealed.AccessToken = ""
	}
	return revealed, nil
}

// refuseAccessToken records that the registry refused the access token of the login in
// use. It reports whether that login also has a refresh token, which can be tried
// instead. It returns false if resp.Request carried another credential.
func (b *binding) refuseAccessToken(resp *http.Response) bool {
	used := b.used.Load()
	if resp.Request == nil || used == nil || used.helper != "" {
		return false
	}
	cred := used.cred.reveal()
	if cred.AccessToken == "" || cred.RefreshToken == "" || resp.Request.Header.Get("Authorization") != "Bearer "+cred.AccessToken {
		return false
	}
	b.refused.Store(true)
	return true
}
