// Package gateway answers Terraform's and OpenTofu's provider network mirror
// protocol out of OCI repositories: tag listings become versions, layer digests
// become zh: hashes.
//
// It keeps no state, and one rule above all others: it says that something is
// not there only if the registry says so. Trouble of any kind is 502, 503 or
// 504, because clients take a 404 for leave to look elsewhere. Every byte of an
// archive is checked against its digest before the last of them is sent.
package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/gorilla/mux"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/provider"
)

// Store is what the gateway needs of a repository. oras-go's remote.Repository is
// one.
type Store interface {
	artifact.ReferenceFetcher
	Tags(ctx context.Context, last string, fn func(tags []string) error) error
}

// Options configure a gateway.
type Options struct {
	// Repository returns the repository of a provider. An error that wraps
	// [ErrNotServed] says that the provider has none here.
	Repository func(context.Context, provider.Address) (Store, error)
	// Registry answers /v2/; nil: nothing does.
	Registry http.Handler
	// Log gets a line a request, and the reasons of errors; nil: nobody does.
	Log *slog.Logger
}

// MirrorPath is where the network mirror begins. Clients are given it with its
// slash.
const MirrorPath = "/providers/"

const (
	// metadataTimeout is how long the registry may take to answer for JSON:
	// clients wait 10 seconds.
	metadataTimeout = 8 * time.Second
	// archiveStartTimeout is how long it may take until an archive begins, for
	// which clients wait much longer.
	archiveStartTimeout = 30 * time.Second
)

type gateway struct {
	repository func(context.Context, provider.Address) (Store, error)
	log        *slog.Logger
}

// New returns the gateway's handler.
func New(o Options) http.Handler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	g := &gateway{o.Repository, o.Log}
	// SkipClean: mux would answer //, .. and their encodings with a redirect to
	// some other resource. What reaches a handler is checked by the parsers of
	// package provider, since the router lets nearly anything through.
	r := mux.NewRouter().SkipClean(true)
	r.MethodNotAllowedHandler = http.HandlerFunc(methodNotAllowed)
	r.NotFoundHandler = http.HandlerFunc(notFound)
	reads := r.Methods(http.MethodGet, http.MethodHead).Subrouter()
	reads.HandleFunc("/healthz", healthz)
	const address = MirrorPath + "{hostname}/{namespace}/{type}/"
	reads.HandleFunc(address+"index.json", g.serveIndex)
	reads.HandleFunc(address+"{version}.json", g.serveVersion)
	reads.HandleFunc(address+"{version}/{platform}/{filename}", g.serveArchive)
	if o.Registry != nil {
		r.PathPrefix("/v2/").Handler(o.Registry)
	}
	return logged(o.Log, r)
}

func healthz(w http.ResponseWriter, _ *http.Request) {
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
	v := mux.Vars(r)
	return provider.AddressFromPath(v["hostname"], v["namespace"], v["type"])
}
