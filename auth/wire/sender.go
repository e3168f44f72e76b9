package wire

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/base/refusals"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// Account provides the credential that a [Sender] sends.
type Account interface {
	// Credential returns the credential, or the empty credential if there is none.
	Credential(context.Context) (auth.Credential, error)
	// RefuseAccessToken is called with the Authorization header that the registry refused. It
	// reports whether the account has another credential to try.
	RefuseAccessToken(authorization string) bool
}

// Sender sends requests to one registry with the credential of one account. It wraps
// oras-go's client, which answers challenges, and adds two features. It renews the token in
// the middle of an upload, and it falls back from an access token to a refresh token. Sender
// repeats a request only if the body of the request can be read again.
type Sender struct {
	registry   ociaddr.Registry
	account    Account
	client     *auth.Client
	tokens     *tokenCache
	lacksRight atomic.Bool // the last response said that the scope of the token is insufficient
}

var _ remote.Client = (*Sender)(nil)

// Sender returns a new sender. It has its own token cache, because two repositories of one registry
// may have different accounts, and oras-go caches Basic credentials by registry.
func (c *Connections) Sender(registry ociaddr.Registry, account Account) *Sender {
	s := &Sender{registry: registry, account: account, tokens: newTokenCache(func() time.Time { return c.now() }, c.opts.Log)}
	s.client = &auth.Client{
		Client:   &http.Client{Transport: c.chain(registry), CheckRedirect: followRedirect},
		Cache:    s.tokens,
		ClientID: "ocibridge",
		Credential: func(ctx context.Context, hostport string) (auth.Credential, error) {
			if ociaddr.Registry(hostport).Canonical() != registry.Canonical() {
				return auth.EmptyCredential, nil
			}
			cred, err := account.Credential(ctx)
			c.sent.add(cred)
			return cred, err
		},
		BlockedRealmPrefixes: blockedRealms(nil),
	}
	s.client.SetUserAgent(c.opts.UserAgent)
	return s
}

// LacksRight reports whether the last response said that the scope of the token is insufficient.
func (s *Sender) LacksRight() bool { return s.lacksRight.Load() }

// Accepted reports whether the registry has a token server that accepted the login when it
// issued the last token.
func (s *Sender) Accepted() bool { return s.tokens.accepted.Load() }

// Vouched reports whether the token server, if the registry has one, accepted the login.
func (s *Sender) Vouched() bool {
	byToken := slices.ContainsFunc(s.tokens.tokens.Keys(), func(k tokenKey) bool { return k.scheme == auth.SchemeBearer })
	return !byToken || s.Accepted()
}

// ErrNotAsked means that a request succeeded although the registry did not ask for the credential
// that the request should check.
var ErrNotAsked = errors.New("the registry did not ask for a credential, so the credential is not checked")

func (s *Sender) Do(req *http.Request) (*http.Response, error) {
	req = ownScopes(req)
	resp, err := s.send(req)
	if err != nil {
		return nil, err
	}
	if given := resp.Request.Header.Get("Authorization"); resp.StatusCode == http.StatusUnauthorized && s.account.RefuseAccessToken(given) {
		if next, ok := replay(req); ok {
			drain(resp)
			s.tokens.refuse(given)
			if resp, err = s.send(next); err != nil {
				return nil, err
			}
		}
	}
	if wantsFreshToken(req.Context()) && resp.StatusCode < 300 && resp.Request.Header.Get("Authorization") == "" {
		drain(resp)
		return nil, ErrNotAsked
	}
	s.lacksRight.Store(insufficientScope(resp))
	if err := askedToWait(resp); err != nil {
		drain(resp)
		return nil, err
	}
	if err := correctLink(resp); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// askedToWait returns an [outgoing.LaterError] if a registry refuses a GET or HEAD and says
// when to retry. The LaterError wraps the error that oras-go would return, which has no
// field for the time. askedToWait ignores uploads, because the code for uploads reads the
// header itself.
func askedToWait(resp *http.Response) error {
	asked := firstOf(resp.Request)
	if asked.Method != http.MethodGet && asked.Method != http.MethodHead ||
		!outgoing.IsLater(resp.StatusCode) || outgoing.RetryAfter(resp.Header, time.Now()) == 0 {
		return nil
	}
	return outgoing.NewLaterError(resp.Header, refusals.Read(resp))
}

// correctLink changes the link to the next page of a list so that it has the host and path
// of this page. Behind a proxy, Artifactory links to another host or path. That URL may
// serve an empty list or the list of another repository. correctLink keeps only the query
// of the link, because the query says where the next page begins. It returns an error for a
// link without a query to another host or path.
func correctLink(resp *http.Response) error {
	link := resp.Header.Get("Link")
	at := firstOf(resp.Request).URL
	if link == "" || !isPage(at.Path) {
		return nil
	}
	target, _, _ := strings.Cut(strings.TrimPrefix(link, "<"), ">")
	next, err := resp.Request.URL.Parse(target)
	if err != nil || next.Host == at.Host && next.Path == at.Path && next.Scheme == at.Scheme {
		return nil
	}
	if next.RawQuery == "" {
		return fmt.Errorf("%s links to %.200q, which is not a page of the same list", at.Redacted(), target)
	}
	own := *at
	own.RawQuery = next.RawQuery
	resp.Header.Set("Link", "<"+own.String()+`>; rel="next"`)
	return nil
}

// send sends a request. If the request already has an Authorization header, send replaces
// an expired token in it. If the registry refuses the token, send repeats the request once
// with a new token.
func (s *Sender) send(req *http.Request) (*http.Response, error) {
	given := req.Header.Get("Authorization")
	if given == "" {
		return s.do(req)
	}
	if !s.tokens.usable(given) {
		req = req.Clone(req.Context())
		req.Header.Del("Authorization")
		return s.do(req)
	}
	// The request is cloned because oras-go adds headers to its request.
	resp, err := s.do(req.Clone(req.Context()))
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	next, ok := replay(req)
	if !ok || insufficientScope(resp) || !s.tokens.refuse(given) {
		return resp, nil
	}
	drain(resp)
	return s.do(next)
}

// do sends a request with a copy of oras-go's client, which has its own list of the addresses that
// the token server must not have. [realmRule] chooses the list when the registry asks for a token.
func (s *Sender) do(req *http.Request) (*http.Response, error) {
	client := *s.client
	resp, err := client.Do(req.WithContext(context.WithValue(req.Context(), blockedRealmsKey{}, &client.BlockedRealmPrefixes)))
	if err != nil && strings.Contains(err.Error(), "bearer realm") { // oras-go has no type for this error
		err = hint.Wrap(err, "the token server that %s names is not safe to send a credential to: check the registry's configuration", s.registry)
	}
	return resp, err
}

// replay returns a copy of the request without a credential, or false if the body cannot be read
// again.
func replay(req *http.Request) (*http.Request, bool) {
	if req.Body != nil && req.Body != http.NoBody && req.GetBody == nil {
		return nil, false
	}
	next := req.Clone(req.Context())
	next.Header.Del("Authorization")
	if req.GetBody == nil {
		return next, true
	}
	body, err := req.GetBody()
	next.Body = body
	return next, err == nil
}

// insufficientScope reports whether the response says that the token is valid but its scope
// is insufficient (RFC 6750, section 3.1).
func insufficientScope(resp *http.Response) bool {
	return resp.StatusCode == http.StatusUnauthorized && strings.Contains(resp.Header.Get("Www-Authenticate"), `error="insufficient_scope"`)
}
