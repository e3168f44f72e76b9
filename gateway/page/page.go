// Package page answers people who look at a gateway with a browser: how clients are
// pointed at it, which providers there are, and what is in each of their versions.
//
// It reads what the protocols read, through the same catalog, and judges errors as
// they do: that something is not there is said only where the registry says so.
//
// Invariants:
//
//   - Pages are whole without scripts, and load nothing from elsewhere; the policy
//     that goes with each forbids anything that is not this package's.
//   - What a request or a registry says gets into a page through html/template
//     alone.
//   - Nothing about a provider is shown to who may not read it, and no answer that
//     depends on who asks is stored by anybody.
//   - Links are relative, so that they are right behind any proxy.
package page

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/mux"
	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Snippet is a piece of configuration that people copy.
type Snippet struct {
	ID    string // names the section in links
	Title string
	About string
	Where string // the file that it goes into
	Text  string
	Notes []string // below it
}

// Options configure a page.
type Options struct {
	Catalog *catalog.Catalog
	// Access says who may read what; nil: everybody may read everything.
	Access *access.Control
	// Snippets returns how clients are set up for the gateway at a URL, which ends in
	// a slash. private is set for who may read a provider: what says where the
	// providers are kept is for those.
	Snippets func(gateway string, private bool) []Snippet
	// Reference returns where clients find a version in an OCI registry, without a
	// scheme, of the gateway at a URL; "" if they cannot. Nil: they cannot.
	Reference func(gateway string, a provider.Address, v provider.Version) string
	// Policy returns which keys a provider's signatures are to be by; nil pins none.
	Policy func(provider.Address) trust.Policy
	// H1 returns the h1: hash of a package, if it was computed from verified bytes;
	// nil: there is none.
	H1 func(digest.Digest) (provider.Hash, bool)
	// Pulls reports whether what the registry lacks of a provider is fetched from its
	// origin when a client asks for it; nil: nothing is.
	Pulls func(provider.Address) bool
	// Configured are providers that are named by the configuration.
	Configured []provider.Address
	// List returns the providers that the registry's own list of repositories names,
	// and whether that is all. Nil: there is no such list.
	List func(context.Context) (found []provider.Address, complete bool)
	// ListTTL is how long such a list is current, if it does not take long; 0 means 30 s.
	ListTTL time.Duration
	// PublicURL is how clients reach the gateway; nil: at the host that a request is
	// for, if that is one.
	PublicURL *url.URL
	// Address is how clients reach it where neither says so.
	Address *url.URL
	// Log gets the reasons of errors; nil: nobody does.
	Log *slog.Logger
}

// Limits of what goes into one page.
const (
	metadataTimeout    = 8 * time.Second // for the registry to answer, as for clients
	versionsPerPage    = 20
	searchesPerPage    = 50
	frontProviders     = 12
	maxQuery           = 300
	versionReads       = 8
	listVersionsWithin = 4 * time.Second
)

type page struct {
	Options
	directory *directory
	pulls     bool // some providers are fetched from their origin
	routes    *mux.Router
}

// New returns the page's handler. It is for the paths /, /search, /sign-in and what
// is below /p/ and /assets/; any other is not found.
func New(o Options) http.Handler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	pulls := o.Pulls != nil
	if !pulls {
		o.Pulls = func(provider.Address) bool { return false }
	}
	if o.Policy == nil {
		o.Policy = func(provider.Address) trust.Policy { return trust.Policy{} }
	}
	p := &page{Options: o, pulls: pulls}
	p.directory = newDirectory(o)
	r := mux.NewRouter().SkipClean(true)
	r.NotFoundHandler = http.HandlerFunc(p.notFound)
	r.HandleFunc("/", p.front)
	r.HandleFunc("/search", p.search)
	r.HandleFunc("/sign-in", p.signIn)
	r.HandleFunc("/assets/{name}", p.asset)
	r.HandleFunc("/p/{hostname}/{namespace}/{type}", p.provider)
	r.HandleFunc("/p/{hostname}/{namespace}/{type}/{version}", p.provider)
	for _, path := range []string{"/p/{hostname}/{namespace}/{type}/", "/p/{hostname}/{namespace}/{type}/{version}/"} {
		r.HandleFunc(path, withoutSlash)
	}
	p.routes = r
	return p
}

// policy lets a page load what comes from here, and nothing stands in it that would
// be run.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP implements [http.Handler].
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache")
	if p.Access != nil {
		h.Set("Cache-Control", access.Private)
	}
	p.routes.ServeHTTP(w, r)
}

// known returns who asks, or answers who is not known.
func (p *page) known(w http.ResponseWriter, r *http.Request) *access.Subject {
	who, err := p.Access.Person(r)
	if err != nil {
		p.refuse(w, r, err)
		return nil
	}
	return who
}

// signIn has a browser ask for a token, and show it to all pages from then on.
func (p *page) signIn(w http.ResponseWriter, r *http.Request) {
	if p.known(w, r) != nil {
		w.Header().Set("Location", "./")
		w.WriteHeader(http.StatusSeeOther)
	}
}

// withoutSlash leads to the page of a provider that is asked for with a slash at its
// end, from which links would lead astray.
func withoutSlash(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimSuffix(r.URL.EscapedPath(), "/")
	w.Header().Set("Location", "../"+path[strings.LastIndexByte(path, '/')+1:])
	w.WriteHeader(http.StatusSeeOther)
}

// addressOf reads the provider address of a request's path.
func addressOf(r *http.Request) (provider.Address, bool) {
	// The router sees an encoded slash as one that parts names.
	if strings.Count(r.URL.EscapedPath(), "/") != strings.Count(r.URL.Path, "/") {
		return provider.Address{}, false
	}
	v := mux.Vars(r)
	a, err := provider.AddressFromURL(v["hostname"], v["namespace"], v["type"])
	return a, err == nil
}

// gatewayURL is how clients reach the gateway, with a slash at the end.
func (p *page) gatewayURL(r *http.Request) string {
	if p.PublicURL != nil {
		return p.PublicURL.String()
	}
	if gateway.ValidHost(r.Host) {
		// Clients speak TLS only: where this was asked without, a proxy does.
		return "https://" + strings.ToLower(r.Host) + "/"
	}
	if p.Address != nil {
		return p.Address.String()
	}
	return "https://gateway.example/"
}

// h1 returns the h1: hash of a package, which is known from its index where that is
// believed.
func (p *page) h1(known provider.Hash, d digest.Digest) provider.Hash {
	if known.IsZero() && p.H1 != nil {
		known, _ = p.H1(d)
	}
	return known
}

// readable returns the addresses that somebody may read, sorted.
func readable(who *access.Subject, all []provider.Address) []provider.Address {
	out := slices.DeleteFunc(slices.Clone(all), func(a provider.Address) bool { return !who.MayRead(a) })
	slices.SortFunc(out, byName)
	return out
}

// byName orders addresses by their parts. There may be many, and to write each for
// people takes long.
func byName(a, b provider.Address) int {
	return cmp.Or(strings.Compare(a.Hostname(), b.Hostname()), strings.Compare(a.Namespace(), b.Namespace()), strings.Compare(a.Type(), b.Type()))
}
