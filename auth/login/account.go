package login

import (
	"context"
	"log/slog"
	"sync/atomic"

	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// Account is the logins for some repositories of a registry, in order of preference.
type Account struct {
	registry ociaddr.Registry
	logins   []*source
	helpers  *helperRunner
	log      *slog.Logger

	// used is the login that was chosen when the registry last asked for a credential, or nil if
	// no login had one. Before the registry asks, it is the best login.
	used    atomic.Pointer[source]
	refused atomic.Bool // the registry refused the access token of the login used
}

// Error means that a login could not provide its credential when a registry asked for it.
// The reason is a helper that failed, or an invalid entry of a login file.
type Error struct {
	Source string // the description of the login, as in [Candidate.Source]
	Err    error
}

func (e *Error) Error() string { return e.Source + ": " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// choose tries the logins in order. It returns the first login that has a credential, or the
// first that fails, with its error. It returns nil if no login has a credential.
func (a *Account) choose(ctx context.Context) (*source, credential, error) {
	for _, l := range a.logins {
		cred, err := l.get(ctx, a.helpers, a.registry)
		if err != nil || !cred.empty() {
			return l, cred, err
		}
	}
	return nil, credential{}, nil
}

// Credential returns the credential of the first login that has one, or the empty credential.
// It returns an [Error] if a login fails before. After [Account.RefuseAccessToken], the
// credential has no access token.
func (a *Account) Credential(ctx context.Context) (auth.Credential, error) {
	l, cred, err := a.choose(ctx)
	a.used.Store(l)
	switch {
	case err != nil:
		return auth.EmptyCredential, &Error{l.String(), err}
	case l == nil:
		a.log.LogAttrs(ctx, slog.LevelDebug, "registry asks for a credential; there is none",
			slog.String("registry", string(a.registry)))
		return auth.EmptyCredential, nil
	}
	a.log.LogAttrs(ctx, slog.LevelDebug, "registry asks for a credential",
		slog.String("registry", string(a.registry)), slog.String("source", l.String()))
	revealed := cred.reveal()
	if a.refused.Load() {
		revealed.AccessToken = ""
	}
	return revealed, nil
}

// RefuseAccessToken records that the registry refused the access token of the login used. It
// reports whether that login also has a refresh token, which can be tried instead. It
// returns false if the Authorization header of the refused request has another credential.
func (a *Account) RefuseAccessToken(authorization string) bool {
	used := a.used.Load()
	if used == nil {
		return false
	}
	cred := used.cred.reveal() // empty if a helper has the credential
	if cred.AccessToken == "" || cred.RefreshToken == "" || authorization != "Bearer "+cred.AccessToken {
		return false
	}
	a.refused.Store(true)
	return true
}

// Used describes the login that was sent to the registry, such as "the login for ghcr.io in
// /home/u/.docker/config.json". Before the registry asks for a credential, Used describes the
// best login. It returns "" if there is no login. The description contains no secret.
func (a *Account) Used() string {
	if l := a.used.Load(); l != nil {
		return l.String()
	}
	return ""
}

// Renew says how to replace the login used after a registry did not accept it.
func (a *Account) Renew() string {
	if l := a.used.Load(); l != nil && (l.kind == inBlock && l.helper == "" || l.kind == inVariables) {
		return "put a new one there"
	}
	return "to log in again, run: " + Command(a.registry)
}
