package gateway

import (
	"cmp"
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
	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/provider"
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

// references returns a function that makes a reference in a document absolute. The reference is relative to the
// document's path. If the gateway's URL is unknown, the function returns the reference unchanged.
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

// inPlatform reports whether the path leads to a file in a platform's folder, such as linux_amd64. In the path of a
// download document, the folder's name is an operating system alone, which has no underscore.
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

const (
	// RegistryPath is the root of the provider registry protocol for providers with the gateway's own host name.
	RegistryPath = "/v1/providers/"
	// HostsPath is the root of the provider registry protocol for providers of other hosts. The paths of a host begin
	// with HostsPath, the host's name and [RegistryPath].
	HostsPath = "/hosts/"
	// DiscoveryPath is the path of service discovery on a host.
	DiscoveryPath = "/.well-known/terraform.json"
)

// RegistryURL returns the base URL of the provider registry protocol for a mirrored host, for a host block. public is
// the gateway's URL. hostname must be in Punycode, as in the paths that clients request.
func RegistryURL(public, hostname string) string {
	return strings.TrimSuffix(public, "/") + HostsPath + hostname + RegistryPath
}

// announced returns the gateway's URL that service discovery announces, or nil if it is unknown.
func (o *Options) announced() *url.URL { return cmp.Or(o.PublicURL, o.Address) }

// OwnHost returns the host name in the addresses of the gateway's own providers and modules, or "" if there is none.
func (o *Options) OwnHost() string { return ownHost(o.announced()) }

// ownHost returns the host name of the gateway's own providers: the host of its public URL without the port. The
// result is "" if public is nil, or if no provider address can contain the host. The Host header of requests does not
// matter. With this header, clients could choose the provider, and proxies often put the name of their backend into
// the header.
func ownHost(public *url.URL) string {
	if public == nil {
		return ""
	}
	host, err := svchost.ForComparison(svchost.ForDisplay(public.Hostname()))
	if err != nil {
		return ""
	}
	if _, err := provider.AddressFromPath(string(host), "namespace", "type"); err != nil {
		return ""
	}
	return string(host)
}

// Login describes the service login.v1, with which "terraform login" and "tofu login" get a token from an OAuth 2.0
// issuer.
type Login struct {
	Client       string // the client identifier
	Authz, Token string // URLs of the endpoints
	Ports        [2]int // first and last port on the client's localhost; zero allows any port
	Scopes       []string
}

// document returns the service's entry in the discovery document. Clients support only one grant type.
func (l *Login) document() map[string]any {
	out := map[string]any{"client": l.Client, "authz": l.Authz, "token": l.Token, "grant_types": []string{"authz_code"}}
	if l.Ports != [2]int{} {
		out["ports"] = l.Ports
	}
	if len(l.Scopes) > 0 {
		out["scopes"] = l.Scopes
	}
	return out
}

// serveHostDiscovery serves the discovery document of a mirrored host, for clients whose registry URL is [HostsPath]
// and the host. It has absolute URLs if possible, because Renovate would append a relative URL to the registry URL.
func (g *gateway) serveHostDiscovery(w http.ResponseWriter, r *http.Request) {
	_, err := provider.AddressFromURL(mux.Vars(r)["hostname"], "namespace", "type")
	if err != nil || hasEncodedSlash(r) {
		notFound(w, r)
		return
	}
	absolute, err := g.references(w, r)
	if err == nil {
		err = writeJSON(w, r, map[string]string{"providers.v1": absolute(".." + RegistryPath), modulesID: absolute(".." + ModulesPath)})
	}
	if err != nil {
		g.fail(w, r, err)
	}
}

// routeDiscovery adds the routes of service discovery for mirrored hosts, and for the gateway's own host if there is a
// service to announce.
func (g *gateway) routeDiscovery(r *mux.Router) {
	r.HandleFunc(HostsPath+"{hostname}"+DiscoveryPath, g.serveHostDiscovery).Name("discovery")
	services := map[string]any{}
	if at := g.announced(); ownHost(at) != "" {
		// The URL is relative to the requested host, so it works behind a proxy and on any port.
		path := strings.TrimSuffix(at.EscapedPath(), "/")
		services["providers.v1"], services[modulesID] = path+RegistryPath, path+ModulesPath
	}
	if g.Login != nil {
		services["login.v1"] = g.Login.document()
	}
	if len(services) == 0 {
		return
	}
	found, err := newAnswer(services)
	if err != nil {
		panic(err) // cannot happen: a document has only strings and numbers
	}
	r.HandleFunc(DiscoveryPath, func(w http.ResponseWriter, r *http.Request) { found.write(w, r) }).Name("discovery")
}

// routeRegistry adds the routes of the provider and module registry protocols, for mirrored hosts and for the host
// name that the gateway announces.
func (g *gateway) routeRegistry(r *mux.Router) {
	unchanged := func(next http.HandlerFunc) http.HandlerFunc { return next }
	g.routeHost(r, HostsPath+"{hostname}"+RegistryPath, unchanged)
	g.routeModules(r, HostsPath+"{hostname}"+ModulesPath, unchanged)
	host := ownHost(g.announced())
	if host == "" {
		return
	}
	own := func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			mux.Vars(r)["hostname"] = host // as if the path contained it
			next(w, r)
		}
	}
	g.routeHost(r, RegistryPath, own)
	g.routeModules(r, ModulesPath, own)
}

// routeHost adds the routes of one host's providers below a path. It does not use a subrouter, because mux would
// then answer unsupported methods with 404.
func (g *gateway) routeHost(r *mux.Router, path string, wrap func(http.HandlerFunc) http.HandlerFunc) {
	path += "{namespace}/{type}/"
	r.HandleFunc(path+"versions", wrap(g.guarded(g.serveVersions))).Name("versions")
	r.HandleFunc(path+"{version}/download/"+checksumsDir+"/{filename}", wrap(joined(g.guarded(g.serveChecksums)))).Name("checksums")
	r.HandleFunc(path+"{version}/download/{platform}/{filename}", wrap(joined(g.guarded(g.serveArchive)))).MatcherFunc(inPlatform).Name("archive")
	r.HandleFunc(path+"{version}/download/{os}/{arch}", wrap(g.guarded(g.serveDownload))).Name("download")
	r.HandleFunc(path+"{version}", wrap(g.guarded(g.serveAbout))).Name("download")
	r.HandleFunc(path+"{version}/"+checksumsDir+"/{filename}", wrap(g.guarded(g.serveChecksums))).Name("checksums")
	r.HandleFunc(path+"{version}/{platform}/{filename}", wrap(g.guarded(g.serveArchive))).Name("archive")
}
