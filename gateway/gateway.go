// Package gateway serves Terraform's and OpenTofu's provider network mirror, provider registry and module registry
// protocols from OCI repositories. It turns lists of tags into lists of versions, and layer digests into zh: hashes.
// It replays publishers' signatures byte for byte.
//
// Only ocibridge itself imports this package: it can change at any time.
//
// The gateway has no state except caches. It reports something as absent only if the registry's list of tags says so.
// Failures of the registry or of an origin become 502, 503 or 504, because clients look elsewhere after a 404. The
// gateway verifies an archive's digest before it sends the last byte.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gorilla/mux"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/singleflight"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/gateway/lastuse"
	"github.com/ocibridge/ocibridge/gateway/manuals"
	"github.com/ocibridge/ocibridge/internal/base/respond"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// Options configure a gateway.
type Options struct {
	// Catalog finds versions. The caller of [New] must close the catalog.
	Catalog *catalog.Catalog
	// Fetches reports whether a request may cause a fetch from an origin. Other requests see only the versions
	// in the registry. If nil, every request may cause a fetch.
	Fetches func(*http.Request) bool
	// Explain adds a hint to an error that comes from the repository of a provider or a module. The hint is for the
	// log. Explain may be nil.
	Explain func(subject.Address, error) error
	// ModuleOrigin returns the URL of the module registry protocol at a module's origin, to which clients are
	// redirected if the registry lacks a module or a version. The URL is nil if the module does not fall through to
	// its origin. If ModuleOrigin is nil, no module falls through.
	ModuleOrigin func(context.Context, module.Address) (*url.URL, error)
	// ModuleRepository returns the repository from which clients download a module themselves, by oci://. They
	// download it from the gateway if ok is false, or if ModuleRepository is nil.
	ModuleRepository func(module.Address) (repo ociaddr.Repository, ok bool)
	// H1 returns the h1: hash of the package with the given digest, computed from verified bytes, if there is one. The
	// gateway calls it only for packages without an h1: hash in their index. It may be nil.
	H1 func(digest.Digest) (provider.Hash, bool)
	// Keyless means that the registry protocol also serves providers for which registry.opentofu.org has no key, as
	// long as no signed version of the provider is stored. OpenTofu installs these providers.
	Keyless bool
	// PublicURL is the gateway's URL for clients, and the base of absolute URLs in documents. If nil, the URLs in the
	// response to a request over TLS begin with https and the request's Host, and the URLs in other responses are
	// relative.
	PublicURL *url.URL
	// Address is the URL that the gateway assumes for itself if PublicURL is nil. It never appears in documents
	// about packages.
	//
	// The providers under [RegistryPath] have the host name of PublicURL or Address, without the port. Service
	// discovery announces the path of that URL. There are no such providers if both URLs are nil, or if no provider
	// address can contain the host name.
	Address *url.URL
	// Login says where clients get a token for the gateway. If nil, service discovery does not announce it.
	Login *Login
	// Used is called after a package of a provider's version, or the zip of a module's version, was sent to a client. It must return at once. It may be nil.
	Used func(subject.Address, provider.Version)
	// LastUses remembers when versions were last used, for the page. It may be nil.
	LastUses *lastuse.Times
	// Cache caches packages. If nil, every package is streamed from the registry.
	Cache *archives.Cache
	// Manuals reads what modules say about themselves. If nil, the gateway does not serve the details of modules. The caller
	// of [New] must close the reader.
	Manuals *manuals.Reader
	// Changed returns when a version was last pushed or, for the zero version, when the list of versions last changed. It
	// returns the zero time if the registry does not say. It sends no request. If nil, the registry never says.
	Changed func(subject.Address, provider.Version) time.Time
	// Registry serves /v2/. The gateway hides the tags of versions that Catalog denies. Registry may be nil.
	Registry http.Handler
	// Page is the web page, which checks access itself, and serves unknown paths that browsers request. It may be nil.
	Page http.Handler
	// Access decides which clients may read which providers and modules, and who is an operator. Operators may drop the
	// cached metadata of a provider or module (POST /-/refresh?provider=ADDRESS or ?module=ADDRESS). If nil, everyone
	// may read everything, and there are no operators.
	Access *access.Control
	// Ready serves /readyz to everyone. It may be nil.
	Ready http.Handler
	// Metrics serves /metrics. If access is controlled, only operators can read it. Metrics may be nil.
	Metrics http.Handler
	// Hooks observe requests. Archives counts requests for packages, and may be nil.
	Hooks    Hooks
	Archives *telemetry.ArchiveCounters
	// Log receives a line for each request, and the reasons of errors. If nil, nothing is logged.
	Log *slog.Logger
}

// MirrorPath is the path of the network mirror in the configuration of clients. It ends in a slash.
const MirrorPath = "/providers/"

// limits are the times for which the gateway waits for the registry and for clients.
type limits struct {
	metadata        time.Duration // how long a request for a document waits; clients wait only 10 seconds
	module          time.Duration // how long a request for the zip of a module waits until the version is stored; the server ends a response after 5 min
	archives.Limits               // Start limits each step before an archive is sent; clients wait much longer for archives
}

func defaultLimits() limits {
	return limits{
		metadata: 8 * time.Second,
		module:   4 * time.Minute,
		Limits:   archives.Limits{Start: 30 * time.Second, RegistryStall: 60 * time.Second, ClientStall: 60 * time.Second, Resumes: 8},
	}
}

type gateway struct {
	Options
	archives  *archives.Handler
	limits    limits
	lists     singleflight.Group // the lists of versions that are being made
	documents respond.Documents
	routes    http.Handler

	wrongMirrors wrongMirrors
}

// New returns the gateway's handler.
func New(o Options) http.Handler { return newHandler(o, defaultLimits()) }

func newHandler(o Options, l limits) http.Handler {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	g := &gateway{Options: o, limits: l, archives: archives.New(archives.Options{Cache: o.Cache, Counters: o.Archives, Log: o.Log, Limits: l.Limits}), wrongMirrors: newWrongMirrors()}
	g.routes = g.Access.Handler(g.router())
	return g
}

// MayFetch reports whether a request may cause a fetch from an origin.
func (o *Options) MayFetch(r *http.Request) bool { return o.Fetches == nil || o.Fetches(r) }

// View returns the part of the catalog that a request may read.
func (o *Options) View(r *http.Request) catalog.View {
	if o.MayFetch(r) {
		return o.Catalog.Union()
	}
	return o.Catalog.Registry()
}

// H1Of returns the h1: hash of a package from its index, or else a computed one, if either is known. If evidence is
// required, package verify has already removed the hash in the index.
func (o *Options) H1Of(p artifact.Package) provider.Hash {
	if p.H1.IsZero() && o.H1 != nil {
		computed, _ := o.H1(p.Digest)
		return computed
	}
	return p.H1
}

// router returns the routes. The hottest routes bypass it; see [gateway.ServeHTTP].
func (g *gateway) router() *mux.Router {
	// Without SkipClean, mux would redirect a path with //, .. or an encoding of them to another resource. With it, the
	// router accepts nearly any path, so the parsers of package provider check all names in a path.
	r := mux.NewRouter().SkipClean(true)
	r.MethodNotAllowedHandler = g.logged(http.HandlerFunc(methodNotAllowed))
	r.NotFoundHandler = g.logged(http.HandlerFunc(g.unknown))
	r.Use(g.logged)
	reads := r.Methods(http.MethodGet, http.MethodHead).Subrouter()
	g.routeHealth(reads)
	const address = MirrorPath + "{hostname}/{namespace}/{type}/"
	reads.HandleFunc(address+"index.json", g.guarded(g.serveIndex)).Name(routeIndex)
	reads.HandleFunc(address+"{version}.json", g.guarded(g.serveVersion)).Name(routeVersion)
	reads.HandleFunc(address+"{version}/{platform}/{filename}", g.guarded(g.serveArchive)).Name("archive")
	g.routeDiscovery(reads)
	g.routeRegistry(reads)
	g.addPage(r, reads)
	if g.Access != nil {
		r.Handle("/-/refresh", g.Access.GuardOperator(http.HandlerFunc(g.serveRefresh))).Name("operator")
	}
	if g.Registry != nil {
		r.PathPrefix("/v2/").Handler(g.Access.GuardRegistry(subjectOfRepository, boundBlobs(noted(g.withoutDenied(g.Registry)), g.limits.ClientStall))).Name("registry")
	}
	return r
}

// handler either answers a request about a provider or a module, or returns an error and sends nothing.
type handler[A any] func(w http.ResponseWriter, r *http.Request, a A) error

// guarded passes a request to h if the client may read the requested provider. Every route of a provider goes through
// guarded, and every route of a module through guardedModule.
func (g *gateway) guarded(h handler[provider.Address]) http.HandlerFunc {
	return guard(g, AddressOf, h)
}

func (g *gateway) guardedModule(h handler[module.Address]) http.HandlerFunc {
	return guard(g, ModuleOf, h)
}

// guard passes a request and its address to h. It answers with the error of h, or with 404 if the path has no valid
// address.
func guard[A subject.Address](g *gateway, addressOf func(*http.Request) (A, error), h handler[A]) http.HandlerFunc {
	return access.Guard(g.Access, addressOf, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, err := addressOf(r)
		if err != nil {
			notFound(w, r)
			return
		}
		if err := h(w, r, a); err != nil {
			g.fail(w, r, err)
		}
	})).ServeHTTP
}

// versionOf parses the version in a request's path.
func versionOf(r *http.Request) (provider.Version, error) {
	v, err := provider.ParseVersion(mux.Vars(r)["version"])
	if err != nil {
		return v, fmt.Errorf("%w: %v", catalog.ErrAbsent, err)
	}
	return v, nil
}

// addPage adds the routes of the web page.
func (g *gateway) addPage(r, reads *mux.Router) {
	page := g.Page
	if page == nil {
		return
	}
	for _, path := range []string{"/", "/search", "/sign-in"} {
		reads.Handle(path, page)
	}
	for _, path := range []string{"/p/", "/m/", "/assets/"} {
		reads.PathPrefix(path).Handler(page)
	}
	// Users may open the URL of the network mirror in a browser. They are redirected to the page.
	reads.Path(MirrorPath).MatcherFunc(func(r *http.Request, _ *mux.RouteMatch) bool { return asksForHTML(r) }).HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h.Set("Location", "../") // a relative URL works behind any proxy
			h.Set("Vary", "Accept")
			w.WriteHeader(http.StatusSeeOther)
		})
	r.NotFoundHandler = g.logged(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asksForHTML(r) {
			page.ServeHTTP(w, r)
			return
		}
		g.unknown(w, r)
	}))
}

// asksForHTML reports whether a request comes from a browser. Clients of the protocols do not accept HTML.
func asksForHTML(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

// routeHealth adds the routes for monitoring.
func (g *gateway) routeHealth(r *mux.Router) {
	r.HandleFunc("/healthz", Healthz).Name(routeHealth)
	if g.Ready != nil {
		r.Handle("/readyz", g.Ready).Name(routeHealth)
	}
	if g.Metrics != nil {
		r.Handle("/metrics", g.Access.GuardOperator(g.Metrics)).Name(routeHealth)
	}
}

// Healthz answers that the process is alive.
func Healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Write([]byte("ok\n"))
}

func notFound(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "not found", http.StatusNotFound)
}

func methodNotAllowed(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Allow", "GET, HEAD")
	http.Error(w, "only GET and HEAD are allowed here", http.StatusMethodNotAllowed)
}

// AddressOf returns the provider address in the path of a route with the variables hostname, namespace and type.
func AddressOf(r *http.Request) (provider.Address, error) {
	if hasEncodedSlash(r) {
		return provider.Address{}, errors.New("encoded slash in a path")
	}
	v := mux.Vars(r)
	return provider.AddressFromURL(v["hostname"], v["namespace"], v["type"])
}

// hasEncodedSlash reports whether a path has an encoded slash. The client means it as a part of a name, but the router
// takes it for a separator.
func hasEncodedSlash(r *http.Request) bool {
	return strings.Count(r.URL.EscapedPath(), "/") != strings.Count(r.URL.Path, "/")
}

// serveRefresh drops the cached answers about a provider or a module, for an operator.
func (g *gateway) serveRefresh(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		http.Error(w, "only POST is allowed here", http.StatusMethodNotAllowed)
		return
	}
	var of subject.Address
	p, err := provider.ParseAddress(r.URL.Query().Get("provider"))
	m, merr := module.ParseAddress(r.URL.Query().Get("module"))
	switch {
	case err == nil:
		of = p
	case merr == nil:
		of = m
	default:
		http.Error(w, "name the provider, ?provider=HOSTNAME/NAMESPACE/TYPE, or the module, ?module=HOSTNAME/NAMESPACE/NAME/SYSTEM", http.StatusBadRequest)
		return
	}
	n := g.Catalog.Refresh(of)
	g.Log.InfoContext(r.Context(), "cached metadata dropped", subject.Attr(of), "entries", n)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "dropped the cached answers about %s (%d) in this replica alone; other replicas keep theirs: send the request to each one\n", of, n)
}
