package origin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"time"

	"oras.land/oras-go/v2/registry/remote/retry"

	"github.com/ocibridge/ocibridge/internal/hint"
)

const (
	// maxJSONBytes bounds an answer in JSON; the longest version list of a
	// public provider has some 2 MiB.
	maxJSONBytes = 32 << 20
	// maxDocumentBytes bounds SHA256SUMS and its signature.
	maxDocumentBytes = 1 << 20
	// metadataTimeout is how long an answer in JSON or a small document may take.
	metadataTimeout = 60 * time.Second
	// maxRedirects is how many redirects are followed for one request.
	maxRedirects = 10
)

// newHTTPClient returns the client for everything an origin is asked. It drops
// credentials on a redirect to any other host, where net/http would keep them
// for subdomains.
func newHTTPClient(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport: &retry.Transport{Base: transport},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) >= maxRedirects {
				return fmt.Errorf("more than %d redirects", maxRedirects)
			}
			if first := via[0].URL; req.URL.Host != first.Host || req.URL.Scheme != first.Scheme {
				req.Header.Del("Authorization")
			}
			return nil
		},
	}
}

// statusError is an answer that is not the one asked for.
type statusError struct {
	url    string
	status int
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s answered %d %s", e.url, e.status, http.StatusText(e.status))
}

// get sends a GET and returns the answer if it is a 200; else a *statusError.
// The caller closes the body.
func (r *Registry) get(ctx context.Context, u *url.URL, prepare func(*http.Request)) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	if r.userAgent != "" {
		req.Header.Set("User-Agent", r.userAgent)
	}
	if prepare != nil {
		prepare(req)
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return nil, explainTransport(err)
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, &statusError{resp.Request.URL.Redacted(), resp.StatusCode}
	}
	return resp, nil
}

// getJSON decodes an answer into out and returns the URL it came from, which
// relative URLs in it refer to.
func (r *Registry) getJSON(ctx context.Context, u *url.URL, prepare func(*http.Request), out any) (*url.URL, error) {
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	resp, err := r.get(ctx, u, prepare)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := readAll(resp.Body, maxJSONBytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.Redacted(), err)
	}
	if err := json.Unmarshal(data, out); err != nil {
		if mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); mediaType == "text/html" {
			return nil, hint.New(fmt.Sprintf("%s answered with HTML where JSON was wanted", u.Redacted()),
				"is there a proxy or a login page in between, or is this no provider registry?")
		}
		return nil, fmt.Errorf("%s: the answer is not the JSON that the protocol wants: %w", u.Redacted(), err)
	}
	return resp.Request.URL, nil
}

// getDocument returns a small file.
func (r *Registry) getDocument(ctx context.Context, u *url.URL) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	resp, err := r.get(ctx, u, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := readAll(resp.Body, maxDocumentBytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.Redacted(), err)
	}
	return data, nil
}

// readAll fails where there is more than limit bytes.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("the answer has more than %d bytes", limit)
	}
	return data, nil
}

// explainTransport adds what to do about a request that got no answer.
func explainTransport(err error) error {
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &dns):
		return hint.Wrap(err, "the host is not known here: check its name; where a gateway stands in for it, a host block in the CLI configuration says so")
	case isUntrusted(err):
		return hint.Wrap(err, "its certificate is signed by an authority that this machine does not know: name the authority's file in SSL_CERT_FILE")
	case errors.As(err, &op) && op.Op == "dial":
		return hint.Wrap(err, "nothing answers there: check the address, and HTTPS_PROXY if a proxy is needed")
	}
	return err
}
