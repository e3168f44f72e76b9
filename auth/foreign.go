package auth

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"regexp"
	"strings"

	"github.com/ocibridge/ocibridge/internal/document"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/outgoing"
)

// maxChallenge is the maximum length of a challenge in bytes. Real challenges have a few
// hundred bytes.
const maxChallenge = 4 << 10

// boundChallenge refuses long challenges before they are parsed. oras-go stores parts of
// a challenge with each token, and realmAliases stores its realm.
func boundChallenge(req *http.Request, resp *http.Response) error {
	n := len(resp.Header.Get("Www-Authenticate"))
	if resp.StatusCode != http.StatusUnauthorized || n <= maxChallenge {
		return nil
	}
	return hint.New(fmt.Sprintf("%.80s answers with a challenge of %d bytes, and at most %d are read", req.URL.Host, n, maxChallenge),
		"check that this is the host name of a registry: challenges of registries have a few hundred bytes")
}

// ForeignError means that the answer does not come from a registry, but from a proxy, a
// login form or another service at that address. Such an answer is an HTML page, a 404
// without the errors that the distribution specification requires in the body, or an
// invalid list of tags.
type ForeignError struct {
	Host   string
	Status int
	HTML   bool
}

func (e *ForeignError) Error() string {
	if e.HTML {
		return fmt.Sprintf("%s answered with HTML, not as an OCI registry", e.Host)
	}
	return fmt.Sprintf("%s answered %d, but not as an OCI registry does", e.Host, e.Status)
}

// refuseHTML returns a [ForeignError] if a successful answer of the registry API is an HTML
// page. A blob may be HTML, since its digest is verified. But a page that answers HEAD, or
// a GET of the first byte, must not confirm that a blob exists. The media type alone proves
// nothing: some registries send text/html, the default of their framework, with answers
// that have no body.
func refuseHTML(req *http.Request, resp *http.Response) error {
	checksBlob := req.Method == http.MethodHead || req.Header.Get("Range") == outgoing.FirstByte
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode/100 == 2 && (wantsJSON(req) || checksBlob) && mediaType == "text/html" && looksLikeHTML(req, resp) {
		return &ForeignError{Host: req.URL.Host, Status: resp.StatusCode, HTML: true}
	}
	return nil
}

var blobPath = regexp.MustCompile(`/blobs/[^/:]+:[^/]+$`)

// wantsJSON reports whether the request goes to the registry API and is not for a blob. For
// a redirected request, the original request counts, because a login page is usually
// reached by a redirect.
func wantsJSON(req *http.Request) bool {
	path := firstOf(req).URL.Path
	return strings.HasPrefix(path, "/v2/") && !blobPath.MatchString(path)
}

// firstOf returns the original of a redirected request, or the request itself.
func firstOf(req *http.Request) *http.Request {
	for req.Response != nil && req.Response.Request != nil {
		req = req.Response.Request
	}
	return req
}

// maxPeek is how many bytes are searched for the first character of a page.
const maxPeek = 512

// looksLikeHTML reports whether the body begins like an HTML page. An answer to HEAD has
// no body, and counts as a page if it lacks a registry's digest header.
func looksLikeHTML(req *http.Request, resp *http.Response) bool {
	if req.Method == http.MethodHead {
		return resp.Header.Get("Docker-Content-Digest") == ""
	}
	start, _ := peek(resp, maxPeek)
	start = bytes.TrimLeft(bytes.TrimPrefix(start, []byte("\xef\xbb\xbf")), " \t\r\n")
	return bytes.HasPrefix(start, []byte("<"))
}

// maxErrorBody is the maximum number of bytes of an error's body that are read to decide
// who sent the error.
const maxErrorBody = 64 << 10

var (
	// pageLimits are the limits of one page of tags or repositories. Some registries put
	// all tags of a repository on one page, and oras-go reads at most 4 MiB.
	pageLimits = document.Limits{Bytes: 4 << 20, Values: 250_000, Elements: 250_000}
	// referrerLimits are the limits of a list of referrers, which oras-go decodes.
	referrerLimits = document.Limits{Bytes: 4 << 20, Values: 100_000, Elements: 10_000}
)

// refuseForeign returns a [ForeignError] if the answer does not come from a registry.
// When a registry is down, a proxy in front of it often answers instead. Such an answer
// must not look like a registry without content. It also refuses lists that are too
// large.
func refuseForeign(req *http.Request, resp *http.Response) error {
	if req.Method != http.MethodGet || !wantsJSON(req) {
		return nil
	}
	foreign := &ForeignError{Host: resp.Request.URL.Host, Status: resp.StatusCode}
	path := firstOf(req).URL.Path
	switch {
	case resp.StatusCode == http.StatusNotFound && referrersPath.MatchString(path):
		// A registry without the referrers API answers as it does to any unknown path.
		// oras-go then requests the fallback tag, and that answer is checked.
		return nil
	case resp.StatusCode == http.StatusNotFound:
		return refuseForeign404(resp, foreign)
	case resp.StatusCode == http.StatusOK && isReferrerList(path):
		if _, err := peekWithin(resp, referrerLimits); err != nil {
			return fmt.Errorf("list of referrers: %w", err)
		}
	case resp.StatusCode == http.StatusOK && isPage(path):
		body, err := peekWithin(resp, pageLimits)
		if err != nil {
			return fmt.Errorf("page of names: %w", err)
		}
		var page struct{ Name, Tags json.RawMessage }
		// If the page does not decode, oras-go reports what is wrong with it.
		if strings.HasSuffix(req.URL.Path, "/tags/list") && json.Unmarshal(body, &page) == nil && page.Name == nil && page.Tags == nil {
			return foreign
		}
	}
	return nil
}

// refuseForeign404 returns the error foreign if a 404 contains no registry error.
func refuseForeign404(resp *http.Response, foreign error) error {
	body, err := peek(resp, maxErrorBody+1)
	if err != nil || len(body) > maxErrorBody { // oras-go shows nothing of such a long body
		return err
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
}

// peekWithin returns the body of an answer if it is within the limits. The body can still
// be read from its start.
func peekWithin(resp *http.Response, l document.Limits) ([]byte, error) {
	body, err := peek(resp, l.Bytes+1)
	if err != nil {
		return nil, err
	}
	return body, l.Check(body)
}

var (
	referrersPath = regexp.MustCompile(`/referrers/[^/:]+:[^/]+$`)
	// fallbackPath matches the path of a fallback tag, which lists the referrers of a
	// manifest.
	fallbackPath = regexp.MustCompile(`/manifests/[a-z0-9]+-[0-9a-f]{64,}$`)
)

// isReferrerList reports whether a path leads to a list of referrers, in the referrers API
// or under a fallback tag.
func isReferrerList(path string) bool {
	return referrersPath.MatchString(path) || fallbackPath.MatchString(path)
}

// isPage reports whether a path leads to a list of tags or repositories.
func isPage(path string) bool {
	return strings.HasSuffix(path, "/tags/list") || path == "/v2/_catalog"
}
