// Package login decides which credential is sent to which OCI repository. It also stores
// logins, and removes them. It contacts no registry.
//
// Only ocibridge itself imports this package: it can change at any time.
//
// It uses the credentials that the user already has. docs/reference/credentials.md lists
// their sources in order. The most specific login for a repository is used: the longest
// repository prefix first, then the host, then a helper for all hosts. Equally specific
// logins rank in the order of their sources. [Logins] reads the login files once, when it
// first needs a login. It runs a helper only if a registry asks for a credential and no
// better login has one.
//
// No error, log record or formatted value contains a secret. The types of secrets print as
// [redacted]. Their values are passed only to code that sends the secrets or removes them
// from texts.
//
// [Logins.Store] and [Logins.Remove] write logins where docker writes them. For the order of
// sources and the names of registries, they follow the same rules as the rest of the package.
//
// The package reads variables and files only through [Environment]. There are two
// exceptions: helpers are found on PATH, and the file that Store and Remove edit is read
// from the disk.
package login

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/base/hint"
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

// Variable returns the value of a variable, or "" if the variable is not set.
func (env Environment) Variable(name string) string {
	if env.Getenv == nil {
		return ""
	}
	return env.Getenv(name)
}

// Options says where logins come from. With the zero value, there is no login.
type Options struct {
	Environment Environment

	// Explicit lists the logins that the user configured. The logins in ocibridge.hcl come
	// before the logins in the CLI configuration.
	Explicit []Login

	// Defaults configures the sources of other logins. nil means the usual login files.
	Defaults *Defaults

	HelperTimeout time.Duration // the limit of one run of a credential helper; 0 means 30 s
	Log           *slog.Logger  // receives the source of each credential; nil means no log
}

// Validate checks the blocks and variables. It reads no file.
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
	_, err := o.Environment.VariableLogin()
	return err
}

// Logins finds the logins of repositories, and stores logins. It is safe for concurrent use.
type Logins struct {
	opts    Options
	all     func() (sources, error) // finds the sources once
	helpers *helperRunner

	mu       sync.Mutex
	accounts map[string]*Account
}

// New returns the logins of the sources in opts. It reads no files yet.
func New(opts Options) *Logins {
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	return &Logins{
		opts:     opts,
		all:      sync.OnceValues(func() (sources, error) { return findSources(opts) }),
		helpers:  newHelperRunner(cmp.Or(opts.HelperTimeout, 30*time.Second)),
		accounts: map[string]*Account{},
	}
}

// For returns the account of a repository. Repositories of one registry have the same account
// if the same logins match them. For fails if the options are invalid, or if a login file that a
// block names cannot be read or parsed.
func (s *Logins) For(r ociaddr.Repository) (*Account, error) {
	all, err := s.all()
	if err != nil {
		return nil, err
	}
	matching := rank(all, r)
	id := string(r.Registry)
	for _, l := range matching {
		id += fmt.Sprintf(" %p", l)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.accounts[id]
	if !ok {
		a = &Account{registry: r.Registry, logins: matching, helpers: s.helpers, log: s.opts.Log}
		if len(matching) > 0 {
			a.used.Store(matching[0])
		}
		s.accounts[id] = a
	}
	return a, nil
}

// ExplainNone returns the hint for a repository without a login. The hint names up to three
// logins for other repositories of the same registry.
func (s *Logins) ExplainNone(r ociaddr.Repository) string {
	all, _ := s.all() // empty if the options are invalid
	if err := all.fault(); err != nil {
		return fmt.Sprintf("no login for %s was found, and one source of logins could not be read: %v; %s", r.Registry, err, hint.Of(err))
	}
	var others []string
	for _, l := range all {
		if l.absent == "" && l.key.host == r.Registry.Canonical() && !slices.Contains(others, l.key.String()) {
			others = append(others, l.key.String())
		}
	}
	if len(others) > 0 {
		return fmt.Sprintf("no login for %s was found; those for %s are for other repositories; run: %s", r, strings.Join(others[:min(len(others), 3)], ", "), Command(r.Registry))
	}
	return fmt.Sprintf("no login for %s was found; run: %s", r.Registry, Command(r.Registry))
}

// Command returns the commands that store a login for the registry. The commands store the
// login in a place that this package reads.
func Command(r ociaddr.Registry) string {
	if r.Canonical() == ociaddr.DockerHub {
		return "ocibridge login docker.io, or docker login"
	}
	return fmt.Sprintf("ocibridge login %s, or docker login %[1]s", r)
}

// Account is the logins for some repositories of a registry, in order of preference.
type Account struct {
	registry ociaddr.Registry
	logins   []*source
	helpers  *helperRunner
	log      *slog.Logger

	// used is the login that was chosen when the registry last asked for a credential, or nil if
	// no login had one. Before the registry asks, it is the best login.
	used    atomic.Pointer[source]
	refused atomic.Bool // the registry refused the access token of the login in used
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

// Credential returns the credential of the first login that has one, or the empty credential. If
// an earlier login fails, it returns an [Error]. After [Account.RefuseAccessToken], the
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

// RefuseAccessToken records that the registry refused the access token of the chosen login. It
// records this only if the login also has a refresh token, which can be tried instead, and if
// the Authorization header of the refused request has that access token. It reports whether it
// has recorded the refusal.
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

// Renew says how to replace the chosen login after a registry did not accept it.
func (a *Account) Renew() string {
	if l := a.used.Load(); l != nil && (l.kind == inBlock && l.helper == "" || l.kind == inVariables) {
		return "put a new one there"
	}
	return "to log in again, run: " + Command(a.registry)
}
