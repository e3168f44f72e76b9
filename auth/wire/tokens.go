package wire

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
)

const (
	// defaultTokenLife is the lifetime of a token if the token server states none, as in the
	// distribution project's token specification.
	defaultTokenLife = 60 * time.Second
	// tokenMargin is how long before its expiry a token is renewed, so that it does not expire
	// while a request is sent. For a short-lived token, it is at most a quarter of the lifetime.
	tokenMargin = 10 * time.Second
	// maxTokens is the maximum number of cached tokens of a sender. With the parts of a challenge
	// that oras-go stores with each token, they take at most 20 MiB. A sync of more repositories
	// fetches a new token for each one in every round.
	maxTokens = 1024
	// maxToken is the maximum length in bytes of a token from a token server. The tokens of Azure
	// and GitLab have up to 8 KiB, and few servers accept a header longer than 16 KiB.
	maxToken       = 16 << 10
	maxTokenAnswer = 128 << 10 // how many bytes oras-go reads of a token server's response
	// tokenTimeout ends token fetches that no caller waits for. Anything that a fetch may wait for
	// has a shorter limit, with a better error.
	tokenTimeout = 10 * time.Minute
)

// tokenCache caches the authentication scheme and the tokens of one sender for oras-go. Unlike
// oras-go's own cache, it renews an expired token before it is used. An upload is lost if a
// registry refuses the token in the middle.
type tokenCache struct {
	now     func() time.Time
	log     *slog.Logger // receives panics; may be nil
	schemes sync.Map     // from a host to its auth.Scheme
	tokens  *lru.Cache[tokenKey, token]
	flights singleflight.Group
	// accepted reports whether the token server accepted the login when it issued the last token.
	// After a wrong password, Harbor issues a token without a subject.
	accepted atomic.Bool
}

type tokenKey struct {
	host   string
	scheme auth.Scheme
	scopes string // "" for Basic
}

type token struct {
	value string
	until time.Time // when the token must be renewed; zero means never
	fetch tokenFetch
}

type tokenFetch = func(context.Context) (string, error)

var _ auth.Cache = (*tokenCache)(nil)

func newTokenCache(now func() time.Time, log *slog.Logger) *tokenCache {
	tokens, _ := lru.New[tokenKey, token](maxTokens) // fails only for sizes below 1
	return &tokenCache{now: now, log: log, tokens: tokens}
}

func (c *tokenCache) GetScheme(_ context.Context, host string) (auth.Scheme, error) {
	if scheme, ok := c.schemes.Load(host); ok {
		return scheme.(auth.Scheme), nil
	}
	return auth.SchemeUnknown, errdef.ErrNotFound
}

// GetToken implements [auth.Cache]. It renews an expired token.
func (c *tokenCache) GetToken(ctx context.Context, host string, scheme auth.Scheme, scopes string) (string, error) {
	k := tokenKey{host, scheme, scopes}
	t, ok := c.tokens.Get(k)
	if current, _ := c.GetScheme(ctx, host); !ok || current != scheme {
		return "", errdef.ErrNotFound
	}
	if !t.ended(c.now()) && !wantsFreshToken(ctx) {
		return t.value, nil
	}
	value, err := c.fetch(ctx, k, t.fetch)
	if err != nil {
		// oras-go then sends the request without a token, and the caller gets the registry's error.
		return "", fmt.Errorf("%w: %w", errdef.ErrNotFound, err)
	}
	return value, nil
}

func (t token) ended(now time.Time) bool { return !t.until.IsZero() && !now.Before(t.until) }

// Set implements [auth.Cache]. It fetches a token and caches it.
func (c *tokenCache) Set(ctx context.Context, host string, scheme auth.Scheme, scopes string, fetch tokenFetch) (string, error) {
	c.schemes.Store(host, scheme)
	return c.fetch(ctx, tokenKey{host, scheme, scopes}, fetch)
}

type freshTokenKey struct{}

// WithFreshToken returns a context for requests that check whether a login is still valid. Such a
// request fetches a new bearer token, because the login may have been revoked after the cached
// token was issued. It fails if the registry responds without asking for a credential.
func WithFreshToken(ctx context.Context) context.Context {
	return context.WithValue(ctx, freshTokenKey{}, true)
}

func wantsFreshToken(ctx context.Context) bool { return ctx.Value(freshTokenKey{}) != nil }

// fetch fetches a token and caches it. Concurrent callers share one fetch. The fetch
// continues if the context of a caller ends.
func (c *tokenCache) fetch(ctx context.Context, k tokenKey, fetch tokenFetch) (string, error) {
	answer := c.flights.DoChan(fmt.Sprint(k), func() (value any, err error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tokenTimeout)
		defer cancel()
		value = ""
		return value, panics.Catch(ctx, c.log, func() (err error) { value, err = c.fetchOnce(ctx, k, fetch); return err })
	})
	select {
	case r := <-answer:
		return r.Val.(string), r.Err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// fetchOnce fetches a token and caches it. It does not cache a failure, because the text of the
// failure may be long.
func (c *tokenCache) fetchOnce(ctx context.Context, k tokenKey, fetch tokenFetch) (string, error) {
	life := &tokenLife{asked: c.now()}
	value, err := fetch(context.WithValue(ctx, tokenLifeKey{}, life))
	if err == nil && life.answered() && len(value) > maxToken {
		err = hint.New(fmt.Sprintf("the token server's token has %d bytes, and at most %d are accepted", len(value), maxToken),
			"registries refuse such tokens: check the token server that the registry names")
	}
	if life.answered() {
		c.accepted.Store(err == nil && !isAnonymous(value))
	}
	if err != nil {
		c.tokens.Remove(k)
		return "", err
	}
	c.tokens.Add(k, token{value, life.until, fetch})
	return value, nil
}

// refuse is called with an Authorization header that a registry has refused. If the token in the
// header is cached, refuse marks it as expired, and returns true.
func (c *tokenCache) refuse(authorization string) bool {
	found := c.find(authorization)
	for k, t := range found {
		t.until = time.Unix(0, 1)
		c.tokens.Add(k, t)
	}
	return len(found) > 0
}

// usable reports whether an Authorization header may be sent. It returns false only if the header's
// token is cached and has expired.
func (c *tokenCache) usable(authorization string) bool {
	for _, t := range c.find(authorization) {
		if t.ended(c.now()) {
			return false
		}
	}
	return true
}

// find returns the cached tokens that are equal to the bearer token in an Authorization header.
// The user's access token may be cached under several keys.
func (c *tokenCache) find(authorization string) map[tokenKey]token {
	value, ok := strings.CutPrefix(authorization, "Bearer ")
	if !ok || value == "" {
		return nil
	}
	out := map[tokenKey]token{}
	for _, k := range c.tokens.Keys() {
		if t, ok := c.tokens.Peek(k); ok && k.scheme == auth.SchemeBearer && t.value == value {
			out[k] = t
		}
	}
	return out
}

// isAnonymous reports whether a token is a JSON Web Token without a subject. According to the
// distribution project's token specification, clients without a login get such tokens.
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

// tokenLife records when a token must be renewed, according to the token server's response. It is a
// value in the context of the token request, because oras-go reads only the token itself.
type tokenLife struct {
	asked time.Time // before the request
	until time.Time // when the token must be renewed; zero until a response is read
}

// answered reports whether the token came from a token server, and not from the user.
func (l *tokenLife) answered() bool { return !l.until.IsZero() }

type tokenLifeKey struct{}

// readTokenLife reads the response to a token request into the [tokenLife] of its context.
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

// read computes when the token must be renewed. It computes the token's age from two times of the
// server's clock, the header Date and issued_at, so that a wrong local clock does no harm.
func (l *tokenLife) read(h http.Header, body []byte) {
	var answer struct {
		ExpiresIn json.RawMessage `json:"expires_in"`
		IssuedAt  json.RawMessage `json:"issued_at"`
	}
	_ = json.Unmarshal(body, &answer) // oras-go reports invalid JSON
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

// wantsToken reports whether the request asks a token server for a token.
func wantsToken(req *http.Request) bool { return req.Context().Value(tokenLifeKey{}) != nil }
