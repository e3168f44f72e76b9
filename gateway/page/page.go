// Package page serves the gateway's web page for browsers. It shows how to configure clients, which providers and
// modules exist, and the content of each version.
//
// Only ocibridge itself imports this package: it can change at any time.
//
// The page uses the same catalog as the protocols, and treats errors in the same way. It reports something as absent
// only if the registry says so.
//
// Invariants:
//
//   - Pages are complete without scripts, and load nothing from other hosts; their
//     content security policy allows only this package's assets.
//   - Text from requests and registries enters a page only through html/template.
//   - Clients see only providers and modules that they may read. No cache stores a response that depends on the client.
//   - Links are relative, so that they work behind any proxy.
package page

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gorilla/mux"
	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/internal/base/fresh"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Setup is the client configuration that users can copy from the page. A field is "" if there is nothing to copy.
type Setup struct {
	Terraform   string // a network mirror block for Terraform
	OpenTofu    string // a network mirror block for OpenTofu
	OCI         string // oci_mirror blocks
	Hosts       string // host blocks
	Module      string // a module block
	Credentials string // the block with the token
	// TokenVariable is the environment variable that can replace the block with the token.
	TokenVariable string
	Tools         []Tool // other tools and CI systems
}

// first returns the ID of the first part that is not empty.
func (s Setup) first() string {
	for _, part := range []struct{ id, text string }{{"terraform", s.Terraform}, {"opentofu", s.OpenTofu}, {"oci-mirror", s.OCI}, {"host", s.Hosts}, {"module", s.Module}} {
		if part.text != "" {
			return part.id
		}
	}
	if len(s.Tools) > 0 {
		return s.Tools[0].Name
	}
	return "token"
}

// Tool is the configuration of a tool that users can copy from the page.
type Tool struct {
	Name  string // the section's ID
	Title string
	Where string // where to paste Text
	About string
	Text  string
}

// Options configure a page.
type Options struct {
	// Options are the options of the page's gateway.
	gateway.Options
	// Setup returns the client configuration for the gateway at a URL that ends in a slash. private is true if the
	// client may see where the providers are stored. providers and modules are the sorted hosts of the known providers and
	// modules that the client may read. If Setup is nil, the page shows no configuration.
	Setup func(gateway string, private bool, providers, modules []svchost.Hostname) Setup
	// ModuleHost returns the host block with which clients request the modules of a host from the gateway, or "" if
	// there is no such block. gateway is the gateway's URL. If providers is true, clients also request the host's providers
	// from the gateway. ModuleHost may be nil.
	ModuleHost func(gateway string, host svchost.Hostname, providers bool) string
	// Reference returns the OCI reference of a version, without a scheme, or "" if clients of the gateway cannot read
	// the version from a registry. gateway is the gateway's URL. Reference may be nil.
	Reference func(gateway string, a provider.Address, v provider.Version) string
	// CA is the PEM file with the certificate of the CA that signed the gateway's certificate, for clients, which do not trust
	// it yet. It is empty if the page does not offer the CA.
	CA []byte
	// ModuleRepository is like Reference, for the repository of a module.
	ModuleRepository func(gateway string, a module.Address) string
	// Policy returns the trust policy of a provider. If nil, no keys are pinned.
	Policy func(provider.Address) trust.Policy
	// Pulls reports whether the gateway fetches missing versions of a provider or a module from its origin. If nil, it never
	// does.
	Pulls func(subject.Address) bool
	// Recorded returns a time at which a version was used, if the registry has recorded a use. The last use may be later. It
	// returns the zero time if there is no record, and sends no request. If nil, there are no records.
	Recorded   func(subject.Address, provider.Version) time.Time
	Configured []subject.Address           // the providers and modules that the configuration names
	List       func(context.Context) Names // lists the registry's catalog; nil if it has none
	// ListTTL is the minimum time for which a list of the registry is current. 0 means 30 seconds. The list of a slow
	// registry is current for longer.
	ListTTL time.Duration
}

// Names are the addresses of all kinds in the catalog of a registry.
type Names struct {
	All      []subject.Address
	Complete bool // the registry has no others
	Failed   bool // a registry failed to send its list, so All lacks its providers and modules
}

// Limits of one page's content, and of the time to read it.
const (
	metadataTimeout    = 8 * time.Second // as for the documents of the protocols
	versionsPerPage    = 20
	searchesPerPage    = 50
	frontEntries       = 25  // the maximum number of providers, and of modules, on one page of the front
	keyReads           = 100 // the maximum number of providers that a search for a key reads
	suggestedEntries   = 8   // the maximum number of answers to a search while typing
	maxQuery           = 300
	versionReads       = 8
	listVersionsWithin = 4 * time.Second
)

type page struct {
	Options
	directory *directory
	summaries *fresh.Cache[entry, summary]
	orders    orders
	pulls     bool // the gateway fetches some providers from their origins
	routes    *mux.Router
}

// New returns the page's handler. It serves the paths /, /search, /sign-in and all paths below /p/, /m/ and
// /assets/. Other paths get 404.
func New(o Options) http.Handler {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	pulls := o.Pulls != nil
	if !pulls {
		o.Pulls = func(subject.Address) bool { return false }
	}
	if o.Policy == nil {
		o.Policy = func(provider.Address) trust.Policy { return trust.Policy{} }
	}
	p := &page{Options: o, pulls: pulls}
	p.directory = newDirectory(o)
	p.summaries = p.newSummaries()
	r := mux.NewRouter().SkipClean(true)
	r.NotFoundHandler = http.HandlerFunc(p.notFound)
	r.HandleFunc("/", p.front)
	r.HandleFunc("/search", p.search)
	r.HandleFunc("/sign-in", p.signIn)
	if len(o.CA) > 0 {
		r.HandleFunc(caPath, p.authority)
	}
	r.HandleFunc("/assets/{name}", p.asset)
	r.HandleFunc("/p/{hostname}/{namespace}/{type}", p.provider)
	r.HandleFunc("/p/{hostname}/{namespace}/{type}/{version}", p.provider)
	r.HandleFunc("/m/{hostname}/{namespace}/{name}/{system}", p.module)
	r.HandleFunc("/m/{hostname}/{namespace}/{name}/{system}/{version}", p.module)
	for _, path := range []string{"/p/{hostname}/{namespace}/{type}/", "/p/{hostname}/{namespace}/{type}/{version}/", "/m/{hostname}/{namespace}/{name}/{system}/", "/m/{hostname}/{namespace}/{name}/{system}/{version}/"} {
		r.HandleFunc(path, withoutSlash)
	}
	p.routes = r
	return p
}

// policy allows only assets of the page's own host, and no inline scripts or styles. The search box asks the same host.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

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

// known returns the client of a request. If there is no valid token, it answers the request and returns nil.
func (p *page) known(w http.ResponseWriter, r *http.Request) *access.Client {
	who, err := p.Access.Person(r)
	if err != nil {
		p.refuse(w, r, err)
		return nil
	}
	return who
}

// signIn makes a browser prompt for a token. The browser then sends the token with all requests for pages.
func (p *page) signIn(w http.ResponseWriter, r *http.Request) {
	if p.known(w, r) != nil {
		w.Header().Set("Location", "./")
		w.WriteHeader(http.StatusSeeOther)
	}
}

// withoutSlash handles the path of a provider or module that ends in a slash. It redirects to the path without the
// slash. With the slash, the page's relative links would be wrong.
func withoutSlash(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimSuffix(r.URL.EscapedPath(), "/")
	w.Header().Set("Location", "../"+path[strings.LastIndexByte(path, '/')+1:])
	w.WriteHeader(http.StatusSeeOther)
}

// gatewayURL returns the gateway's URL for clients, with a slash at the end.
func (p *page) gatewayURL(r *http.Request) *url.URL { return p.ClientURL(r) }
