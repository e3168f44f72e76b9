package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// CheckLogin checks a user name and a password by a request for the registry's /v2/, as docker
// login does. The options configure the connection; their logins are not used. The error has a
// hint. It wraps [wire.ErrNotAsked] if the registry accepts this request from everybody.
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
	var answer *errcode.ErrorResponse
	refused := errors.As(err, &answer) && (answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden)
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
