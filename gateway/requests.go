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

	"github.com/ocibridge/ocibridge/internal/telemetry"
)

// Hooks are called during requests, concurrently. They must not block. Each may be nil.
type Hooks struct {
	// Began is called when a request arrives.
	Began func()
	// Ended is called when its answer ends. The method is what the client wrote. The
	// status is 0 if the answer was broken off.
	Ended func(route, method string, status int, took time.Duration)
	// Tracer records traces. With a tracer, documents do not bypass the router.
	Tracer telemetry.Tracer
}

// Route is a kind of request.
type Route uint8

// Kinds of requests.
const (
	RouteOther     Route = iota // not found, or an unsupported method
	RouteIndex                  // index.json
	RouteVersion                // VERSION.json
	RouteArchive                // packages, in both protocols
	RouteVersions               // the list of versions in the provider registry protocol
	RouteDownload               // the description of a version, or of a package in it
	RouteChecksums              // SHA256SUMS and signatures
	RouteDiscovery              // service discovery
	RouteRegistry               // the embedded registry
	RouteOperator               // requests of operators
	RouteHealth                 // health, readiness and metrics
	RoutePage                   // the web page
	routes
)

var routeNames = [routes]string{"other", "index", "version", "archive", "versions", "download", "checksums", "discovery", "registry", "operator", "health", "page"}

// String returns the name of a route in metrics and traces.
func (r Route) String() string { return routeNames[min(r, routes-1)] }

// RouteNames returns the names of all routes.
func RouteNames() []string { return routeNames[:] }

// forMachines reports whether only monitoring requests the route.
func (r Route) forMachines() bool { return r == RouteHealth }

// routeOf returns the route of a path template, by its prefix or suffix.
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

// contextWith returns ctx with a variable for the route of its request.
func contextWith(ctx context.Context, route *Route) context.Context {
	return context.WithValue(ctx, routeKey{}, route)
}

// classify stores the route of a request in its context.
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

// trace begins the span of a request, and returns a context with it and with the request's ID.
func (g *gateway) trace(ctx context.Context, r *http.Request, id string) (context.Context, telemetry.End) {
	if t := g.hooks.Tracer; t != nil {
		ctx = t.Join(ctx, r.Header)
	}
	ctx = telemetry.WithRequest(ctx, id, g.hooks.Tracer)
	return telemetry.Start(ctx, "request", slog.String("http.request.method", r.Method), slog.String("url.path", r.URL.Path), slog.String(telemetry.LogKey, id))
}

const (
	// requestIDHeader is the header with the request's ID, in requests and answers.
	requestIDHeader = "X-Request-Id"
	// maxRequestID bounds the IDs of clients. Capabilities are longer.
	maxRequestID = 64
)

var (
	// processID is the prefix of this process's IDs.
	processID = rand.Text()[:10] + "-"
	requests  atomic.Uint64
)

// identify uses the client's request ID or creates one, and puts it into the answer.
func (l *requestLine) identify(w http.ResponseWriter, r *http.Request) {
	if given := r.Header[requestIDHeader]; len(given) == 1 && validRequestID(given[0]) {
		l.id[0] = given[0]
	} else {
		var digits [32]byte
		l.id[0] = string(strconv.AppendUint(append(digits[:0], processID...), requests.Add(1), 10))
	}
	w.Header()[requestIDHeader] = l.id[:]
}

// validRequestID reports whether an ID is safe to log.
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
