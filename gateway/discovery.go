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

// RegistryPath is where the provider registry protocol begins, for providers
// whose address has the gateway's own host name.
const RegistryPath = "/v1/providers/"

// HostsPath is where the same begins for the providers of other hosts: their host
// name follows, and then RegistryPath.
const HostsPath = "/hosts/"

// discoveryPath is where service discovery is, below a host.
const discoveryPath = "/.well-known/terraform.json"

// RegistryURL returns the base URL of the provider registry protocol for a
// mirrored host, given as clients write it into paths: what a host block sends
// the host's providers.v1 to. The gateway's own URL ends in a slash.
func RegistryURL(public, hostname string) string {
	return strings.TrimSuffix(public, "/") + HostsPath + hostname + RegistryPath
}

// announced returns the URL whose host and path service discovery announces; nil for
// none.
func (o *Options) announced() *url.URL { return cmp.Or(o.PublicURL, o.Address) }

// ownHost returns the host name in the addresses of the gateway's own providers:
// that of the URL that clients reach it by, without its port. It is "" if there is
// none, or no address can have it.
//
// The Host header has no say in it: whoever asks could choose by it which
// provider is taken for which, and proxies write their own backend's name there.
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

// Login is the service login.v1, by which terraform login and tofu login get a token
// of an OAuth 2.0 issuer.
type Login struct {
	Client       string // identifier
	Authz, Token string // URLs of the endpoints
	Ports        [2]int // on the client's localhost, first and last; zero: any
	Scopes       []string
}

// document is what service discovery says of it. The one grant type is that which
// clients use for any host.
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

// serveHostDiscovery announces the providers of a mirrored host to clients that are
// given the URL of [HostsPath] and the host as a registry's. Renovate appends a
// relative URL to that one, so this document's is absolute where it can be.
func (g *gateway) serveHostDiscovery(w http.ResponseWriter, r *http.Request) {
	_, err := provider.AddressFromURL(mux.Vars(r)["hostname"], "namespace", "type")
	if err != nil || hasEncodedSlash(r) {
		notFound(w, r)
		return
	}
	absolute, err := g.references(w, r)
	if err != nil {
		g.fail(w, r, err)
		return
	}
	g.writeJSON(w, r, map[string]string{"providers.v1": absolute(".." + RegistryPath)})
}

// routeDiscovery adds service discovery, where there is a service.
func (g *gateway) routeDiscovery(r *mux.Router, o Options) {
	r.HandleFunc(HostsPath+"{hostname}"+discoveryPath, g.serveHostDiscovery)
	services := map[string]any{}
	if at := o.announced(); ownHost(at) != "" {
		// Relative to the host that was asked, so that it is right behind a proxy, and on
		// any port.
		services["providers.v1"] = strings.TrimSuffix(at.EscapedPath(), "/") + RegistryPath
	}
	if o.Login != nil {
		services["login.v1"] = o.Login.document()
	}
	if len(services) == 0 {
		return
	}
	found, err := newAnswer(services)
	if err != nil {
		panic(err) // text and numbers alone
	}
	r.HandleFunc(discoveryPath, func(w http.ResponseWriter, r *http.Request) { found.write(w, r) })
}

// routeRegistry adds the routes of the provider registry protocol. Own providers
// have none where public names no host.
func (g *gateway) routeRegistry(r *mux.Router, public *url.URL) {
	g.routeHost(r, HostsPath+"{hostname}"+RegistryPath, func(next http.HandlerFunc) http.HandlerFunc { return next })
	host := ownHost(public)
	if host == "" {
		return
	}
	g.routeHost(r, RegistryPath, func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			mux.Vars(r)["hostname"] = host // as if the path had it
			next(w, r)
		}
	})
}

// routeHost adds the routes for one host's providers below a path. They are no
// subrouter, in which mux answers 404 to other methods.
func (g *gateway) routeHost(r *mux.Router, path string, wrap func(http.HandlerFunc) http.HandlerFunc) {
	path += "{namespace}/{type}/"
	r.HandleFunc(path+"versions", wrap(g.guarded(g.serveVersions)))
	r.HandleFunc(path+"{version}/download/"+checksumsDir+"/{filename}", wrap(joined(g.guarded(g.serveChecksums))))
	r.HandleFunc(path+"{version}/download/{platform}/{filename}", wrap(joined(g.guarded(g.serveArchive)))).MatcherFunc(inPlatform)
	r.HandleFunc(path+"{version}/download/{os}/{arch}", wrap(g.guarded(g.serveDownload)))
	r.HandleFunc(path+"{version}", wrap(g.guarded(g.serveAbout)))
	r.HandleFunc(path+"{version}/"+checksumsDir+"/{filename}", wrap(g.guarded(g.serveChecksums)))
	r.HandleFunc(path+"{version}/{platform}/{filename}", wrap(g.guarded(g.serveArchive)))
}
