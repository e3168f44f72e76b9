// Package upload uploads a blob to a repository in one request or in chunks. It can also
// mount the blob from another repository of the same registry.
//
// oras-go's Push can only upload in one request, and cannot cancel an upload. This package represents an upload as a
// [Session], which can be cancelled. A caller can therefore send the bytes of a blob while it is still verifying them.
// No registry stores a blob before it has the last byte.
//
// Invariants: A request with a body is never retried, because only the caller can read the
// bytes again. All requests of a session go to the registry's own host with the same scheme.
// All requests of a session use the credential of its first request.
//
// The error for a registry's refusal is an *[errcode.ErrorResponse]. If the status is 429
// or 503, an [outgoing.LaterError] wraps the ErrorResponse.
package upload

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/base/refusals"
)

// Session is an upload that has begun.
type Session struct {
	client     remote.Client
	repository registry.Reference
	began      *url.URL // the URL of the POST that opened the upload
	location   *url.URL // the URL of the next request
	credential string
	blob       ocispec.Descriptor
	minChunk   int64
}

// Begin starts the upload of a blob. If from is not "", Begin asks the registry to mount
// the blob from the registry's repository of that name. The user's login must be valid for both repositories. If the
// registry mounts the blob, mounted is true and the session is nil.
func Begin(ctx context.Context, repo *remote.Repository, blob ocispec.Descriptor, from string) (s *Session, mounted bool, err error) {
	ctx = auth.AppendRepositoryScope(ctx, repo.Reference, auth.ActionPull, auth.ActionPush)
	at := &url.URL{Scheme: "https", Host: repo.Reference.Host(), Path: "/v2/" + repo.Reference.Repository + "/blobs/uploads/"}
	if from != "" {
		source := repo.Reference
		source.Repository = from
		ctx = auth.AppendRepositoryScope(ctx, source, auth.ActionPull)
		at.RawQuery = url.Values{"mount": {blob.Digest.String()}, "from": {from}}.Encode()
	}
	if repo.PlainHTTP {
		at.Scheme = "http"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), nil)
	if err != nil {
		return nil, false, err
	}
	s = &Session{client: repo.Client, repository: repo.Reference, began: at, location: at, blob: blob}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, false, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusCreated && from != "":
		return nil, true, nil
	case resp.StatusCode != http.StatusAccepted:
		return nil, false, refused(resp)
	}
	if resp.Request != nil {
		s.credential = resp.Request.Header.Get("Authorization")
	}
	// A missing or malformed header means that chunks have no minimum size.
	if n, err := strconv.ParseInt(resp.Header.Get("OCI-Chunk-Min-Length"), 10, 64); err == nil {
		s.minChunk = n
	}
	return s, false, s.moved(resp)
}

// moved sets s.location, the URL of the next request, to the Location in a response. It
// returns an error if that URL is missing, invalid or not on the registry's own host.
func (s *Session) moved(resp *http.Response) error {
	raw := resp.Header.Get("Location")
	ref, err := url.Parse(raw)
	if raw == "" || err != nil {
		return fmt.Errorf("%s does not say where to send a blob to: Location is %.200q", s.began.Host, raw)
	}
	next := s.location.ResolveReference(ref)
	if next.Host+":443" == s.began.Host {
		next.Host = s.began.Host // some registries omit the port
	}
	// The next request sends the credential and the content of the blob to this URL.
	if next.Host != s.began.Host || next.Scheme != s.began.Scheme {
		return fmt.Errorf("%s wants a blob to be sent to %s://%s, which is not the registry", s.began.Host, next.Scheme, next.Host)
	}
	s.location = next
	return nil
}

// Send sends the blob in one request if chunk is 0. Otherwise it sends chunks of at least chunk bytes, or of more bytes
// if the registry requires larger chunks. After the chunks, it sends a request without a body. If Send returns nil, the
// registry has the blob. Send reads as many bytes from body as the blob has. After an error, body may still be read
// until ctx ends.
func (s *Session) Send(ctx context.Context, body io.Reader, chunk int64) error {
	if chunk > 0 {
		chunk = max(chunk, s.minChunk)
		for start := int64(0); start < s.blob.Size; start += chunk {
			n := min(chunk, s.blob.Size-start)
			bytes := fmt.Sprintf("%d-%d", start, start+n-1)
			if err := s.do(ctx, http.MethodPatch, s.location, io.LimitReader(body, n), n, bytes, http.StatusAccepted); err != nil {
				return err
			}
		}
		body = nil
	}
	at := *s.location
	query := at.Query()
	query.Set("digest", s.blob.Digest.String())
	at.RawQuery = query.Encode()
	return s.do(ctx, http.MethodPut, &at, body, s.blob.Size, "", http.StatusCreated)
}

// do sends one request of the upload, and returns an error if the status is not want. If
// body is not nil, the body of the request is size bytes from body.
func (s *Session) do(ctx context.Context, method string, at *url.URL, body io.Reader, size int64, contentRange string, want int) error {
	if body == nil || size == 0 {
		body, size = http.NoBody, 0
	}
	ctx = auth.AppendRepositoryScope(ctx, s.repository, auth.ActionPull, auth.ActionPush) // the scope of a new token, if the token expires
	req, err := http.NewRequestWithContext(ctx, method, at.String(), body)
	if err != nil {
		return err
	}
	req.ContentLength = size
	req.GetBody = nil // net/http sets GetBody for some types of body
	if method != http.MethodDelete {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	if contentRange != "" {
		req.Header.Set("Content-Range", contentRange)
	}
	if s.credential != "" {
		req.Header.Set("Authorization", s.credential)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode != want:
		return refused(resp)
	case method != http.MethodPatch:
		return nil
	}
	_, end, _ := strings.Cut(contentRange, "-")
	if got := resp.Header.Get("Range"); got != "" && !strings.HasSuffix(got, "-"+end) {
		return fmt.Errorf("%s has bytes %.50q of a blob after %s were sent", s.began.Host, got, contentRange)
	}
	return s.moved(resp)
}

// Cancel cancels the upload. After some time, registries also remove unfinished uploads that were not cancelled.
func (s *Session) Cancel(ctx context.Context) error {
	return s.do(ctx, http.MethodDelete, s.location, nil, 0, "", http.StatusNoContent)
}

// refused returns the error for a response with an unexpected status. The error is an
// *[errcode.ErrorResponse]. For status 429 or 503, an *[outgoing.LaterError] wraps it.
func refused(resp *http.Response) error {
	answer := refusals.Read(resp)
	// The error must not show the query, because the query contains the state of the
	// upload.
	answer.URL = &url.URL{Scheme: answer.URL.Scheme, Host: answer.URL.Host, Path: answer.URL.Path}
	if outgoing.IsLater(resp.StatusCode) {
		return outgoing.NewLaterError(resp.Header, answer)
	}
	return answer
}
