package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// ErrNotAsked means that a request succeeded although the registry did not ask for the credential
// that the request should check.
var ErrNotAsked = errors.New("the registry did not ask for a credential, so the credential is not checked")

// CheckLogin checks a user name and a password by a request for the registry's /v2/, as docker
// login does. The options configure the connection; their logins are not used. The error has a
// hint. It wraps [ErrNotAsked] if the registry accepts this request from everybody.
func CheckLogin(ctx context.Context, opts Options, r ociaddr.Registry, username string, password Secret) error {
	opts.Explicit = []Login{{Prefix: string(r), Username: NewSecret(username), Password: password}}
	opts.Defaults = &Defaults{} // no login files
	c := New(opts)
	registry, err := c.Registry(ctx, r)
	if err != nil {
		return err
	}
	err = registry.Ping(WithFreshToken(ctx))
	var answer *errcode.ErrorResponse
	refused := errors.As(err, &answer) && (answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden)
	if err == nil && !c.vouched(r) {
		refused, err = true, errors.New("its token is for clients without a login")
	}
	switch {
	case err == nil || errors.Is(err, ErrNotAsked):
		return err
	case refused:
		return hint.Wrap(fmt.Errorf("%s refused the user name or the password of %s: %w", r, username, err),
			"check both; in a shell, put a name that contains a $ into single quotes, such as 'robot$ci'%s", rightsNote(ociaddr.Repository{Registry: r}))
	}
	err = c.Explain(fmt.Errorf("check the login at %s: %w", r, err), ociaddr.Repository{Registry: r})
	return hint.Wrap(err, "check that %s is the host name of a registry", r)
}

// vouched reports whether the token server, if the registry has one, accepted the login.
func (c *Client) vouched(r ociaddr.Registry) bool {
	b, err := c.bind(ociaddr.Repository{Registry: r})
	if err != nil {
		return false
	}
	tokens := b.sender.tokens
	byToken := slices.ContainsFunc(tokens.tokens.Keys(), func(k tokenKey) bool { return k.scheme == auth.SchemeBearer })
	return !byToken || tokens.accepted.Load()
}
