package gateway

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"

	"github.com/ocibridge/ocibridge/internal/observe"
)

// Hooks are told what happens, by many requests at once: they must be quick, and
// must not wait. Each may be nil.
type Hooks struct {
	// Began and Ended are told of a request when it comes and when it is answered.
	Began func()
	Ended func(Answered)
	// Tracer records traces. Documents take the way through the router then.
	Tracer Tracer
}

// Tracer is an [observe.Tracer] that knows where the traces of requests begin.
type Tracer interface {
	observe.Tracer
	// Join returns ctx for the trace that a request with such headers is part of.
	Join(ctx context.Context, h http.Header) context.Context
}

// Answered is a request that was answered.
type Answered struct {
	Route  Route
	Method string // whatever the client wrote
	Status int    // 0 for an answer that was broken off
	Took   time.Duration
}

// Route is a kind of request.
type Route uint8

// Kinds of requests.
const (
	RouteOther     Route = iota // not found, or by a method that is not answered
	RouteIndex                  // index.json
	RouteVersion                // VERSION.json
	RouteArchive                // packages, by either protocol
	RouteVersions               // the list of versions in the provider registry protocol
	RouteDownload               // the description of a version, or of a package in it
	RouteChecksums              // SHA256SUMS and signatures
	RouteDiscovery              // service discovery
	RouteRegistry               // the embedded registry
	RouteOperator               // what is for operators
	RouteHealth                 // health, readiness and metrics
	RoutePage                   // what people look at
	routes
)

var routeNames = [routes]string{"other", "index", "version", "archive", "versions", "download", "checksums", "discovery", "registry", "operator", "health", "page"}

// String returns the name of a route in metrics and traces.
func (r Route) String() string { return routeNames[min(r, routes-1)] }

// Routes returns all that there are.
func Routes() (out []Route) {
	for r := range routes {
		out = append(out, r)
	}
	return out
}

// forMachines reports whether probes ask for it.
func (r Route) forMachines() bool { return r == RouteHealth }

// routeOf knows the route of a path by how it begins or ends.
func routeOf(template string) Route {
	switch {
	case strings.HasSuffix(template, "/index.json"):
		return RouteIndex
	case strings.HasSuffix(template, "/{version}.json"):
		return RouteVersion
	case strings.HasSuffix(template, "/versions"):
		return RouteVersions
	case strings.HasSuffix(template, "/download/{os}/{arch}"), strings.HasSuffix(template, RegistryPath+"{namespace}/{type}/{version}"):
		return RouteDownload
	case strings.Contains(template, "/"+checksumsDir+"/"):
		return RouteChecksums
	case strings.HasSuffix(template, "/{platform}/{filename}"):
		return RouteArchive
	case strings.HasSuffix(template, discoveryPath):
		return RouteDiscovery
	case strings.HasPrefix(template, "/v2/"):
		return RouteRegistry
	case strings.HasPrefix(template, "/-/"):
		return RouteOperator
	case template == "/healthz", template == "/readyz", template == "/metrics":
		return RouteHealth
	}
	return RoutePage
}

type routeKey struct{}

// contextWith returns ctx with the place for the route of the request it is for.
func contextWith(ctx context.Context, route *Route) context.Context {
	return context.WithValue(ctx, routeKey{}, route)
}

// classify takes note of which route a request has taken.
func classify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to, ok := r.Context().Value(routeKey{}).(*Route); ok {
			if template, err := mux.CurrentRoute(r).GetPathTemplate(); err == nil {
				*to = routeOf(template)
			}
		}
		next.ServeHTTP(w, r)
	})
}

// trace begins the span of a request, and has ctx carry its id.
func (g *gateway) trace(ctx context.Context, r *http.Request, id string) (context.Context, observe.End) {
	t := g.hooks.Tracer
	if t == nil {
		ctx = observe.With(ctx, id, nil)
	} else {
		ctx = observe.With(t.Join(ctx, r.Header), id, t)
	}
	return observe.Start(ctx, "request", slog.String("http.request.method", r.Method), slog.String("url.path", r.URL.Path), slog.String(observe.LogKey, id))
}

const (
	// requestIDHeader is where a request's id is, both ways.
	requestIDHeader = "X-Request-Id"
	// maxRequestID bounds those of others. No capability is as short.
	maxRequestID = 64
)

var (
	// processID begins the ids of this process.
	processID = rand.Text()[:10] + "-"
	requests  atomic.Uint64
)

// identify gives a request the id that it brings, or a new one, and the answer that.
func (l *requestLine) identify(w http.ResponseWriter, r *http.Request) {
	if given := r.Header[requestIDHeader]; len(given) == 1 && validRequestID(given[0]) {
		l.id[0] = given[0]
	} else {
		var digits [32]byte
		l.id[0] = string(strconv.AppendUint(append(digits[:0], processID...), requests.Add(1), 10))
	}
	w.Header()[requestIDHeader] = l.id[:]
}

// validRequestID reports whether an id is one that can stand in a log.
func validRequestID(id string) bool {
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-_.:=+/", c) >= 0:
		default:
			return false
		}
	}
	return id != "" && len(id) <= maxRequestID
}
