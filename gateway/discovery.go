package gateway

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"

	"github.com/gorilla/mux"
	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/provider"
)

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
// matter. Clients could choose the provider with it, and proxies often put the name of their backend there.
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
// and the host. It has absolute URLs if possible, because Renovate would append a relative one to the registry URL.
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
