package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gorilla/mux"
)

// errNoHost means that a document needs the gateway's URL, but the request's Host header is not a valid host.
var errNoHost = errors.New("the Host header names no host")

// base returns the gateway's URL for clients. This is the public URL if there is one. Otherwise, if the
// request came over TLS, it is an https URL with the request's Host. If the request came without TLS, base
// returns nil. In that case, a proxy terminates TLS, and only the proxy may know the name in the Host header.
//
// Anyone can send any Host. So a response that contains the Host has the header Vary: Host, and the gateway
// does not cache the response.
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

// references returns a function that makes a document's references, relative to its path, absolute. If the gateway's
// URL is unknown, the function returns a reference unchanged.
func (g *gateway) references(w http.ResponseWriter, r *http.Request) (func(ref string) string, error) {
	base, err := g.base(w, r)
	if err != nil {
		return nil, err
	}
	if base == nil {
		return func(ref string) string { return ref }, nil
	}
	document := base.JoinPath(r.URL.EscapedPath())
	return func(ref string) string { return document.ResolveReference(&url.URL{Path: ref}).String() }, nil
}

// inPlatform reports whether the path is that of a file in a platform's folder. In the path of a download document,
// the folder's name is an operating system, which has no underscore.
func inPlatform(r *http.Request, _ *mux.RouteMatch) bool {
	return strings.Contains(path.Base(path.Dir(r.URL.Path)), "_")
}

// joined makes VERSION/download/DIR/FILE another path of the file VERSION/DIR/FILE. Terragrunt's provider
// cache server requests this path, because it treats the path of a document as a folder when it resolves a
// relative URL. joined rewrites the path before next checks access, because a capability is valid only for
// VERSION/DIR/FILE.
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

// hostName matches the names of hosts. Unlike in DNS, underscores are allowed, because names of containers and
// of nginx's upstreams may have them. A final dot marks a fully qualified name.
var hostName = regexp.MustCompile(`^[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?(\.[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?)*\.?$`)

// maxHost is the maximum length of a host with its port, in bytes.
const maxHost = 253 + len(":65535")

// ValidHost reports whether a Host header is a name or an IP address, with or without a port. No other Host may
// appear in a document, or in the configuration that users copy from the page.
func ValidHost(s string) bool {
	u, err := url.Parse("//" + s)
	if err != nil || u.Host != s || len(s) > maxHost {
		return false
	}
	if port := u.Port(); s != u.Hostname() && s != "["+u.Hostname()+"]" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
			return false
		}
	}
	if strings.HasPrefix(s, "[") {
		ip, err := netip.ParseAddr(u.Hostname())
		return err == nil && ip.Is6() && ip.Zone() == ""
	}
	return hostName.MatchString(u.Hostname())
}
