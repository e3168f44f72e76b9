package auth

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/outgoing"
	"github.com/ocibridge/ocibridge/internal/refusals"
)

// sender sends the requests of a binding: oras-go's client, which answers
// challenges, and what that leaves undone. oras-go finishes an upload with the
// credential that began it, and has no use for a refresh token beside an access
// token. A request is sent again only where its body can be had again.
type sender struct {
	client  *auth.Client
	tokens  *tokenCache
	binding *binding
}

var _ remote.Client = (*sender)(nil)

// maxManifest is the size up to which a manifest is kept in memory until it is
// accepted; artifacts keep theirs below.
const maxManifest = 4 << 20

// errNoCredential: see [Anew].
var errNoCredential = errors.New("the registry answers without a credential, which tells nothing of one")

// Do implements [remote.Client].
func (s *sender) Do(req *http.Request) (*http.Response, error) {
	if err := bufferManifest(req); err != nil {
		return nil, err
	}
	req = ownScopes(req)
	resp, err := s.send(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusUnauthorized && s.binding.refuseAccessToken(resp) {
		if next, ok := replay(req); ok {
			drain(resp)
			s.tokens.forget()
			if resp, err = s.send(next); err != nil {
				return nil, err
			}
		}
	}
	if isAnew(req.Context()) && resp.StatusCode < 300 && resp.Request.Header.Get("Authorization") == "" {
		drain(resp)
		return nil, errNoCredential
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

// askedToWait returns an [outgoing.LaterError] if a registry does not answer a GET or HEAD
// now, and says when it will. oras-go has no place for that time in its own error, which
// the LaterError wraps. Uploads read the header themselves.
func askedToWait(resp *http.Response) error {
	asked := firstOf(resp.Request)
	if asked.Method != http.MethodGet && asked.Method != http.MethodHead ||
		!outgoing.IsLater(resp.StatusCode) || outgoing.RetryAfter(resp.Header, time.Now()) == 0 {
		return nil
	}
	return outgoing.NewLaterError(resp.Header, refusals.Read(resp))
}

// correctLink lets the next page of a list come from where this one came from.
// Artifactory links to another host or path when it is behind a proxy; what
// answers there may be another repository's list, or an empty one. What counts of
// the link is its query, which says where the page begins. A link to another place
// without a query is an error.
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
		return fmt.Errorf("%s links to %.200q, which is no page of it", at.Redacted(), target)
	}
	own := *at
	own.RawQuery = next.RawQuery
	resp.Header.Set("Link", "<"+own.String()+`>; rel="next"`)
	return nil
}

// send sends a request. One that comes with a credential of its own has it
// renewed where that has ended, or once when the registry refuses it.
func (s *sender) send(req *http.Request) (*http.Response, error) {
	given := req.Header.Get("Authorization")
	if given == "" {
		return s.client.Do(req)
	}
	if !s.tokens.usable(given) {
		req = req.Clone(req.Context())
		req.Header.Del("Authorization")
		return s.client.Do(req)
	}
	// A clone, since oras-go adds its headers to what it is given.
	resp, err := s.client.Do(req.Clone(req.Context()))
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	next, ok := replay(req)
	if !ok || insufficientScope(resp) || !s.tokens.refuse(given) {
		return resp, nil
	}
	drain(resp)
	return s.client.Do(next)
}

// replay returns the request to send again, without a credential, if its body
// can be had again.
func replay(req *http.Request) (*http.Request, bool) {
	if req.Body != nil && req.Body != http.NoBody && req.GetBody == nil {
		return nil, false
	}
	next, ok := again(req)
	if ok {
		next.Header.Del("Authorization")
	}
	return next, ok
}

// insufficientScope reports whether a registry says that a token was good, but
// not for this (RFC 6750, section 3.1).
func insufficientScope(resp *http.Response) bool {
	return resp.StatusCode == http.StatusUnauthorized && strings.Contains(resp.Header.Get("Www-Authenticate"), `error="insufficient_scope"`)
}

// bufferManifest lets a manifest be sent again. oras-go does that itself for
// requests that go to its own client directly.
func bufferManifest(req *http.Request) error {
	if req.Method != http.MethodPut || req.GetBody != nil || req.Body == nil || !strings.Contains(req.URL.Path, "/manifests/") ||
		req.ContentLength < 0 || req.ContentLength > maxManifest {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, req.ContentLength+1))
	_ = req.Body.Close()
	if err != nil {
		return fmt.Errorf("read manifest: %w", err)
	}
	if int64(len(body)) != req.ContentLength {
		return fmt.Errorf("read manifest: it has not %d bytes", req.ContentLength)
	}
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	req.Body, err = req.GetBody()
	return err
}
