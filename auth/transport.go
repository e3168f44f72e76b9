package auth

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/internal/document"
	"github.com/ocibridge/ocibridge/internal/outgoing"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// newTransport stacks what every request passes, the outermost last; base is
// what sends it.
func newTransport(base router, sent *sentSecrets) http.RoundTripper {
	opts := base.conns.opts
	var t http.RoundTripper = newRetrier(wholeReader{stallGuard{base, stallTimeout}}, opts.Retry, opts.Log)
	t = clockReader{t}
	t = challengeBound{t}
	t = htmlDetector{t}
	t = foreignDetector{t}
	t = plainHTTPGuard{t, base.conns.plainHTTP}
	t = secretScrubber{t, sent}
	t = tokenLifeReader{t}
	t = redirectRedactor{t}
	t = scopeNarrower{t}
	return newRealmAliases(t)
}

const (
	dialTimeout = 10 * time.Second
	keepAlive   = 30 * time.Second
)

// defaultTransport is [outgoing.Transport] with bounds on how long a registry may keep
// us waiting. There is none on the body, which may take as long as it must.
func defaultTransport() http.RoundTripper {
	t := outgoing.Transport()
	t.DialContext = (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
	t.TLSHandshakeTimeout = 10 * time.Second
	t.ResponseHeaderTimeout = 60 * time.Second
	t.MaxIdleConnsPerHost = 16
	return t
}

// clockReader sets the clocks of requests by the registry's answers.
type clockReader struct{ next http.RoundTripper }

func (t clockReader) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err == nil {
		outgoing.ReadClock(req, resp)
	}
	return resp, err
}

// redirectRedactor keeps queries out of errors: net/http and oras-go quote the address of a
// request that failed. The query of a redirect's target may hold the signature that opens a
// blob to everybody. The query of an upload holds the state of the upload.
type redirectRedactor struct{ next http.RoundTripper }

// RoundTrip sends a copy and blanks the query of the original. A transport should not change
// its caller's request. But http.Client, which follows redirects, and the sender of an upload
// need the original for errors alone: the next part goes where the answer says.
func (t redirectRedactor) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.RawQuery == "" || req.Response == nil && !isUpload(req) {
		return t.next.RoundTrip(req)
	}
	resp, err := t.next.RoundTrip(req.Clone(req.Context()))
	req.URL.RawQuery = ""
	if resp != nil {
		resp.Request = req
	}
	return resp, err
}

// isUpload reports whether the request sends, completes or cancels an upload.
func isUpload(req *http.Request) bool {
	return req.Method != http.MethodPost && strings.Contains(req.URL.Path, "/blobs/uploads/")
}

// PlainHTTPError is a request with a credential that would have crossed a network
// unencrypted. It was not sent.
type PlainHTTPError struct{ Host string }

func (e *PlainHTTPError) Error() string {
	return fmt.Sprintf("refused to send a credential to %s over plain HTTP", e.Host)
}

// plainHTTPGuard is the last word on credentials over plain HTTP: a token server
// may be on another host than the registry that names it.
type plainHTTPGuard struct {
	next  http.RoundTripper
	allow func(host string) bool
}

// RoundTrip implements [http.RoundTripper].
func (t plainHTTPGuard) RoundTrip(req *http.Request) (*http.Response, error) {
	secret := req.Header.Get("Authorization") != "" || isTokenRequest(req)
	if secret && req.URL.Scheme == "http" && !ociaddr.Registry(req.URL.Host).IsLoopback() && !t.allow(req.URL.Host) {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, &PlainHTTPError{req.URL.Host}
	}
	return t.next.RoundTrip(req)
}

// HTMLError is an answer for people where a registry's API was asked: the page
// of a proxy, of a login, or of another service at that address.
type HTMLError struct{ Host string }

func (e *HTMLError) Error() string {
	return fmt.Sprintf("%s answered with HTML, not as an OCI registry", e.Host)
}

// htmlDetector turns a successful answer in HTML to a request of the registry
// API into an [HTMLError]. A blob may be HTML, and its digest is checked. But no page may
// say that there is a blob, to HEAD or to GET of the first byte. The media type alone does
// not decide, as some registries leave a framework's text/html on answers without a body.
type htmlDetector struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t htmlDetector) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil || resp.StatusCode/100 != 2 || !wantsJSON(req) && req.Method != http.MethodHead && req.Header.Get("Range") != outgoing.FirstByte {
		return resp, err
	}
	if mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); mediaType != "text/html" {
		return resp, nil
	}
	if !looksLikeHTML(req, resp) {
		return resp, nil
	}
	_ = resp.Body.Close()
	return nil, &HTMLError{req.URL.Host}
}

var blobPath = regexp.MustCompile(`/blobs/[^/:]+:[^/]+$`)

// wantsJSON reports whether the request, or the one that was redirected to it, is
// one of the registry API for something else than a blob. Following redirects
// matters: a login page is mostly reached by one.
func wantsJSON(req *http.Request) bool {
	path := firstOf(req).URL.Path
	return strings.HasPrefix(path, "/v2/") && !blobPath.MatchString(path)
}

// firstOf returns the request that was redirected to this one, or this one.
func firstOf(req *http.Request) *http.Request {
	for req.Response != nil && req.Response.Request != nil {
		req = req.Response.Request
	}
	return req
}

// maxPeek is how far the first character of a page is looked for.
const maxPeek = 512

// looksLikeHTML reports whether the body begins as a page does. A HEAD has none:
// there a registry's digest tells its answer from a page.
func looksLikeHTML(req *http.Request, resp *http.Response) bool {
	if req.Method == http.MethodHead {
		return resp.Header.Get("Docker-Content-Digest") == ""
	}
	body := bufio.NewReaderSize(resp.Body, maxPeek)
	start, _ := body.Peek(maxPeek)
	resp.Body = struct {
		io.Reader
		io.Closer
	}{body, resp.Body}
	start = bytes.TrimLeft(bytes.TrimPrefix(start, []byte("\xef\xbb\xbf")), " \t\r\n")
	return bytes.HasPrefix(start, []byte("<"))
}

// ForeignError is an answer that no registry sent: a 404 without any of the errors
// that the distribution specification wants in its body, or a list of tags that is
// none.
type ForeignError struct {
	Host   string
	Status int
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("%s answered %d, but not as an OCI registry does", e.Host, e.Status)
}

// foreignDetector turns such answers into errors: what stands before a registry
// that is down often answers in its place, and must not be taken for a registry
// that has nothing.
type foreignDetector struct{ next http.RoundTripper }

const (
	// maxErrorBody is how much of an error's body is read to find out whose it is.
	maxErrorBody = 64 << 10
)

// pageLimits bound one page of tags or repositories. Some registries send all tags of
// a repository on one page, and oras-go reads no more bytes.
var pageLimits = document.Limits{Bytes: 4 << 20, Values: 250_000, Elements: 250_000}

// RoundTrip implements [http.RoundTripper].
func (t foreignDetector) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil || req.Method != http.MethodGet || !wantsJSON(req) {
		return resp, err
	}
	foreign := &ForeignError{resp.Request.URL.Host, resp.StatusCode}
	switch {
	case resp.StatusCode == http.StatusNotFound && referrersPath.MatchString(firstOf(req).URL.Path):
		// A registry without the referrers API answers as it does to any unknown path.
		// The fallback tag is asked for next, and that answer is judged.
		return resp, nil
	case resp.StatusCode == http.StatusOK && isReferrerList(firstOf(req).URL.Path):
		return t.check(resp, referrerLimits.Bytes, func(body []byte) error {
			if err := referrerLimits.Check(body); err != nil {
				return fmt.Errorf("list of referrers: %w", err)
			}
			return nil
		})
	case resp.StatusCode == http.StatusNotFound:
		return t.check(resp, maxErrorBody, func(body []byte) error {
			if len(body) > maxErrorBody {
				return nil // oras-go shows none of it
			}
			var answer struct {
				Errors []struct {
					Code string `json:"code"`
				} `json:"errors"`
			}
			if json.Unmarshal(body, &answer) != nil || len(answer.Errors) == 0 || answer.Errors[0].Code == "" {
				return foreign
			}
			return nil
		})
	case resp.StatusCode == http.StatusOK && isPage(firstOf(req).URL.Path):
		return t.check(resp, pageLimits.Bytes, func(body []byte) error {
			if err := pageLimits.Check(body); err != nil {
				return fmt.Errorf("page of names: %w", err)
			}
			var page struct{ Name, Tags json.RawMessage }
			if strings.HasSuffix(req.URL.Path, "/tags/list") && json.Unmarshal(body, &page) == nil && page.Name == nil && page.Tags == nil {
				return foreign
			}
			return nil // where it does not decode, oras-go says what is wrong with it
		})
	}
	return resp, nil
}

// referrerLimits bound a list of referrers, which oras-go decodes.
var referrerLimits = document.Limits{Bytes: 4 << 20, Values: 100_000, Elements: 10_000}

var (
	referrersPath = regexp.MustCompile(`/referrers/[^/:]+:[^/]+$`)
	// fallbackPath is that of the tag that lists the referrers of a manifest.
	fallbackPath = regexp.MustCompile(`/manifests/[a-z0-9]+-[0-9a-f]{64,}$`)
)

// isReferrerList reports whether a path is that of a list of referrers, in the
// referrers API or under a fallback tag.
func isReferrerList(path string) bool {
	return referrersPath.MatchString(path) || fallbackPath.MatchString(path)
}

// isPage reports whether a path is that of a list of tags or repositories.
func isPage(path string) bool {
	return strings.HasSuffix(path, "/tags/list") || path == "/v2/_catalog"
}

// check reads up to limit bytes of an answer, and one more if there are more. It puts
// them back if judge accepts them.
func (foreignDetector) check(resp *http.Response, limit int64, judge func([]byte) error) (*http.Response, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err == nil {
		err = judge(body)
	}
	if err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), resp.Body), resp.Body}
	return resp, nil
}
