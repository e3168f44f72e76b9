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

// base returns the gateway's URL for clients: the public URL, or else https and the request's Host if the
// gateway itself speaks TLS. It is nil if a proxy speaks TLS to clients, because the Host may then be the
// proxy's name for this gateway.
//
// Anyone can send any Host, so the answer has Vary: Host, and the gateway does not cache it.
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

// references returns the function that makes a document's references absolute. Its argument is relative to the
// document's path, and is returned unchanged if the gateway's URL is unknown.
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

// inPlatform matches the paths of files in a folder with a platform's name; operating systems have no
// underscore in their names.
func inPlatform(r *http.Request, _ *mux.RouteMatch) bool {
	return strings.Contains(path.Base(path.Dir(r.URL.Path)), "_")
}

// joined answers VERSION/download/DIR/FILE with the file at VERSION/DIR/FILE. Terragrunt's provider cache
// server requests the former, because it joins a relative URL to the document's path as if that were a folder.
// The path changes before access is checked, because a capability is for the right path.
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
