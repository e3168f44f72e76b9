package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/gorilla/mux"
)

// errNoHost means that a document needs the gateway's URL, but the request's Host header is not a valid host.
var errNoHost = errors.New("the Host header names no host")

// base returns the gateway's URL for clients: the public URL, or else an https URL with the request's Host if
// the request came over TLS. Otherwise it returns nil: a proxy terminates TLS, and the Host may be a name that
// only the proxy uses for this gateway.
//
// Anyone can send any Host. So an answer that contains the Host has Vary: Host, and the gateway does not cache
// it.
func (g *gateway) base(w http.ResponseWriter, r *http.Request) (*url.URL, error) {
	switch {
	case g.PublicURL != nil:
		return g.PublicURL, nil
	case r.TLS == nil:
		return nil, nil
	}
	w.Header().Add("Vary", "Host")
	if !ValidHost(r.Host) {
		return nil, fmt.Errorf("%w: %.80q", errNoHost, r.Host)
	}
	return &url.URL{Scheme: "https", Host: strings.ToLower(r.Host), Path: "/"}, nil
}

// references returns a function that makes a document's references absolute. A reference is relative to the
// document's path; the function returns it unchanged if the gateway's URL is unknown.
func (g *gateway) references(w http.ResponseWriter, r *http.Request) (func(ref string) string, error) {
	base, err := g.base(w, r)
	if err != nil {
		return nil, err
	}
	if base == nil {
		return func(ref string) string { return ref }, nil
	}
	document := base.JoinPath(r.URL.EscapedPath())
	return func(ref string) string {
		return document.ResolveReference(&url.URL{Path: ref}).String()
	}, nil
}

// inPlatform reports whether a path is that of a file in a platform's folder. A platform's name has an
// underscore; the name of an operating system has none.
func inPlatform(r *http.Request, _ *mux.RouteMatch) bool {
	return strings.Contains(path.Base(path.Dir(r.URL.Path)), "_")
}

// joined serves VERSION/DIR/FILE at VERSION/download/DIR/FILE, too. Terragrunt's provider cache server
// requests the latter, because it appends a relative URL to the document's path as if that were a folder.
// joined rewrites the path before access is checked, because a capability is valid only for VERSION/DIR/FILE.
func joined(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if hasEncodedSlash(r) {
			notFound(w, r)
			return
		}
		parts := strings.Split(r.URL.Path, "/")
		u := *r.URL
		u.Path, u.RawPath = strings.Join(slices.Delete(parts, len(parts)-3, len(parts)-2), "/"), ""
		r = r.WithContext(r.Context())
		r.URL = &u
		next(w, r)
	}
}
