// Package gateway answers Terraform's and OpenTofu's provider network mirror and
// provider registry protocols out of OCI repositories: tag listings become
// versions, layer digests become zh: hashes, and what a publisher signed is
// replayed byte for byte.
//
// It keeps no state that it could not do without, and one rule above all others:
// it says that something is not there only if the registry says so, in its answer
// to a listing of tags. Package catalog asks it, and remembers what it said.
// Trouble of any kind is 502, 503 or 504, because clients take a 404 for leave
// to look elsewhere. Every byte of an archive that it sends is checked
// against its digest before the last of them is sent.
package gateway

import (
	"context"
	"errors"
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

// Store is what the gateway needs of a repository. oras-go's remote.Repository is
// one.
type Store = catalog.Store

// Options configure a gateway.
type Options struct {
	// Catalog says which versions there are; whoever made it closes it. Nil stands
	// for one of Repository, in memory and with the times that it has by default.
	Catalog *catalog.Catalog
	// Repository returns the repository of a provider. An error that wraps
	// [ErrNotServed] says that the provider has none here. Nil: no provider is
	// served. It is not looked at where there is a Catalog.
	Repository func(context.Context, provider.Address) (Store, error)
	// Check decides about a version that was read: what it returns takes the
	// version's place, its error refuses the version; see package verify. Nil: all
	// are served as they are. It is not looked at where there is a Catalog.
	Check func(context.Context, Store, provider.Address, provider.Version, *artifact.Version) (*artifact.Version, error)
	// Explain adds a hint to an error of a provider's repository, for the log; nil: errors
	// have the hints that they come with.
	Explain func(provider.Address, error) error
	// H1 returns the h1: hash of a package, if it was computed from verified bytes.
	// It is asked where a version has none; nil: there is none then.
	H1 func(digest.Digest) (provider.Hash, bool)
	// PublicURL is the URL at which clients reach the gateway, with which absolute URLs
	// in documents begin. Nil: they begin with https and the request's Host where the
	// request came by TLS, and are relative elsewhere.
	PublicURL *url.URL
	// Address is the URL at which clients reach the gateway where PublicURL is nil, as
	// far as the gateway itself knows. Documents of packages never have it.
	//
	// The host name in PublicURL or Address, without a port, is that of the providers
	// under [RegistryPath]; the path in it leads there in service discovery. Where
	// both are nil, or the host is one that no provider address can have, there are
	// no such providers, and nothing is announced.
	Address *url.URL
	// Login says where clients get a token for the gateway; nil: nothing is announced
	// of it.
	Login *Login
	// Redirect returns where the registry sends those who ask for the blob of a
	// provider's package, "" if it answers them itself; nil: clients are sent
	// nowhere.
	Redirect func(context.Context, provider.Address, ocispec.Descriptor) (string, error)
	// Cache keeps packages; nil: every one is streamed from the registry.
	Cache *archives.Cache
	// Registry answers /v2/, apart from the tags of versions that the Catalog denies;
	// nil: nothing does.
	Registry http.Handler
	// Page answers people; nil: nobody does. It sees to access itself. Of paths that
	// nothing is at it gets those that browsers ask for.
	Page http.Handler
	// Access says who may read what, and who is an operator. Operators may drop a provider's
	// cached metadata (POST /-/refresh?provider=ADDRESS). Nil: everybody may read everything,
	// and nobody is an operator.
	Access *access.Control
	// Ready answers /readyz, for everybody; nil: nothing does.
	Ready http.Handler
	// Metrics answers /metrics, for operators where access is controlled; nil: nothing
	// does.
	Metrics http.Handler
	// Hooks are told of requests, and Archives counts those for packages; nil: nobody
	// counts.
	Hooks    Hooks
	Archives *telemetry.ArchiveCounters
	// Log gets a line a request, and the reasons of errors; nil: nobody does.
	Log *slog.Logger
}

// MirrorPath is where the network mirror begins. Clients are given it with its
// slash.
const MirrorPath = "/providers/"

// limits are how long others may keep the gateway waiting.
type limits struct {
	// metadata is how long the registry may take to answer for JSON: clients wait
	// 10 seconds.
	metadata time.Duration
	// start is how long it may take, twice at most, until an archive begins, for
	// which clients wait much longer.
	start time.Duration
	// registryStall and clientStall are how long the one or the other may leave a
	// transfer without a byte.
	registryStall, clientStall time.Duration
	// resumes is how often one transfer that broke is taken up again.
	resumes int
}

func defaultLimits() limits {
	return limits{
		metadata: 8 * time.Second, start: 30 * time.Second,
		registryStall: 60 * time.Second, clientStall: 60 * time.Second,
		resumes: 8,
	}
}

type gateway struct {
	catalog  *catalog.Catalog
	access   *access.Control
	public   *url.URL // nil: documents have relative URLs, or the request's Host
	redirect func(context.Context, provider.Address, ocispec.Descriptor) (string, error)
	explain  func(provider.Address, error) error // nil: errors have the hints that they come with
	archives *archives.Handler
	cache    *archives.Cache // nil: there is none
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
			panic(err) // only the disk has errors, and there is none
		}
		o.Catalog = c
	}
	g := &gateway{
		catalog: o.Catalog, access: o.Access, public: o.PublicURL, redirect: o.Redirect, explain: o.Explain, cache: o.Cache, h1: o.H1, hooks: o.Hooks, log: o.Log, limits: l,
		archives: archives.New(archives.Options{Cache: o.Cache, Counters: o.Archives, Log: o.Log, Limits: archives.Limits{
			Start: l.start, RegistryStall: l.registryStall, ClientStall: l.clientStall, Resumes: l.resumes,
		}}),
	}
	g.routes = g.access.Handler(g.logged(g.router(o)))
	return g
}

// router returns the routes. What of them is asked for most is found without it;
// see [gateway.ServeHTTP].
func (g *gateway) router(o Options) *mux.Router {
	// SkipClean: mux would answer //, .. and their encodings with a redirect to
	// some other resource. What reaches a handler is checked by the parsers of
	// package provider, since the router lets nearly anything through.
	r := mux.NewRouter().SkipClean(true)
	r.MethodNotAllowedHandler = http.HandlerFunc(methodNotAllowed)
	r.NotFoundHandler = http.HandlerFunc(notFound)
	r.Use(classify)
	reads := r.Methods(http.MethodGet, http.MethodHead).Subrouter()
	g.routeHealth(reads, o)
	const address = MirrorPath + "{hostname}/{namespace}/{type}/"
	reads.HandleFunc(address+"index.json", g.guarded(g.serveIndex))
	reads.HandleFunc(address+"{version}.json", g.guarded(g.serveVersion))
	reads.HandleFunc(address+"{version}/{platform}/{filename}", g.guarded(g.serveArchive))
	g.routeDiscovery(reads, o)
	g.routeRegistry(reads, o.announced())
	routePage(r, reads, o.Page)
	if o.Access != nil {
		r.Handle("/-/refresh", g.access.GuardOperator(http.HandlerFunc(g.serveRefresh)))
	}
	if o.Registry != nil {
		r.PathPrefix("/v2/").Handler(g.access.GuardRegistry(addressOfRepository, boundWrites(g.withoutDenied(o.Registry), g.limits.clientStall)))
	}
	return r
}

// guarded lets those alone through to a handler who may read the provider that a
// request is for. Every route of a provider goes through it.
func (g *gateway) guarded(h http.HandlerFunc) http.HandlerFunc {
	return g.access.Guard(addressOf, h).ServeHTTP
}

// routePage adds the routes of the page for people.
func routePage(r, reads *mux.Router, page http.Handler) {
	if page == nil {
		return
	}
	for _, path := range []string{"/", "/search", "/sign-in"} {
		reads.Handle(path, page)
	}
	for _, path := range []string{"/p/", "/assets/"} {
		reads.PathPrefix(path).Handler(page)
	}
	// People open the URL of the network mirror, which stands in their configuration.
	reads.Path(MirrorPath).MatcherFunc(func(r *http.Request, _ *mux.RouteMatch) bool { return asksForHTML(r) }).HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h.Set("Location", "../") // right behind any proxy
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

// asksForHTML reports whether a request comes from a browser. Clients of the protocols ask
// for no HTML.
func asksForHTML(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/html")
}

// routeHealth adds the routes for those who watch the gateway.
func (g *gateway) routeHealth(r *mux.Router, o Options) {
	r.HandleFunc("/healthz", Healthz)
	if o.Ready != nil {
		r.Handle("/readyz", o.Ready)
	}
	switch {
	case o.Metrics == nil:
	case o.Access != nil:
		r.Handle("/metrics", o.Access.GuardOperator(o.Metrics))
	default:
		r.Handle("/metrics", o.Metrics)
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
	http.Error(w, "only GET and HEAD are answered here", http.StatusMethodNotAllowed)
}

// addressOf reads the provider address of a request's path.
func addressOf(r *http.Request) (provider.Address, error) {
	if hasEncodedSlash(r) {
		return provider.Address{}, errors.New("encoded slash in a path")
	}
	v := mux.Vars(r)
	return provider.AddressFromURL(v["hostname"], v["namespace"], v["type"])
}

// hasEncodedSlash reports whether a path has a slash that the router takes for a
// separator, and that the client wrote as a part of a name.
func hasEncodedSlash(r *http.Request) bool {
	return strings.Count(r.URL.EscapedPath(), "/") != strings.Count(r.URL.Path, "/")
}

// addressOfRepository returns the provider of a repository in the embedded
// registry, whose template has its parts as they are.
func addressOfRepository(name string) (provider.Address, error) {
	parts := strings.Split(name, "/")
	if len(parts) != 3 {
		return provider.Address{}, errors.New("no repository of a provider")
	}
	return provider.AddressFromPath(parts[0], parts[1], parts[2])
}
