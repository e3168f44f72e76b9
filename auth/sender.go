package auth

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/base/refusals"
)

// sender sends the requests of a binding. It wraps oras-go's client, which answers
// challenges, and adds two features. It renews the token in the middle of an upload, and it
// falls back from an access token to a refresh token. sender repeats a request only if the
// body of the request can be read again.
type sender struct {
	client  *auth.Client
	tokens  *tokenCache
	binding *binding
}

var _ remote.Client = (*sender)(nil)

// Do implements [remote.Client].
func (s *sender) Do(req *http.Request) (*http.Response, error) {
	req = ownScopes(req)
	resp, err := s.send(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusUnauthorized && s.binding.refuseAccessToken(resp) {
		if next, ok := replay(req); ok {
			drain(resp)
			s.tokens.refuse(resp.Request.Header.Get("Authorization"))
			if resp, err = s.send(next); err != nil {
				return nil, err
			}
		}
	}
	if wantsFreshToken(req.Context()) && resp.StatusCode < 300 && resp.Request.Header.Get("Authorization") == "" {
		drain(resp)
		return nil, ErrNotAsked
	}
	s.binding.lacksRight.Store(insufficientScope(resp))
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
func (s *sender) send(req *http.Request) (*http.Response, error) {
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

// do sends a request with a copy of oras-go's client. The copy has the list of blocked
// addresses of the registry's token server. [realmRule] chooses the list when the registry
// asks for a token.
func (s *sender) do(req *http.Request) (*http.Response, error) {
	client := *s.client
	return client.Do(req.WithContext(context.WithValue(req.Context(), blockedRealmsKey{}, &client.BlockedRealmPrefixes)))
}

// replay returns a copy of the request without a credential. It returns false if the body
// of the request cannot be read again.
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
