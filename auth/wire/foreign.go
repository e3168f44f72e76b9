package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
)

// maxChallenge is the maximum length of a challenge in bytes. Real challenges have a few
// hundred bytes.
const maxChallenge = 4 << 10

// boundChallenge refuses a response whose challenge is longer than maxChallenge, because oras-go
// stores parts of a challenge with each token.
func boundChallenge(req *http.Request, resp *http.Response) error {
	n := len(resp.Header.Get("Www-Authenticate"))
	if resp.StatusCode != http.StatusUnauthorized || n <= maxChallenge {
		return nil
	}
	return hint.New(fmt.Sprintf("%.80s answers with a challenge of %d bytes, and at most %d are read", req.URL.Host, n, maxChallenge),
		"check that this is the host name of a registry: challenges of registries have a few hundred bytes")
}

// ForeignError means that a response does not come from a registry, but from a proxy, a
// login form or another service at the registry's address. Such a response is an HTML page,
// an invalid list of tags, or a 404 without the errors that the distribution specification requires.
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

// refuseHTML returns a [ForeignError] if a successful response of the registry API is an
// HTML page. The content of a blob may be HTML, because its digest is verified. But an HTML
// page in response to a HEAD, or to a GET of the first byte, must not confirm that a blob
// exists. The media type alone proves nothing. Some registries send text/html, which is the
// default of their framework, in responses without a body.
func refuseHTML(req *http.Request, resp *http.Response) error {
	checksBlob := req.Method == http.MethodHead || req.Header.Get("Range") == outgoing.FirstByte
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode/100 == 2 && (wantsJSON(req) || checksBlob) && mediaType == "text/html" && looksLikeHTML(req, resp) {
		return &ForeignError{Host: req.URL.Host, Status: resp.StatusCode, HTML: true}
	}
	return nil
}

// maxPeek is how many bytes are searched for the first character of an HTML page.
const maxPeek = 512

// looksLikeHTML reports whether the body begins like an HTML page. A response to HEAD, which has
// no body, counts as a page if it lacks the header Docker-Content-Digest.
func looksLikeHTML(req *http.Request, resp *http.Response) bool {
	if req.Method == http.MethodHead {
		return resp.Header.Get("Docker-Content-Digest") == ""
	}
	start, _ := peek(resp, maxPeek)
	start = bytes.TrimLeft(bytes.TrimPrefix(start, []byte("\xef\xbb\xbf")), " \t\r\n")
	return bytes.HasPrefix(start, []byte("<"))
}

var (
	// pageLimits are the limits of one page of tags or repositories. They are high because some
	// registries put all tags of a repository on one page. oras-go reads at most 4 MiB of a
	// page.
	pageLimits = document.Limits{Bytes: 4 << 20, Values: 250_000, Elements: 250_000}
	// referrerLimits are the limits of a list of referrers. They are checked before oras-go decodes the list.
	referrerLimits = document.Limits{Bytes: 4 << 20, Values: 100_000, Elements: 10_000}
)

// refuseForeign returns a [ForeignError] if the response does not come from a registry. When a
// registry is down, a proxy in front of the registry often sends a 404. A caller must not conclude
// from such a 404 that the registry lacks the content. refuseForeign also returns an error for
// lists that are too large.
func refuseForeign(req *http.Request, resp *http.Response) error {
	if req.Method != http.MethodGet || !wantsJSON(req) {
		return nil
	}
	foreign := &ForeignError{Host: resp.Request.URL.Host, Status: resp.StatusCode}
	path := firstOf(req).URL.Path
	switch {
	case resp.StatusCode == http.StatusNotFound && referrersPath.MatchString(path):
		// A registry without the referrers API sends the 404 that it sends for any unknown
		// path. oras-go then requests the fallback tag, and refuseForeign checks the
		// response to that request.
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
		// If the page is not valid JSON, oras-go returns an error.
		if strings.HasSuffix(req.URL.Path, "/tags/list") && json.Unmarshal(body, &page) == nil && page.Name == nil && page.Tags == nil {
			return foreign
		}
	}
	return nil
}

// refuseForeign404 returns the given error if the body of the 404 contains no registry error.
func refuseForeign404(resp *http.Response, foreign error) error {
	body, err := peek(resp, maxErrorBody+1)
	if err != nil || len(body) > maxErrorBody { // oras-go does not show such a long body
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

// peekWithin is like [peek], and returns an error if the body exceeds the limits.
func peekWithin(resp *http.Response, l document.Limits) ([]byte, error) {
	body, err := peek(resp, l.Bytes+1)
	if err != nil {
		return nil, err
	}
	return body, l.Check(body)
}
