// Package access decides who may read which providers of a gateway.
//
// Somebody is known by a bearer token whose SHA-256 sum is configured, or by one
// that a configured OpenID Connect issuer signed. Clients show it for documents
// alone, and not for the archives, checksums and signatures that these name: the
// URLs of those hold a capability, see [Control.Link].
//
// Invariants:
//
//   - Who is not known gets 401, and who is known and may not read a provider gets
//     403, whether or not there is such a provider.
//   - A token is compared with all that are configured, in constant time. One that
//     is known and has expired is not told from one that is unknown.
//   - No token and no capability is in a log, an error or the path that handlers
//     see.
//   - An issuer that cannot be reached concerns the bearers of its tokens alone:
//     they get 503, never 401.
//
// A nil [*Control] lets everybody read everything.
package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ocibridge/ocibridge/internal/telemetry"
	"github.com/ocibridge/ocibridge/provider"
)

// Options say who there is, and what they may read.
type Options struct {
	Tokens  []Token
	Issuers []Issuer
	// Keys returns the keys of capabilities, and is asked at every use. Nil: a
	// random key, which no other process has.
	Keys func() *Keys
	// Before is a control that this one takes the place of: what it knows of
	// issuers' keys need not be asked again. Nil: there is none.
	Before *Control
	// Client asks issuers; nil: one that trusts the system's authorities.
	Client *http.Client
	// Log gets what is wrong with issuers; nil: nobody does.
	Log *slog.Logger
	// Counters counts those who were turned away; nil: nobody counts.
	Counters *telemetry.AccessCounters
}

// Token is a bearer token.
type Token struct {
	Name     string
	SHA256   [sha256.Size]byte // of the token
	Selector provider.Selector // what its bearer may read
	Expires  time.Time         // zero: never
	Operator bool
}

// Control knows who may read what. It is safe for concurrent use.
type Control struct {
	tokens  []*grant // in the order of the options, as grants is
	issuers []*issuer
	grants  []*grant // all that there are
	keys    func() *Keys
	ring    atomic.Pointer[ring]
	log     *slog.Logger
	// equal compares secrets: subtle.ConstantTimeCompare, which tests count.
	equal func(a, b []byte) int
	n     *telemetry.AccessCounters
}

// New returns a control for what the options name.
func New(o Options) *Control {
	c := &Control{keys: o.Keys, log: o.Log, n: o.Counters, equal: subtle.ConstantTimeCompare}
	if c.n == nil {
		c.n = &telemetry.AccessCounters{}
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.keys == nil {
		k := RandomKeys()
		c.keys = func() *Keys { return k }
	}
	for _, t := range o.Tokens {
		c.tokens = append(c.tokens, &grant{
			kind: "token", name: t.Name, binding: t.SHA256,
			selector: t.Selector, expires: t.Expires, operator: t.Operator,
		})
	}
	c.grants = slices.Clone(c.tokens)
	c.issuers = newIssuers(o.Issuers, o.Before, o.Client, c.log)
	for _, i := range c.issuers {
		for _, r := range i.rules {
			c.grants = append(c.grants, r.grant)
		}
	}
	return c
}

// grant is one reason why somebody may read something: a token, or a rule of an
// issuer.
type grant struct {
	kind, name string
	// binding changes with what the grant is given for, so that a capability of a
	// token does not outlive its replacement.
	binding  [sha256.Size]byte
	selector provider.Selector
	expires  time.Time
	operator bool
}

func (g *grant) expired(now time.Time) bool { return !g.expires.IsZero() && !now.Before(g.expires) }

// everything reports whether no provider is left out.
func (g *grant) everything() bool {
	return len(g.selector.Exclude) == 0 &&
		(len(g.selector.Include) == 0 || slices.Contains(g.selector.Include, provider.MustParsePattern("*/*/*")))
}

// Subject is somebody who is known.
type Subject struct {
	name    string
	grants  []*grant
	expires time.Time // of what was shown; zero: never
}

// MayRead reports whether the subject may read a provider.
func (s *Subject) MayRead(a provider.Address) bool { return s.grantFor(a) != nil }

func (s *Subject) mayReadAll() bool { return slices.ContainsFunc(s.grants, (*grant).everything) }

func (s *Subject) grantFor(a provider.Address) *grant {
	for _, g := range s.grants {
		if g.selector.Selects(a) {
			return g
		}
	}
	return nil
}

// Reasons why somebody is not known.
var (
	// ErrUnknown means that no token is shown that is known and valid.
	ErrUnknown = errors.New("no token that is known here")
	// ErrUnavailable means that nobody can say whose token it is now.
	ErrUnavailable = errors.New("the issuer of the token cannot be asked")
)

// maxToken bounds what is taken for a token.
const maxToken = 16 << 10

// authenticate returns who asks, by a bearer token, or, where basic says so, by
// one in the place of a password. It fails with ErrUnknown or ErrUnavailable.
func (c *Control) authenticate(r *http.Request, basic bool) (*Subject, error) {
	token, ok := shown(r, basic)
	if !ok || token == "" || len(token) > maxToken {
		return nil, ErrUnknown
	}
	if s := c.byToken(token, time.Now()); s != nil {
		return s, nil
	}
	return c.byIssuer(r.Context(), token)
}

// shown returns the token that a request shows.
func shown(r *http.Request, basic bool) (string, bool) {
	if len(r.Header.Values("Authorization")) != 1 {
		return "", false
	}
	if basic {
		if _, password, ok := r.BasicAuth(); ok {
			return password, true
		}
	}
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "Bearer")
}

// byToken returns the bearer of a configured token; nil if there is none that is
// valid. The work does not depend on which it is.
func (c *Control) byToken(token string, now time.Time) *Subject {
	sum, found := sha256.Sum256([]byte(token)), -1
	for i, g := range c.tokens {
		same := c.equal(sum[:], g.binding[:])
		if g.expired(now) {
			same = 0
		}
		found = subtle.ConstantTimeSelect(same, i, found)
	}
	if found < 0 {
		return nil
	}
	g := c.tokens[found]
	return &Subject{name: "token " + g.name, grants: []*grant{g}, expires: g.expires}
}

// state is what is known of a request, from [Control.Handler] on.
type state struct {
	capability string // as it stood in the path
	digest     [sha256.Size]byte
	subject    *Subject
	name       string // of who asks, for the log
}

type stateKey struct{}

func contextWith(ctx context.Context, s *state) context.Context {
	return context.WithValue(ctx, stateKey{}, s)
}

func stateOf(ctx context.Context) *state {
	if s, ok := ctx.Value(stateKey{}).(*state); ok {
		return s
	}
	return &state{}
}

// LogAttrs returns what a log may say of who made a request, once it is answered.
func LogAttrs(ctx context.Context) []slog.Attr {
	s := stateOf(ctx)
	var out []slog.Attr
	if s.capability != "" {
		out = append(out, slog.String("capability", redacted))
	}
	if s.name != "" {
		out = append(out, slog.String("subject", s.name))
	}
	return out
}
