// Package access decides who may read which providers and modules of a gateway.
//
// Only ocibridge itself imports this package: it can change at any time.
//
// A client authenticates with a bearer token. The token is valid if its SHA-256 sum is configured, or if a
// configured OpenID Connect issuer signed it. Clients send the token only with requests for documents. They
// send no token with requests for the archives, checksums and signatures that the documents name. So the URLs
// of these files contain a capability instead; see [Control.Link].
//
// Invariants:
//
//   - A client without a valid token gets 401. A client whose token does not cover the requested provider or
//     module gets 403, whether or not it exists.
//   - A token is compared with all configured tokens in constant time. An expired token gets the same response
//     as an unknown token.
//   - No token and no capability appears in a log, an error or the path that
//     handlers see.
//   - An issuer that cannot be reached affects only the clients that use its tokens. These clients get 503,
//     never 401.
//
// A nil [*Control] lets everyone read everything.
package access

import (
	"cmp"
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

	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
)

// Options configure a [Control].
type Options struct {
	Tokens  []Token
	Issuers []Issuer
	// Keys returns the keys that sign and verify capabilities. It is called for every capability. If nil, the
	// control uses one random key, and no other process accepts its capabilities.
	Keys     func() *Keys
	Before   *Control                  // the replaced control, whose cached issuer keys New takes over; may be nil
	Client   *http.Client              // sends the requests to issuers; nil means one that trusts the system's CAs
	Log      *slog.Logger              // receives problems with issuers, and warnings about refused links; may be nil
	Counters *telemetry.AccessCounters // counts refused requests; may be nil
}

// Token is a bearer token.
type Token struct {
	Name   string
	SHA256 [sha256.Size]byte // the SHA-256 sum of the token
	// Selector selects the providers and modules that the token may read. Patterns for one kind
	// alone do not let the token read the other kind.
	Selector subject.Selector
	Expires  time.Time // zero: the token never expires
	Operator bool
}

// Control decides which providers and modules a client may read. It is safe for concurrent use.
type Control struct {
	tokens  []*grant // in the order of Options.Tokens; grants begins with the same elements
	issuers []*issuer
	grants  []*grant // one for each token, then one for each rule of an issuer
	keys    func() *Keys
	ring    atomic.Pointer[ring]
	log     *slog.Logger
	// equal compares secrets. It is subtle.ConstantTimeCompare, except in tests that count comparisons.
	equal   func(a, b []byte) int
	n       *telemetry.AccessCounters
	refused telemetry.Throttle // limits the warnings about refused links
}

// New returns a control for the given tokens and issuers.
func New(o Options) *Control {
	c := &Control{keys: o.Keys, equal: subtle.ConstantTimeCompare}
	c.log, c.n = cmp.Or(o.Log, slog.New(slog.DiscardHandler)), cmp.Or(o.Counters, &telemetry.AccessCounters{})
	if c.keys == nil {
		k := RandomKeys()
		c.keys = func() *Keys { return k }
	}
	for _, t := range o.Tokens {
		c.tokens = append(c.tokens, &grant{kind: "token", name: t.Name, binding: t.SHA256, scope: t.Selector, expires: t.Expires, operator: t.Operator})
	}
	c.grants = slices.Clone(c.tokens)
	c.issuers = newIssuers(o.Issuers, o.Before, o.Client, c.log)
	for _, i := range c.issuers {
		c.grants = append(c.grants, i.grants...)
	}
	return c
}

// everything reports whether a selector selects all addresses of all kinds.
func everything(s subject.Selector, kinds []subject.Kind) bool {
	isLacking := func(k subject.Kind) bool {
		return !slices.ContainsFunc(s.Include, func(p subject.Pattern) bool { return p.Kind() == k && p.Parts() == 0 })
	}
	return len(s.Exclude) == 0 && (len(s.Include) == 0 || !slices.ContainsFunc(kinds, isLacking))
}

// grant is a token, or a rule of an issuer, that gives read access to some providers and modules.
type grant struct {
	kind, name string
	// binding is a hash of the token, or of the rule's conditions. It is in the grant's ID, which capabilities contain,
	// so that a capability becomes invalid when the token or the conditions change.
	binding  [sha256.Size]byte
	scope    subject.Selector
	expires  time.Time
	operator bool
}

func (g *grant) expired(now time.Time) bool { return !g.expires.IsZero() && !now.Before(g.expires) }

// Client is an authenticated client, and what it may read.
type Client struct {
	name    string
	grants  []*grant
	expires time.Time // when the token expires; zero: never
}

// MayRead reports whether the client may read the given provider or module.
func (c *Client) MayRead(a subject.Address) bool { return c.grantFor(a) != nil }

func (c *Client) mayReadAll() bool {
	return slices.ContainsFunc(c.grants, func(g *grant) bool { return everything(g.scope, subject.Kinds) })
}

func (c *Client) grantFor(what subject.Address) *grant {
	for _, g := range c.grants {
		if g.scope.Selects(what) {
			return g
		}
	}
	return nil
}

// Reasons why authentication fails.
var (
	ErrUnknown     = errors.New("no valid token")
	ErrUnavailable = errors.New("the issuer of the token cannot be reached")
)

// maxToken is the maximum length of a token in bytes.
const maxToken = 16 << 10

// authenticate returns the client of a request's bearer token. If basic is true, the token may also be the
// password of Basic authentication. authenticate fails with ErrUnknown or ErrUnavailable.
func (c *Control) authenticate(r *http.Request, basic bool) (*Client, error) {
	token, ok := shown(r, basic)
	if !ok || token == "" || len(token) > maxToken {
		return nil, ErrUnknown
	}
	if s := c.byToken(token, time.Now()); s != nil {
		return s, nil
	}
	return c.byIssuer(r.Context(), token)
}

// shown returns the token in a request's Authorization header, if there is one; see authenticate.
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

// byToken returns the client of a configured token, or nil if the token is unknown or has expired. The amount
// of work does not depend on the token.
func (c *Control) byToken(token string, now time.Time) *Client {
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
	return &Client{name: "token " + g.name, grants: []*grant{g}, expires: g.expires}
}

// state is what this package knows about a request. [Control.Handler] adds it to the request's context.
type state struct {
	capability string            // the capability in the request's path, or ""
	digest     [sha256.Size]byte // the hash of the digest that the capability covers
	client     *Client
	name       string // the client's name in the log
}

func (s *state) setClient(client *Client) { s.client, s.name = client, client.name }

type stateKey struct{}

func stateOf(ctx context.Context) *state {
	if s, ok := ctx.Value(stateKey{}).(*state); ok {
		return s
	}
	return &state{}
}

// LogAttrs returns attributes for the log that identify the client of a request.
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

// Challenge is the WWW-Authenticate header that makes a browser prompt for a user name and a password. The user name
// does not matter, and the password must be a token.
const Challenge = `Basic realm="ocibridge", charset="UTF-8"`

// everybody is the client of every request if access is not controlled. It may read everything.
var everybody = &Client{grants: []*grant{{}}}

// Person returns the client of a request for a page. The token may also be a password with any user name, because
// browsers can send passwords. A nil control returns a client that may read everything. If Person fails with
// [ErrUnknown], the caller can answer with a [Challenge]. The other error is [ErrUnavailable]. Person counts no
// refused requests, so callers count them with [Control.Refused].
func (c *Control) Person(r *http.Request) (*Client, error) {
	if c == nil {
		return everybody, nil
	}
	s, err := c.authenticate(r, true)
	if err != nil {
		return nil, err
	}
	stateOf(r.Context()).setClient(s)
	return s, nil
}

// Refused counts a refused request. err is the reason why authentication failed, or nil if the client is known but may
// not read the provider or module.
func (c *Control) Refused(err error) {
	switch {
	case err == nil:
		c.n.Forbidden.Add(1)
	case errors.Is(err, ErrUnavailable):
		c.n.Unavailable.Add(1)
	default:
		c.n.Unknown.Add(1)
	}
}

// Name returns the client's name, such as "token ci". The name is "" if access is not controlled.
func (c *Client) Name() string { return c.name }

// NameOf returns the name of a request's client: "" before authentication, and if access is not controlled.
func NameOf(ctx context.Context) string { return stateOf(ctx).name }
