package origin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"oras.land/oras-go/v2/registry/remote/retry"

	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/neterr"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
)

const (
	maxDocumentBytes = 1 << 20          // the maximum size in bytes of SHA256SUMS, and of its signature
	metadataTimeout  = 60 * time.Second // for JSON or a small document, with retries and reading the response
	maxRedirects     = 10               // the maximum number of redirects that a request follows
	maxTextLen       = 500              // the maximum number of characters of an origin's text in a message
)

// client sends the requests of a [Registry]. A package refers to a client and not to a
// Registry, because callers keep packages for a long time, and a Registry would keep its
// discovery documents in memory.
type client struct {
	http      *http.Client
	downloads *http.Client
	userAgent string
	via       string
}

// newHTTPClient returns a client for requests to origins. It drops the credentials of a request
// that is redirected to another host or scheme. net/http alone would still send them to
// subdomains.
func newHTTPClient(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport: &retry.Transport{Base: transport, Policy: func() retry.Policy { return retryPolicy{} }},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			first := via[0].URL
			if len(via) >= maxRedirects {
				return hint.New(fmt.Sprintf("more than %d redirects", maxRedirects), "%s redirects in a circle: %s", first.Host, redirectHelp)
			}
			if req.URL.Scheme != "https" && req.URL.Scheme != "http" {
				return hint.New(fmt.Sprintf("redirected to %.200s", redactedURL(req.URL)), "packages and their metadata are fetched only over https or http: ask the operator of the origin")
			}
			if n := len(req.URL.String()); n > maxURL {
				return hint.New(fmt.Sprintf("redirected to a URL of %d bytes, more than %d", n, maxURL), "ask the operator of the origin")
			}
			if req.URL.Host != first.Host || req.URL.Scheme != first.Scheme {
				req.Header.Del("Authorization")
			}
			return checkLocalReference(first, req.URL)
		},
	}
}

const redirectHelp = "check the address, and ask the operator of the server. Behind a proxy that ends TLS, a server may redirect to https for ever, until the proxy sends it X-Forwarded-Proto"

// statusError means that an origin sent a response with an unexpected status.
type statusError struct {
	url    string
	status int
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s answered %d %s", e.url, e.status, http.StatusText(e.status))
}

// unauthorized reports whether the server requires credentials, or refuses those of the request.
func (e *statusError) unauthorized() bool {
	return e.status == http.StatusUnauthorized || e.status == http.StatusForbidden
}

// forDownloads returns a transport that opens a connection for each package, with large buffers.
// Over HTTP/2, all packages would share one connection and its flow control window.
func forDownloads(transport http.RoundTripper) http.RoundTripper {
	t, ok := transport.(*http.Transport)
	if !ok {
		return transport
	}
	t = t.Clone()
	t.Protocols = &http.Protocols{}
	t.Protocols.SetHTTP1(true)
	if t.TLSClientConfig != nil {
		t.TLSClientConfig.NextProtos = nil // the first use of a transport adds h2 here
	}
	t.TLSNextProto = nil
	t.ReadBufferSize = 64 << 10
	return t
}

// size requests the size of a file and returns it in bytes, or -1 if the origin does not
// announce it. A later download can reuse the connection of this request.
func (c *client) size(ctx context.Context, u *url.URL) int64 {
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	resp, err := c.ask(ctx, c.downloads, http.MethodHead, u, nil)
	if err != nil {
		return -1
	}
	resp.Body.Close()
	return resp.ContentLength
}

// ask sends a request and returns the response if its status is 200, or 206 for a request with
// a Range header. Any other status is an error that wraps a *statusError, in an
// [outgoing.LaterError] for 429 and 503. The caller must close the body.
func (c *client) ask(ctx context.Context, over *http.Client, method string, u *url.URL, prepare func(*http.Request)) (*http.Response, error) {
	return c.askFor(ctx, over, method, u, prepare, http.StatusOK)
}

// askFor is like ask, but accepts the given statuses in place of 200.
func (c *client) askFor(ctx context.Context, over *http.Client, method string, u *url.URL, prepare func(*http.Request), accept ...int) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, err
	}
	if c.userAgent != "" {
		req.Header.Set("User-Agent", c.userAgent)
	}
	if c.via != "" {
		req.Header.Set("Via", c.via)
	}
	if prepare != nil {
		prepare(req)
	}
	resp, err := over.Do(req)
	if err != nil {
		return nil, explainTransport(err)
	}
	if !slices.Contains(accept, resp.StatusCode) && (resp.StatusCode != http.StatusPartialContent || req.Header.Get("Range") == "") {
		resp.Body.Close()
		status := &statusError{redactedURL(resp.Request.URL), resp.StatusCode}
		switch {
		case outgoing.IsLater(resp.StatusCode):
			return nil, outgoing.NewLaterError(resp.Header, status)
		case resp.StatusCode == http.StatusProxyAuthRequired && resp.Request.URL.Scheme == "http":
			return nil, hint.Wrap(status, "%s", outgoing.ProxyLoginHint(resp.Request.URL))
		}
		return nil, status
	}
	return resp, nil
}

// answered describes the response that contained a document.
type answered struct {
	url         *url.URL // after redirects; the base of relative URLs in the document
	contentType string   // the value of the Content-Type header
	mediaType   string   // without parameters; "" if the header is missing or invalid
}

// getJSON requests JSON, decodes it into out, and calls use with a description of the response.
// It then releases the memory budget that the document took.
func (c *client) getJSON(ctx context.Context, u *url.URL, prepare func(*http.Request), limits document.Limits, out any, use func(answered) error) error {
	var doc *document.Document
	by := answered{url: u}
	err := c.read(ctx, c.http, u, prepare, func(resp *http.Response) (err error) {
		by = answered{url: resp.Request.URL, contentType: resp.Header.Get("Content-Type")}
		by.mediaType, _, _ = mime.ParseMediaType(by.contentType)
		doc, err = document.Read(resp.Body, limits)
		return explainDocument(err)
	})
	if err != nil {
		return err
	}
	defer doc.Close()
	err = doc.Decode(ctx, out)
	switch {
	case err == nil:
		return explainDocument(use(by))
	case errors.Is(err, document.ErrTooLarge), ctx.Err() != nil:
		return fmt.Errorf("%s: %w", redactedURL(by.url), explainDocument(err))
	case by.mediaType == "text/html":
		return hint.New(fmt.Sprintf("%s answered with HTML where JSON was wanted", redactedURL(by.url)),
			"is there a proxy or a login page in between, or is this no registry of providers or modules?")
	}
	return hint.Wrap(fmt.Errorf("%s: the answer is not the JSON that the protocol wants: %w", redactedURL(by.url), err),
		"the registry does not keep to the registry protocol, or a proxy has changed its answer")
}

// explainDocument adds a hint to an error about a document that exceeds its limits.
func explainDocument(err error) error {
	switch {
	case errors.Is(err, document.ErrTooLarge):
		return hint.Wrap(err, "no document of this kind is so large: ask the operator of the origin")
	case errors.Is(err, document.ErrBusy):
		return hint.Wrap(err, "run it again in a minute")
	}
	return err
}

// getDocument returns the content of a small file. Such files are published next to the packages,
// so it uses the client for downloads, which can then reuse the connection.
func (c *client) getDocument(ctx context.Context, u *url.URL) (data []byte, err error) {
	err = c.read(ctx, c.downloads, u, nil, func(resp *http.Response) (err error) {
		data, err = document.ReadAll(resp.Body, maxDocumentBytes)
		return explainDocument(err)
	})
	return data, err
}

// read sends a request and passes the response to the function take, which reads the body. If the
// connection is lost meanwhile, read sends the request again, and passes the new response to
// take.
func (c *client) read(ctx context.Context, over *http.Client, u *url.URL, prepare func(*http.Request), take func(*http.Response) error) error {
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	for attempt := 0; ; attempt++ {
		resp, err := c.ask(ctx, over, http.MethodGet, u, prepare)
		if err != nil {
			return err
		}
		err = take(resp)
		resp.Body.Close()
		if err == nil {
			return nil
		}
		err = hint.Wrap(fmt.Errorf("%s: %w", redactedURL(resp.Request.URL), err), brokeOff)
		if attempt == losses || !neterr.Lost(err) {
			return err
		}
		select {
		case <-time.After(retry.DefaultBackoff(attempt, nil)):
		case <-ctx.Done():
			return err
		}
	}
}

const brokeOff = "the connection broke off: run it again; if that does not help, is there a proxy in between?"

// redactedURL returns a URL for messages. It omits the user, the password and the query, because
// they may be secrets, as in a presigned URL of object storage. It truncates long URLs.
func redactedURL(u *url.URL) string {
	s := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
	if len(s) > maxTextLen {
		s = s[:maxTextLen] + "..."
	}
	return s
}

// oneLine returns an origin's text as one line of at most maxTextLen characters, without control
// characters.
func oneLine(s string) string {
	s = hint.OneLine(s[:min(len(s), 8*maxTextLen)]) // limits the work for a long text
	if r := []rune(s); len(r) > maxTextLen {
		s = string(r[:maxTextLen]) + "..."
	}
	return strings.Clone(s) // so that callers do not keep the whole document in memory
}

// explainTransport adds the URL and a hint to the error of a request that got no response. A
// *statusError or an [outgoing.LaterError] from service discovery is returned alone, because it
// contains its URL.
func explainTransport(err error) error {
	if later, ok := errors.AsType[*outgoing.LaterError](err); ok {
		return later
	}
	if refused, ok := errors.AsType[*statusError](err); ok {
		return refused
	}
	proxyHelp, host := outgoing.ProxyHint(err), ""
	asked, sent := errors.AsType[*url.Error](err)
	if sent {
		at := "request"
		if u, perr := url.Parse(asked.URL); perr == nil {
			at, host = redactedURL(u), u.Host
		}
		err = fmt.Errorf("%s: %w", at, asked.Err)
	}
	var certificate *tls.CertificateVerificationError
	var op *net.OpError
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case proxyHelp != "":
		return hint.Wrap(err, "%s", proxyHelp)
	case errors.As(err, new(*net.DNSError)):
		return hint.Wrap(err, "the host does not resolve: check its name; if a gateway serves this host, name the gateway in a host block of the CLI configuration")
	case errors.As(err, &certificate):
		return hint.Wrap(err, "%s", certificateHelp(certificate.Err, host))
	case errors.As(err, &op) && op.Op == "dial":
		return hint.Wrap(err, "nothing answers there: check the address, and HTTPS_PROXY if a proxy is needed")
	case sent:
		return hint.Wrap(err, brokeOff)
	}
	return err
}

// certificateHelp returns the hint for an error in verifying the certificate of a host.
func certificateHelp(err error, host string) string {
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, new(x509.HostnameError)):
		return "its certificate is for other hosts: check the address, and the certificate that the server has"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "its certificate is not valid today: have it renewed, and check this machine's clock"
	}
	return "a CA that this machine does not trust signed its certificate: name the CA's PEM file with --ca-file, or in SSL_CERT_FILE. If that names another CA already, such as a gateway's, put both into one file" + outgoing.InspectionHint(host)
}

const (
	maxPerHost    = 16               // the maximum number of concurrent requests to one host, downloads included
	maxRetryAfter = 30 * time.Second // if an origin asks for a longer wait, the request is not repeated
	losses        = 2                // how often a request is repeated because its connection is refused or lost
)

// retryPolicy is the retry policy for origins. It is oras-go's default policy, except that
// a wait is at least as long as the Retry-After header says.
type retryPolicy struct{}

// Retry implements [retry.Policy]. If the connection is refused or lost before the response
// begins, the origin may be restarting, so the request is repeated after a short wait. All
// requests to origins are safe to repeat.
func (retryPolicy) Retry(attempt int, resp *http.Response, err error) (time.Duration, error) {
	if err != nil && neterr.Lost(err) && attempt < losses {
		return retry.DefaultBackoff(attempt, resp), nil
	}
	wait, err := retry.DefaultPolicy.Retry(attempt, resp, err)
	if err != nil || wait < 0 || resp == nil {
		return wait, err
	}
	after := outgoing.RetryAfter(resp.Header, time.Now())
	if after > maxRetryAfter {
		return -1, nil
	}
	wait = max(wait, after)
	if resp.Request != nil {
		// The status of this response says more than the error for an exceeded deadline.
		if deadline, ok := resp.Request.Context().Deadline(); ok && time.Now().Add(wait).After(deadline) {
			return -1, nil
		}
	}
	return wait, nil
}
