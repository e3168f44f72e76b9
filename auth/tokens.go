package auth

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/hint"
)

const (
	// defaultTokenLife is the lifetime of a token if the server does not state one, as
	// in the distribution project's token specification.
	defaultTokenLife = 60 * time.Second
	// tokenMargin is how long before its expiry a token is renewed, so that it does not
	// expire in transit. For a short-lived token it is a quarter of the lifetime.
	tokenMargin = 10 * time.Second
	// maxTokens and maxTokenBytes bound the tokens of a binding: their number, and the
	// size of their values and scopes. oras-go stores up to maxChallenge with each token.
	maxTokens     = 4096
	maxTokenBytes = 16 << 20
	// maxToken bounds the tokens of token servers. The tokens of Azure and GitLab have
	// up to 8 KiB, and few servers accept a header longer than 16 KiB.
	maxToken = 16 << 10
	// maxTokenAnswer is how much of a token server's answer oras-go reads.
	maxTokenAnswer = 128 << 10
)

// tokenCache caches the authentication scheme and the tokens of one binding for
// oras-go. Unlike oras-go's own cache, it knows when a token expires and renews it
// before use: if a registry refuses a token in the middle of an upload, the upload is
// lost.
type tokenCache struct {
	now func() time.Time

	mu      sync.Mutex
	schemes map[string]auth.Scheme // by host
	tokens  map[tokenKey]*token
	bytes   int // the sum of token.size over all tokens
	// accepted reports whether the token server accepted the login when it issued the
	// last token. Harbor answers a wrong password with a token that has no subject.
	accepted bool
}

type tokenKey struct {
	host   string
	scheme auth.Scheme
	scopes string // "" for Basic
}

// token is the cache entry for one key. The cache's mutex guards all fields except
// fetching.
type token struct {
	fetching *semaphore.Weighted // held while the token is fetched
	key      tokenKey
	value    string
	until    time.Time // when the token must be renewed; zero means never
	fetch    tokenFetch
	err      error // the error of the last fetch
	round    int   // the number of fetches
}

// size returns the number of bytes of text in a token. Its other fields have a bounded
// size.
func (t *token) size() int { return len(t.key.host) + len(t.key.scopes) + len(t.value) }

type tokenFetch = func(context.Context) (string, error)

var _ auth.Cache = (*tokenCache)(nil)

func newTokenCache(now func() time.Time) *tokenCache {
	return &tokenCache{now: now, schemes: map[string]auth.Scheme{}, tokens: map[tokenKey]*token{}}
}

// GetScheme implements [auth.Cache].
func (c *tokenCache) GetScheme(_ context.Context, host string) (auth.Scheme, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if scheme, ok := c.schemes[host]; ok {
		return scheme, nil
	}
	return auth.SchemeUnknown, errdef.ErrNotFound
}

// GetToken implements [auth.Cache]. It renews an expired token.
func (c *tokenCache) GetToken(ctx context.Context, host string, scheme auth.Scheme, scopes string) (string, error) {
	c.mu.Lock()
	t, ok := c.tokens[tokenKey{host, scheme, scopes}]
	if !ok || t.fetch == nil || c.schemes[host] != scheme {
		c.mu.Unlock()
		return "", errdef.ErrNotFound
	}
	value, fetch, round := t.value, t.fetch, t.round
	ended := t.ended(c.now())
	c.mu.Unlock()
	if !ended && !wantsFreshToken(ctx) {
		return value, nil
	}
	value, err := c.renew(ctx, t, round, fetch)
	if err != nil {
		// The request is then sent without a token, and the refusal of the registry or of
		// its token server becomes the error.
		return "", fmt.Errorf("%w: %w", errdef.ErrNotFound, err)
	}
	return value, nil
}

func (t *token) ended(now time.Time) bool { return !t.until.IsZero() && !now.Before(t.until) }

// Set implements [auth.Cache]: it fetches a token and caches it. Concurrent callers
// share one fetch.
func (c *tokenCache) Set(ctx context.Context, host string, scheme auth.Scheme, scopes string, fetch func(context.Context) (string, error)) (string, error) {
	k := tokenKey{host, scheme, scopes}
	c.mu.Lock()
	c.schemes[host] = scheme
	t, ok := c.tokens[k]
	if !ok {
		t = &token{fetching: semaphore.NewWeighted(1), key: k}
		c.tokens[k] = t
		c.bytes += t.size()
		c.makeRoom(t)
	}
	round := t.round
	c.mu.Unlock()
	return c.renew(ctx, t, round, fetch)
}

type freshTokenKey struct{}

// WithFreshToken returns a context whose requests show what a login may read at this moment. They
// fetch a fresh bearer token even if a cached one is still valid, because a revoked
// login may have valid tokens from before. They fail if the registry answers without
// asking for a credential.
func WithFreshToken(ctx context.Context) context.Context {
	return context.WithValue(ctx, freshTokenKey{}, true)
}

func wantsFreshToken(ctx context.Context) bool { return ctx.Value(freshTokenKey{}) != nil }

// renew fetches a token. If another caller has fetched one since the given round, renew
// returns that token, unless ctx comes from [WithFreshToken].
func (c *tokenCache) renew(ctx context.Context, t *token, round int, fetch tokenFetch) (string, error) {
	if err := t.fetching.Acquire(ctx, 1); err != nil {
		return "", err
	}
	defer t.fetching.Release(1)
	c.mu.Lock()
	value, err, done := t.value, t.err, t.round != round && !wantsFreshToken(ctx)
	c.mu.Unlock()
	if done {
		return value, err
	}
	life := &tokenLife{asked: c.now()}
	value, err = fetch(context.WithValue(ctx, tokenLifeKey{}, life))
	if err != nil && ctx.Err() != nil {
		return "", err // other callers must not get this caller's cancellation
	}
	if err == nil && life.answered() && len(value) > maxToken {
		value, err = "", hint.New(fmt.Sprintf("the token server's token has %d bytes, and at most %d are accepted", len(value), maxToken),
			"registries refuse such tokens: check the token server that the registry names")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if life.answered() {
		c.accepted = err == nil && !isAnonymous(value)
	}
	kept := c.remove(t)
	t.value, t.err, t.until, t.fetch = value, err, life.until, fetch
	t.round++
	// A failure is not cached. The callers that wait at this moment share it through t,
	// and the cache keeps no text of a token server.
	if kept && err == nil {
		c.tokens[t.key] = t
		c.bytes += t.size()
		c.makeRoom(t)
	}
	return value, err
}

// remove removes a token from the cache, and reports whether it was there.
func (c *tokenCache) remove(t *token) bool {
	if c.tokens[t.key] != t {
		return false
	}
	delete(c.tokens, t.key)
	c.bytes -= t.size()
	return true
}

// makeRoom evicts tokens until the cache is within its bounds, expired tokens first. It
// never evicts the token keep.
func (c *tokenCache) makeRoom(keep *token) {
	now := c.now()
	for len(c.tokens) > 1 && (len(c.tokens) > maxTokens || c.bytes > maxTokenBytes) {
		var victim *token
		for _, t := range c.tokens {
			if t == keep {
				continue
			}
			victim = t
			if t.ended(now) {
				break
			}
		}
		c.remove(victim)
	}
}

// refuse expires the token in an Authorization header, because a registry has refused
// it. It reports whether the cache has such a token.
func (c *tokenCache) refuse(authorization string) bool {
	t := c.find(authorization)
	if t != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		t.until = time.Unix(0, 1)
	}
	return t != nil
}

// usable reports whether an Authorization header may be sent. It may not if its token is
// in the cache and has expired.
func (c *tokenCache) usable(authorization string) bool {
	t := c.find(authorization)
	if t == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return !t.ended(c.now())
}

// find returns the cached token of an Authorization header, or nil.
func (c *tokenCache) find(authorization string) *token {
	value, ok := strings.CutPrefix(authorization, "Bearer ")
	if !ok || value == "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, t := range c.tokens {
		if k.scheme == auth.SchemeBearer && t.value == value {
			return t
		}
	}
	return nil
}

// forget expires all tokens.
func (c *tokenCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tokens {
		t.until = time.Unix(0, 1)
	}
}

// loginAccepted reports whether the token server has accepted the login.
func (c *tokenCache) loginAccepted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.accepted
}

// isAnonymous reports whether a token is a JSON Web Token without a subject. The
// distribution project's token specification defines such tokens for clients without a
// login. Opaque tokens count as tokens of the login.
func isAnonymous(token string) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || len(token) > maxToken {
		return false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Subject string `json:"sub"`
	}
	return err == nil && json.Unmarshal(payload, &claims) == nil && claims.Subject == ""
}

// tokenLife computes the expiry of a token from the answer that contains it. It travels
// in the context of the request, because oras-go reads only the token from the answer.
type tokenLife struct {
	asked time.Time // before the request
	until time.Time // zero until an answer is read
}

// answered reports whether the token came from a token server. Tokens that the user
// configured do not.
func (l *tokenLife) answered() bool { return !l.until.IsZero() }

type tokenLifeKey struct{}

// readTokenLife reads the lifetime of a token before the answer reaches oras-go.
func readTokenLife(req *http.Request, resp *http.Response) error {
	life, ok := req.Context().Value(tokenLifeKey{}).(*tokenLife)
	if !ok || resp.StatusCode != http.StatusOK {
		return nil
	}
	body, err := peek(resp, maxTokenAnswer)
	if err == nil {
		life.read(resp.Header, body)
	}
	return err
}

// read computes the expiry from the answer. It measures the age of the token by the server's own clock, so that a wrong local
// clock does no harm.
func (l *tokenLife) read(h http.Header, body []byte) {
	var answer struct {
		ExpiresIn json.RawMessage `json:"expires_in"`
		IssuedAt  json.RawMessage `json:"issued_at"`
	}
	// oras-go rejects an answer that does not parse.
	_ = json.Unmarshal(body, &answer)
	life := defaultTokenLife
	if seconds, err := strconv.ParseFloat(strings.Trim(string(answer.ExpiresIn), `"`), 64); err == nil && seconds >= 1 {
		life = time.Duration(min(seconds, (24*time.Hour).Seconds()) * float64(time.Second))
	}
	margin := min(tokenMargin, life/4)
	var issued string
	if json.Unmarshal(answer.IssuedAt, &issued) == nil {
		at, err := time.Parse(time.RFC3339, issued)
		date, derr := http.ParseTime(h.Get("Date"))
		if err == nil && derr == nil {
			life -= min(life, max(0, date.Sub(at)))
		}
	}
	l.until = l.asked.Add(life - margin)
}
