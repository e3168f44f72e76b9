package auth

import (
	"context"
	"fmt"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// Candidate is a source of logins that was looked at for a repository.
type Candidate struct {
	Source string // in words, with file and key, block and line, or variables
	Chosen bool   // whether it gives the credential, or fails in its place
	Reason string // why it was chosen, or was not
	Err    error  // what is wrong with it, with a hint; nil for nothing
	// Login tells that it has a login for the repository. Missed says why OpenTofu does
	// not find that login, "" where it does.
	Login  bool
	Missed string
}

// LoginError is a login that a registry asked for and that cannot be had: a
// helper fails, or an entry of a login file is damaged.
type LoginError struct {
	Source string // in words, as in [Candidate]
	Err    error
}

func (e *LoginError) Error() string { return e.Source + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *LoginError) Unwrap() error { return e.Err }

// choose asks the binding's logins in turn and returns the one that has a
// credential, or that fails; nil if none does.
func (c *Client) choose(ctx context.Context, b *binding) (*login, credential, error) {
	for _, l := range b.logins {
		cred, err := l.get(ctx, c.helpers, b.registry)
		if err != nil || !cred.empty() {
			return l, cred, err
		}
	}
	return nil, credential{}, nil
}

// Considered tells every source that was looked at for the repository: first
// those with a login for it, the best first; then those that have none, or one
// for others. At most one is chosen. Helpers are asked until one answers, as
// when a registry wants a credential. No secret is in the result.
func (c *Client) Considered(ctx context.Context, r ociaddr.Repository) []Candidate {
	all, err := c.survey()
	var b *binding
	if err == nil {
		b, err = c.bind(r)
	}
	if err != nil {
		return []Candidate{{Source: "the configured logins", Reason: err.Error(), Err: err}}
	}
	chosen, _, err := c.choose(ctx, b)
	var out []Candidate
	passed := false // whether the chosen one is among those seen
	for _, l := range b.logins {
		considered := Candidate{Source: l.String(), Chosen: l == chosen, Reason: reason(l, chosen, passed, err, r), Login: true, Missed: l.openTofuMiss(r)}
		if l == chosen {
			considered.Err = err
		}
		out = append(out, considered)
		passed = passed || l == chosen
	}
	return append(out, all.others(r)...)
}

// reason says why l, which is for the repository, is chosen or not; err is how
// the chosen one fails, if it does.
func reason(l, chosen *login, passed bool, err error, r ociaddr.Repository) string {
	what := "it is for " + l.key.String()
	if l.specificity(r) == hostByURL {
		what = fmt.Sprintf("it is for %s, as docker reads a URL with a path", l.key.host)
	}
	switch {
	case l == chosen && err != nil:
		return fmt.Sprintf("%s, and fails: %v", what, err)
	case l == chosen:
		return what
	case !passed:
		return fmt.Sprintf("%s, but the helper knows nothing of %s", what, r.Registry)
	case l.specificity(r) < chosen.specificity(r):
		return what + ", which is less specific"
	}
	return what + ", as is one that comes before it"
}

// others returns the sources without a login for the repository.
func (s *survey) others(r ociaddr.Repository) []Candidate {
	var out []Candidate
	for _, e := range s.empty {
		if e.key == nil || e.key.specificity(r) != noMatch {
			out = append(out, Candidate{Source: e.source, Reason: e.reason, Err: e.err})
		}
	}
	for _, l := range s.logins {
		if l.specificity(r) == noMatch {
			out = append(out, Candidate{Source: l.String(), Reason: fmt.Sprintf("it is for %s", l.key)})
		}
	}
	return out
}
