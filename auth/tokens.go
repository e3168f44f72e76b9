package auth

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/hint"
)

const (
	// defaultTokenLife is how long a token lasts whose server does not say, by
	// the distribution project's token specification.
	defaultTokenLife = 60 * time.Second
	// tokenMargin is how long before its end a token is not used any more, so
	// that it does not end on the way. Short-lived ones get a quarter of their
	// life.
	tokenMargin = 10 * time.Second
	// maxTokens bounds how many tokens a binding keeps, and maxTokenBytes what they and
	// their scopes take. With each token oras-go keeps up to maxChallenge.
	maxTokens     = 4096
	maxTokenBytes = 16 << 20
	// maxToken bounds a token of a token server. Tokens of Azure and GitLab have up to
	// 8 KiB, and few servers take a header of more than 16 KiB.
	maxToken = 16 << 10
	// maxTokenAnswer is what oras-go reads of a token server's answer.
	maxTokenAnswer = 128 << 10
)

// tokenCache keeps the scheme and the tokens of one binding, for oras-go. Unlike
// oras-go's own it knows when a token ends, and gets a new one before it is used:
// a registry that refuses a token in the middle of an upload costs the upload.
type tokenCache struct {
	now func() time.Time

	mu      sync.Mutex
	schemes map[string]auth.Scheme // by host
	tokens  map[tokenKey]*token
	bytes   int // what tokens take: see token.size
	// accepted is whether the token server accepted the login when it gave the last token.
	// Harbor answers a wrong password with a token that has no subject.
	accepted bool
}

type tokenKey struct {
	host   string
	scheme auth.Scheme
	scopes string // "" for Basic
}

// token is what is known for one key. All but the slot is kept by the cache's
// mutex.
type token struct {
	slot  // held while the token is fetched
	key   tokenKey
	value string
	until time.Time // when it is not to be used any more; zero for never
	fetch tokenFetch
	err   error // how the last fetch ended
	round int   // counts fetches
}

// size returns how many bytes of text a token keeps. Its other fields have a bounded size.
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

// GetToken implements [auth.Cache]. A token that has ended is renewed.
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
	if !ended && !isAnew(ctx) {
		return value, nil
	}
	value, err := c.renew(ctx, t, round, fetch)
	if err != nil {
		// The request is sent without a token, and the registry's challenge
		// leads to an error in the words of whoever refuses.
		return "", fmt.Errorf("%w: %w", errdef.ErrNotFound, err)
	}
	return value, nil
}

func (t *token) ended(now time.Time) bool { return !t.until.IsZero() && !now.Before(t.until) }

// Set implements [auth.Cache]: it fetches a token and keeps it. Of several
// callers at once one fetches.
func (c *tokenCache) Set(ctx context.Context, host string, scheme auth.Scheme, scopes string, fetch func(context.Context) (string, error)) (string, error) {
	k := tokenKey{host, scheme, scopes}
	c.mu.Lock()
	c.schemes[host] = scheme
	t, ok := c.tokens[k]
	if !ok {
		t = &token{slot: newSlot(), key: k}
		c.tokens[k] = t
		c.bytes += t.size()
		c.makeRoom(t)
	}
	round := t.round
	c.mu.Unlock()
	return c.renew(ctx, t, round, fetch)
}

type anewKey struct{}

// Anew returns a context whose requests show what a login may read at this moment:
// a bearer token is fetched for them, however long an older one lasts, and an
// answer for which the registry asked for no credential is an error. A login that
// was revoked may still have tokens that were issued before.
func Anew(ctx context.Context) context.Context { return context.WithValue(ctx, anewKey{}, true) }

func isAnew(ctx context.Context) bool { return ctx.Value(anewKey{}) != nil }

// renew fetches a token, unless somebody else has since the given round and that
// is new enough.
func (c *tokenCache) renew(ctx context.Context, t *token, round int, fetch tokenFetch) (string, error) {
	if err := t.lock(ctx); err != nil {
		return "", err
	}
	defer t.unlock()
	c.mu.Lock()
	value, err, done := t.value, t.err, t.round != round && !isAnew(ctx)
	c.mu.Unlock()
	if done {
		return value, err
	}
	life := &tokenLife{now: c.now}
	value, err = fetch(context.WithValue(ctx, tokenLifeKey{}, life))
	if err != nil && ctx.Err() != nil {
		return "", err // the caller's own end is none of those who wait
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
	// A failure is for the callers who wait now: they have the token, and the cache
	// keeps no words of a token server.
	if kept && err == nil {
		c.tokens[t.key] = t
		c.bytes += t.size()
		c.makeRoom(t)
	}
	return value, err
}

// remove takes a token out of the cache, and reports whether it was there.
func (c *tokenCache) remove(t *token) bool {
	if c.tokens[t.key] != t {
		return false
	}
	delete(c.tokens, t.key)
	c.bytes -= t.size()
	return true
}

// makeRoom removes tokens until the cache is within its bounds. Tokens that have ended
// go first. It never removes the token keep.
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

// refuse ends the token of an Authorization header, as a registry has refused
// it. It reports whether there is such a token.
func (c *tokenCache) refuse(authorization string) bool {
	t := c.find(authorization)
	if t != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		t.until = time.Unix(0, 1)
	}
	return t != nil
}

// usable reports whether an Authorization header may be sent: whether it holds
// no token that has ended.
func (c *tokenCache) usable(authorization string) bool {
	t := c.find(authorization)
	if t == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return !t.ended(c.now())
}

// find returns the bearer token that an Authorization header holds, or nil.
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

// forget ends all tokens.
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
// distribution project's token specification has such tokens for clients without a login.
// An opaque token counts as the login's.
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

// tokenLife takes the end of a token from the answer that brings it. It travels
// in the context of the request, whose answer oras-go reads only the token from.
type tokenLife struct {
	now   func() time.Time
	until time.Time // zero where no answer was read
}

// answered reports whether the token came from a token server. The user's own tokens do
// not.
func (l *tokenLife) answered() bool { return !l.until.IsZero() }

type tokenLifeKey struct{}

// tokenLifeReader reads the life of a token on the way to oras-go.
type tokenLifeReader struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t tokenLifeReader) RoundTrip(req *http.Request) (*http.Response, error) {
	life, ok := req.Context().Value(tokenLifeKey{}).(*tokenLife)
	if !ok {
		return t.next.RoundTrip(req)
	}
	asked := life.now()
	resp, err := t.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxTokenAnswer))
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	life.read(asked, resp.Header, body)
	return resp, nil
}

// read takes the life from an answer to a request of the time asked. How old the
// token was is reckoned by the server's own clock, so that it does not matter
// whether ours agrees.
func (l *tokenLife) read(asked time.Time, h http.Header, body []byte) {
	var answer struct {
		ExpiresIn json.RawMessage `json:"expires_in"`
		IssuedAt  json.RawMessage `json:"issued_at"`
	}
	// What does not parse oras-go refuses too.
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
	l.until = asked.Add(life - margin)
}
