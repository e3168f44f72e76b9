// Package gateway serves Terraform's and OpenTofu's provider network mirror and provider registry protocols from
// OCI repositories. It turns tag lists into versions and layer digests into zh: hashes, and replays publishers'
// signatures byte for byte.
//
// The gateway has no state except caches. Its most important rule is that it reports something as absent only if
// the registry's list of tags says so. Package catalog queries the registry, and caches its answers. Failures of
// the registry or of an origin become 502, 503 or 504, because clients look elsewhere after a 404. The gateway
// verifies an archive's digest before it sends the last byte.
package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gorilla/mux"
	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/telemetry"
	"github.com/ocibridge/ocibridge/provider"
)

// Store is the gateway's interface to a repository. oras-go's remote.Repository implements it.
type Store = catalog.Store

// Options configure a gateway.
type Options struct {
	// Catalog finds versions. The caller of New closes it.
	Catalog *catalog.Catalog
	// Fetches reports whether a request may cause a fetch from an origin. Other requests are answered from the
	// registry alone. If nil, every request may.
	Fetches func(*http.Request) bool
	// Explain adds a hint for the log to an error of a provider's repository. If nil, errors keep their own
	// hints.
	Explain func(provider.Address, error) error
	// H1 returns the h1: hash of a package, if it was computed from verified bytes. It is called if the
	// package's index has no h1: hash. It may be nil.
	H1 func(digest.Digest) (provider.Hash, bool)
	// PublicURL is the gateway's URL for clients, and the base of absolute URLs in documents. If nil, URLs begin
	// with https and the request's Host if the request came over TLS, and are relative otherwise.
	PublicURL *url.URL
	// Address is the gateway's own idea of its URL, and is used if PublicURL is nil. It never appears in
	// documents of packages.
	//
	// The host name in PublicURL or Address, without a port, belongs to the providers under [RegistryPath];
	// service discovery announces the URL's path. If both are nil, or if no provider address can contain the
	// host, there are no such providers, and nothing is announced.
	Address *url.URL
	// Login says where clients get a token for the gateway. If nil, service discovery does not announce it.
	Login *Login
	// Cache caches packages. If nil, every package is streamed from the registry.
	Cache *archives.Cache
	// Registry answers /v2/, except for the tags of versions that the Catalog denies; it may be nil.
	Registry http.Handler
	// Page is the web page; it may be nil. It does its own access checks, and also receives unknown paths that
	// browsers request.
	Page http.Handler
	// Access decides which clients may read which providers, and who is an operator. Operators may drop a
	// provider's cached metadata (POST /-/refresh?provider=ADDRESS). If nil, everyone may read everything, and
	// there are no operators.
	Access *access.Control
	// Ready serves /readyz to everyone. It may be nil.
	Ready http.Handler
	// Metrics serves /metrics, only to operators if access is controlled. It may be nil.
	Metrics http.Handler
	// Hooks observe requests, and Archives, if not nil, counts requests for packages.
	Hooks    Hooks
	Archives *telemetry.ArchiveCounters
	// Log receives a line for each request, and the reasons of errors. If nil, nothing is logged.
	Log *slog.Logger
}

// MirrorPath is the root of the network mirror, as clients configure it, with its slash.
const MirrorPath = "/providers/"

// limits are the times for which the gateway waits for the registry and for clients.
type limits struct {
	// metadata limits how long a document waits for the registry: clients wait only 10 seconds.
	metadata time.Duration
	// Start applies to each step before an archive begins; clients wait much longer for an archive.
	archives.Limits
}

func defaultLimits() limits {
	return limits{
		metadata: 8 * time.Second,
		Limits:   archives.Limits{Start: 30 * time.Second, RegistryStall: 60 * time.Second, ClientStall: 60 * time.Second, Resumes: 8},
	}
}

type gateway struct {
	Options
	archives *archives.Handler
	limits   limits
	routes   http.Handler
}

// New returns the gateway's handler.
func New(o Options) http.Handler { return newHandler(o, defaultLimits()) }

func newHandler(o Options, l limits) http.Handler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	g := &gateway{
		Options: o, limits: l,
		archives: archives.New(archives.Options{Cache: o.Cache, Counters: o.Archives, Log: o.Log, Limits: l.Limits}),
	}
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

// H1Of returns the h1: hash of a package: the hash in its index, or else a computed hash. It is zero if neither
// is known. If evidence is required, the index's own hash has been removed; see package verify.
func (o *Options) H1Of(p artifact.Package) provider.Hash {
	if p.H1.IsZero() && o.H1 != nil {
		computed, _ := o.H1(p.Digest)
		return computed
	}
	return p.H1
}

// router returns the routes. The hottest routes bypass it; see [gateway.ServeHTTP].
func (g *gateway) router() *mux.Router {
	// Without SkipClean, mux would redirect //, .. and their encodings to another resource. With it, the router
	// accepts nearly any path, so the parsers of package provider check all names in a path.
	r := mux.NewRouter().SkipClean(true)
	r.MethodNotAllowedHandler = g.logged(http.HandlerFunc(methodNotAllowed))
	r.NotFoundHandler = g.logged(http.HandlerFunc(notFound))
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
		r.PathPrefix("/v2/").Handler(g.Access.GuardRegistry(addressOfRepository, boundWrites(g.withoutDenied(g.Registry), g.limits.ClientStall))).Name("registry")
	}
	return r
}

// providerHandler answers a request about a provider, or returns an error without sending an answer.
type providerHandler func(w http.ResponseWriter, r *http.Request, a provider.Address) error

// guarded passes on requests from clients that may read the requested provider. If the handler returns an error,
// guarded answers with it. Every route of a provider goes through guarded.
func (g *gateway) guarded(h providerHandler) http.HandlerFunc {
	return g.Access.Guard(AddressOf, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, err := AddressOf(r)
		if err != nil {
			notFound(w, r)
			return
		}
		if err := h(w, r, a); err != nil {
			g.fail(w, r, err)
		}
	})).ServeHTTP
}

// versionOf reads the version in a request's path.
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
	for _, path := range []string{"/p/", "/assets/"} {
		reads.PathPrefix(path).Handler(page)
	}
	// People open the URL of the network mirror from their configuration.
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
		notFound(w, r)
	}))
}

// asksForHTML reports whether a request comes from a browser. Clients of the protocols do not accept HTML.
func asksForHTML(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/html")
}

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

// AddressOf reads the provider address of a path with the router's variables hostname, namespace and type.
func AddressOf(r *http.Request) (provider.Address, error) {
	if hasEncodedSlash(r) {
		return provider.Address{}, errors.New("encoded slash in a path")
	}
	v := mux.Vars(r)
	return provider.AddressFromURL(v["hostname"], v["namespace"], v["type"])
}

// hasEncodedSlash reports whether a path has an encoded slash: the router treats it as a separator, but the
// client wrote it as part of a name.
func hasEncodedSlash(r *http.Request) bool {
	return strings.Count(r.URL.EscapedPath(), "/") != strings.Count(r.URL.Path, "/")
}

// addressOfRepository returns the provider of a repository in the embedded registry. The repository's name
// consists of the parts of the provider's address.
func addressOfRepository(name string) (provider.Address, error) {
	parts := strings.Split(name, "/")
	if len(parts) != 3 {
		return provider.Address{}, errors.New("no repository of a provider")
	}
	return provider.AddressFromPath(parts[0], parts[1], parts[2])
}
