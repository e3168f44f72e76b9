package wire

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/refusals"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// BlobRedirect returns the URL to which the registry redirects a request for the blob of
// the repository. The repository must send its requests through a [Sender]. Until the URL
// expires, anyone who has it can read the blob. The result is "" if the registry serves the
// blob itself, or redirects to its own API, which clients cannot read without a credential.
//
// BlobRedirect returns an error if the URL is neither https nor http on loopback, or if
// the URL contains a credential.
func (c *Connections) BlobRedirect(ctx context.Context, repo *remote.Repository, blob digest.Digest) (string, error) {
	ref := repo.Reference
	ref.Reference = blob.String()
	if err := ref.ValidateReferenceAsDigest(); err != nil {
		return "", err
	}
	ctx = context.WithValue(auth.AppendRepositoryScope(ctx, ref, auth.ActionPull), keepRedirect{}, true)
	address := fmt.Sprintf("%s%s/blobs/%s", apiURL(ref.Host(), repo.PlainHTTP), ref.Repository, blob)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	resp, err := repo.Client.Do(req)
	if err != nil && strings.Contains(err.Error(), "Location header") {
		// The error of net/http quotes the URL, and the query of the URL may give access
		// to the blob.
		return "", fmt.Errorf("%s redirects to an invalid address", ref.Host())
	}
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusOK:
		return "", nil
	case resp.Header.Get("Location") == "" || resp.StatusCode/100 != 3:
		return "", refusals.Read(resp)
	}
	return c.checkRedirect(resp)
}

// checkRedirect returns the target of a redirect, or "" if it is the registry's own API. It
// returns an error if the target must not be passed on to clients. The error shows only the host,
// because the rest of the URL may give access to the blob.
func (c *Connections) checkRedirect(resp *http.Response) (string, error) {
	to, err := resp.Location()
	if err != nil {
		return "", fmt.Errorf("%s redirects to an invalid address", resp.Request.URL.Host)
	}
	from := resp.Request.URL
	bearer, _ := strings.CutPrefix(resp.Request.Header.Get("Authorization"), "Bearer ")
	text := to.String()
	// A secret in a path or a query may be percent-encoded in several ways.
	plain, _ := url.PathUnescape(text)
	for _, spelling := range []string{text, plain} {
		if string(c.sent.scrub([]byte(spelling), bearer)) != spelling {
			return "", hint.New(fmt.Sprintf("the registry redirects to an address at %s that holds its credential", to.Host),
				"clients must not have it: switch mirrors_blobs_by_redirect off for this registry")
		}
	}
	switch {
	case to.User != nil:
		return "", fmt.Errorf("the registry redirects to an address at %s with a login in it", to.Host)
	case to.Host == "" || to.Scheme != "https" && !(to.Scheme == "http" && ociaddr.Registry(to.Host).IsLoopback()):
		return "", fmt.Errorf("the registry redirects to %s://%s, which is not https", to.Scheme, to.Host)
	case ociaddr.Registry(to.Host).Canonical() == ociaddr.Registry(from.Host).Canonical() && strings.HasPrefix(to.Path, "/v2/"):
		return "", nil
	}
	return text, nil
}

// keepRedirect is the context key of requests that want the redirect itself, and not the blob.
type keepRedirect struct{}

// maxRedirects is the maximum number of redirects that are followed, as in net/http.
const maxRedirects = 10

// followRedirect is the CheckRedirect function of [http.Client]. It follows redirects as net/http
// does, except for the redirect of a blob if the context has keepRedirect.
func followRedirect(req *http.Request, via []*http.Request) error {
	if last := via[len(via)-1]; last.Context().Value(keepRedirect{}) != nil && blobPath.MatchString(last.URL.Path) {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return hint.New(fmt.Sprintf("stopped after %d redirects", maxRedirects),
			"%s redirects in a circle: check that it is the host name of the registry itself. Behind a proxy that ends TLS, a registry may redirect to https for ever, until the proxy sends it X-Forwarded-Proto", via[0].URL.Host)
	}
	return nil
}
