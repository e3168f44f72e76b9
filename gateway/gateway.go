// Package gateway serves Terraform's and OpenTofu's provider network mirror and provider registry protocols
// from OCI repositories: it turns tag listings into versions, turns layer digests into zh: hashes, and replays
// publishers' signatures byte for byte.
//
// The gateway keeps no state except caches. Its most important rule: it reports something as absent only if the
// registry says so in its answer to a listing of tags. Package catalog asks the registry, and caches its
// answers. All failures are 502, 503 or 504, because on a 404 clients look elsewhere. The gateway verifies an
// archive's digest before it sends the last byte.
package gateway

import (
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
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

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
	// Catalog finds versions; the caller of New closes it. Nil means a catalog of Repository, in memory and
	// with default times.
	Catalog *catalog.Catalog
	// Repository returns the repository of a provider. An error that wraps [ErrNotServed] means that the
	// provider has none. Nil: no provider is served. It is ignored if there is a Catalog.
	Repository func(context.Context, provider.Address) (Store, error)
	// Check verifies a version that was read: its result replaces the version, and its error refuses the
	// version; see package verify. Nil: all versions are served unchanged. It is ignored if there is a Catalog.
	Check func(context.Context, artifact.Fetcher, provider.Address, provider.Version, *artifact.Version) (*artifact.Version, error)
	// Fetches reports whether a request may cause a fetch from an origin. Other requests are answered from the
	// registry alone. Nil: every request may.
	Fetches func(*http.Request) bool
	// Explain adds a hint for the log to an error of a provider's repository; nil: errors keep their own hints.
	Explain func(provider.Address, error) error
	// H1 returns the h1: hash of a package, if it was computed from verified bytes. It is called for versions
	// without one; it may be nil.
	H1 func(digest.Digest) (provider.Hash, bool)
	// PublicURL is the gateway's URL for clients, and the base of absolute URLs in documents. Nil: URLs begin
	// with https and the request's Host if the request came over TLS, and are relative otherwise.
	PublicURL *url.URL
	// Address is the gateway's URL as far as the gateway itself knows, if PublicURL is nil. It never appears in
	// documents of packages.
	//
	// The host name in PublicURL or Address, without a port, belongs to the providers under [RegistryPath];
	// service discovery announces the URL's path. If both are nil, or if no provider address can contain the
	// host, there are no such providers, and nothing is announced.
	Address *url.URL
	// Login says where clients get a token for the gateway; nil: it is not announced.
	Login *Login
	// Redirect returns the registry's redirect for the blob of a provider's package, or "" if the registry
	// answers itself; nil: clients are not redirected.
	Redirect func(context.Context, provider.Address, ocispec.Descriptor) (string, error)
	// Cache caches packages; nil: every package is streamed from the registry.
	Cache *archives.Cache
	// Registry answers /v2/, except for the tags of versions that the Catalog denies; it may be nil.
	Registry http.Handler
	// Page is the web page; it may be nil. It does its own access checks, and also receives unknown paths that
	// browsers request.
	Page http.Handler
	// Access decides who may read what, and who is an operator. Operators may drop a provider's cached metadata
	// (POST /-/refresh?provider=ADDRESS). Nil: everyone may read everything, and there are no operators.
	Access *access.Control
	// Ready answers /readyz for everyone; it may be nil.
	Ready http.Handler
	// Metrics answers /metrics, only for operators if access is controlled; it may be nil.
	Metrics http.Handler
	// Hooks observe requests, and Archives counts requests for packages; they may be nil.
	Hooks    Hooks
	Archives *telemetry.ArchiveCounters
	// Log receives a line per request, and the reasons of errors; nil: no log.
	Log *slog.Logger
}

// MirrorPath is the root of the network mirror, as clients configure it, with its slash.
const MirrorPath = "/providers/"

// limits bound how long the gateway waits for others.
type limits struct {
	// metadata is the time for the registry to answer requests for JSON: clients wait 10 seconds.
	metadata time.Duration
	// Start is needed at most twice for an archive; clients wait much longer.
	archives.Limits
}

func defaultLimits() limits {
	return limits{
		metadata: 8 * time.Second,
		Limits:   archives.Limits{Start: 30 * time.Second, RegistryStall: 60 * time.Second, ClientStall: 60 * time.Second, Resumes: 8},
	}
}

type gateway struct {
	catalog  *catalog.Catalog
	fetches  func(*http.Request) bool
	access   *access.Control
	public   *url.URL // nil: documents have relative URLs, or the request's Host
	redirect func(context.Context, provider.Address, ocispec.Descriptor) (string, error)
	explain  func(provider.Address, error) error // nil: errors keep their own hints
	archives *archives.Handler
	cache    *archives.Cache // nil: no cache
	h1       func(digest.Digest) (provider.Hash, bool)
	hooks    Hooks
	log      *slog.Logger
	limits   limits
	routes   http.Handler
}

// New returns the gateway's handler.
func New(o Options) http.Handler { return newHandler(o, defaultLimits()) }

func newHandler(o Options, l limits) http.Handler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Catalog == nil {
		c, err := catalog.New(catalog.Options{Repository: o.Repository, Check: o.Check, Timeout: l.metadata, Log: o.Log})
		if err != nil {
			panic(err) // cannot happen: only a catalog on disk fails
		}
		o.Catalog = c
	}
	g := &gateway{
		catalog: o.Catalog, fetches: o.Fetches, access: o.Access, public: o.PublicURL, redirect: o.Redirect, explain: o.Explain, cache: o.Cache, h1: o.H1, hooks: o.Hooks, log: o.Log, limits: l,
		archives: archives.New(archives.Options{Cache: o.Cache, Counters: o.Archives, Log: o.Log, Limits: l.Limits}),
	}
	g.routes = g.access.Handler(g.logged(g.router(o)))
	return g
}

// view returns the catalog as a request may see it.
func (g *gateway) view(r *http.Request) catalog.View {
	if g.fetches != nil && !g.fetches(r) {
		return g.catalog.Registry()
	}
	return g.catalog.Union()
}

// router returns the routes. The hottest routes bypass it; see [gateway.ServeHTTP].
func (g *gateway) router(o Options) *mux.Router {
	// SkipClean: mux would redirect //, .. and their encodings to another resource. The parsers of package
	// provider check all paths, because the router accepts nearly anything.
	r := mux.NewRouter().SkipClean(true)
	r.MethodNotAllowedHandler = http.HandlerFunc(methodNotAllowed)
	r.NotFoundHandler = http.HandlerFunc(notFound)
	r.Use(classify)
	reads := r.Methods(http.MethodGet, http.MethodHead).Subrouter()
	g.routeHealth(reads, o)
	const address = MirrorPath + "{hostname}/{namespace}/{type}/"
	reads.HandleFunc(address+"index.json", g.guarded(g.serveIndex)).Name(routeIndex)
	reads.HandleFunc(address+"{version}.json", g.guarded(g.serveVersion)).Name(routeVersion)
	reads.HandleFunc(address+"{version}/{platform}/{filename}", g.guarded(g.serveArchive)).Name("archive")
	g.routeDiscovery(reads, o)
	g.routeRegistry(reads, o.announced())
	addPage(r, reads, o.Page)
	if o.Access != nil {
		r.Handle("/-/refresh", g.access.GuardOperator(http.HandlerFunc(g.serveRefresh))).Name("operator")
	}
	if o.Registry != nil {
		r.PathPrefix("/v2/").Handler(g.access.GuardRegistry(addressOfRepository, boundWrites(g.withoutDenied(o.Registry), g.limits.ClientStall))).Name("registry")
	}
	return r
}

// providerHandler answers a request about a provider. If it returns an error, it has sent no answer.
type providerHandler func(w http.ResponseWriter, r *http.Request, a provider.Address) error

// guarded passes on requests from clients that may read the requested provider, and answers with the handler's
// error. Every route of a provider goes through it.
func (g *gateway) guarded(h providerHandler) http.HandlerFunc {
	return g.access.Guard(AddressOf, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
func addPage(r, reads *mux.Router, page http.Handler) {
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
			h.Set("Location", "../") // works behind any proxy
			h.Set("Vary", "Accept")
			w.WriteHeader(http.StatusSeeOther)
		})
	r.NotFoundHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asksForHTML(r) {
			page.ServeHTTP(w, r)
			return
		}
		notFound(w, r)
	})
}

// asksForHTML reports whether a request comes from a browser. Clients of the protocols do not accept HTML.
func asksForHTML(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/html")
}

// routeHealth adds the routes for monitoring.
func (g *gateway) routeHealth(r *mux.Router, o Options) {
	r.HandleFunc("/healthz", Healthz).Name(routeHealth)
	if o.Ready != nil {
		r.Handle("/readyz", o.Ready).Name(routeHealth)
	}
	switch {
	case o.Metrics == nil:
	case o.Access != nil:
		r.Handle("/metrics", o.Access.GuardOperator(o.Metrics)).Name(routeHealth)
	default:
		r.Handle("/metrics", o.Metrics).Name(routeHealth)
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

// hasEncodedSlash reports whether a path has a slash that the router treats as a separator although the client
// wrote it as part of a name.
func hasEncodedSlash(r *http.Request) bool {
	return strings.Count(r.URL.EscapedPath(), "/") != strings.Count(r.URL.Path, "/")
}

// addressOfRepository returns the provider of a repository in the embedded registry, whose template has the
// address's parts unchanged.
func addressOfRepository(name string) (provider.Address, error) {
	parts := strings.Split(name, "/")
	if len(parts) != 3 {
		return provider.Address{}, errors.New("no repository of a provider")
	}
	return provider.AddressFromPath(parts[0], parts[1], parts[2])
}
