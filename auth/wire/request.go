package wire

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strings"

	"oras.land/oras-go/v2/registry"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// firstOf returns the original of a redirected request, or the request itself.
func firstOf(req *http.Request) *http.Request {
	for req.Response != nil && req.Response.Request != nil {
		req = req.Response.Request
	}
	return req
}

var blobPath = regexp.MustCompile(`/blobs/[^/:]+:[^/]+$`)

// wantsJSON reports whether the request is for the registry API but not for a blob. It looks at the
// original of a redirected request, because registries redirect to login pages.
func wantsJSON(req *http.Request) bool {
	path := firstOf(req).URL.Path
	return strings.HasPrefix(path, "/v2/") && !blobPath.MatchString(path)
}

var (
	referrersPath = regexp.MustCompile(`/referrers/[^/:]+:[^/]+$`)
	// fallbackPath matches the path of a fallback tag. The index under this tag lists the
	// referrers of a manifest.
	fallbackPath = regexp.MustCompile(`/manifests/[a-z0-9]+-[0-9a-f]{64,}$`)
)

// isReferrerList reports whether the path is the URL path of a list of referrers: in the
// referrers API, or under a fallback tag.
func isReferrerList(path string) bool {
	return referrersPath.MatchString(path) || fallbackPath.MatchString(path)
}

// isPage reports whether the path is the URL path of a list of tags or repositories.
func isPage(path string) bool { return strings.HasSuffix(path, "/tags/list") || path == "/v2/_catalog" }

// maxErrorBody is how many bytes of an error response are read, to decide whether a registry sent
// it, and to show it.
const maxErrorBody = 64 << 10

// isTokenRequest reports whether the request is a POST that exchanges a refresh token or
// password for an access token.
func isTokenRequest(req *http.Request) bool {
	return req.Method == http.MethodPost && req.Header.Get("Content-Type") == "application/x-www-form-urlencoded"
}

// maxDrain is the maximum number of bytes that are read from a discarded response. A connection can
// be reused only if the response was read to its end.
const maxDrain = 64 << 10

func drain(resp *http.Response) {
	if resp != nil {
		_, _ = io.CopyN(io.Discard, resp.Body, maxDrain)
		_ = resp.Body.Close()
	}
}

// isUpload reports whether the request sends data to an upload, or completes or cancels an upload.
func isUpload(req *http.Request) bool {
	return req.Method != http.MethodPost && strings.Contains(req.URL.Path, "/blobs/uploads/")
}

// peek returns the first n bytes of the response's body, or the whole body if the body is
// shorter. resp.Body can still be read from its start.
func peek(resp *http.Response, n int64) ([]byte, error) {
	start, err := io.ReadAll(io.LimitReader(resp.Body, n))
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(start), resp.Body), resp.Body}
	return start, err
}

// tracedPath returns the path of a request for traces and logs. It omits the path of a redirected
// request, because storage may put a signature into it.
func tracedPath(req *http.Request) string {
	if req.Response != nil {
		return "redirected"
	}
	return req.URL.Path
}

// apiURL returns the URL of the root of a registry's API. The URL ends with a slash.
func apiURL(host string, plainHTTP bool) string {
	if plainHTTP {
		return "http://" + host + "/v2/"
	}
	return "https://" + host + "/v2/"
}

// HostOf returns the HOST or HOST:PORT that serves the registry. The host of Docker Hub
// differs from its name.
func HostOf(r ociaddr.Registry) string { return registry.Reference{Registry: string(r)}.Host() }
