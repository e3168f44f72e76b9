package auth

import (
	"context"
	"fmt"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// Candidate is a source of logins that was examined for a repository.
type Candidate struct {
	Source string // a description that names the file and key, the block and line, or the variables
	Chosen bool   // whether this source is used: it provides the credential, or fails to provide it
	Reason string // why the source was chosen or rejected
	Err    error  // a fault of the source, with a hint; nil if there is none
	// Login reports whether the source has a login for the repository. Missed says why
	// OpenTofu does not find that login; "" means that it does.
	Login  bool
	Missed string
}

// LoginError reports that a login failed when a registry asked for its credential: a
// helper failed, or an entry of a login file was damaged.
type LoginError struct {
	Source string // a description, as in [Candidate]
	Err    error
}

func (e *LoginError) Error() string { return e.Source + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *LoginError) Unwrap() error { return e.Err }

// choose tries the binding's logins in order. It returns the first that has a
// credential or fails, or nil if no login has a credential.
func (c *Client) choose(ctx context.Context, b *binding) (*login, credential, error) {
	for _, l := range b.logins {
		cred, err := l.get(ctx, c.helpers, b.registry)
		if err != nil || !cred.empty() {
			return l, cred, err
		}
	}
	return nil, credential{}, nil
}

// Considered returns every source that was examined for the repository. The sources
// with a login for it come first, best first. The others follow: they have no login,
// or logins for other repositories. At most one source is chosen. Helpers run in order
// until one answers, as they do when a registry asks for a credential. The result
// contains no secret.
func (c *Client) Considered(ctx context.Context, r ociaddr.Repository) []Candidate {
	b, err := c.bind(r)
	if err != nil {
		return []Candidate{{Source: "the configured logins", Reason: err.Error(), Err: err}}
	}
	chosen, _, err := c.choose(ctx, b)
	var out []Candidate
	passed := false // whether the loop has passed the chosen login
	for _, l := range b.logins {
		considered := Candidate{Source: l.String(), Chosen: l == chosen, Reason: reason(l, chosen, passed, err, r), Login: true, Missed: l.openTofuMiss(r)}
		if l == chosen {
			considered.Err = err
		}
		out = append(out, considered)
		passed = passed || l == chosen
	}
	all, _ := c.sources() // bind has returned its error
	return append(out, all.others(r)...)
}

// reason says why l, which matches the repository, was chosen or not. If the chosen
// login fails, err is its error.
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
	return what + ", but an earlier login is equally specific"
}

// others returns the sources without a login for the repository.
func (s loginSources) others(r ociaddr.Repository) []Candidate {
	var out []Candidate
	for _, l := range s {
		switch matches := l.specificity(r) != noMatch; {
		case matches && l.absent != "":
			out = append(out, Candidate{Source: l.String(), Reason: l.absent, Err: l.err})
		case !matches && l.absent == "":
			out = append(out, Candidate{Source: l.String(), Reason: fmt.Sprintf("it is for %s", l.key)})
		}
	}
	return out
}
