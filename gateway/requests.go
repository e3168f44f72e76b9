package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"regexp"
	"time"

	"github.com/gorilla/mux"

	"github.com/ocibridge/ocibridge/internal/base/telemetry"
)

// Hooks are called during requests. Concurrent requests call them concurrently. They must not
// block. Each hook may be nil.
type Hooks struct {
	// Began is called when a request arrives.
	Began func()
	// Ended is called when the response to a request ends. method is the method that the client
	// sent, which can be any text. status is 0 if the response was broken off.
	Ended func(route, method string, status int, took time.Duration)
	// Tracer records traces. With a tracer, requests for the hottest documents go through the
	// router, too.
	Tracer telemetry.Tracer
}

// Names of routes in metrics and traces. Routes without a name in the router belong to the web
// page.
const (
	routeOther   = "other" // the path is not found, or the method is not supported
	routeIndex   = "index"
	routeVersion = "version"
	routeHealth  = "health" // health, readiness and metrics
	routePage    = "page"
)

// RouteNames returns the names of all routes.
func RouteNames() []string {
	return []string{routeOther, routeIndex, routeVersion, "archive", "versions", "download", "checksums", "discovery", "registry", "operator", routeHealth, routePage}
}

// routeOf returns the name of the route that the router chose for a request.
func routeOf(r *http.Request) string {
	if route := mux.CurrentRoute(r); route != nil {
		return cmp.Or(route.GetName(), routePage)
	}
	return routeOther
}

// trace begins the span of a request, and returns a context with the span and the request's ID.
func (g *gateway) trace(ctx context.Context, r *http.Request, id string) (context.Context, telemetry.End) {
	if t := g.Hooks.Tracer; t != nil {
		ctx = t.Join(ctx, r.Header)
	}
	ctx = telemetry.WithRequest(ctx, id, g.Hooks.Tracer)
	return telemetry.Start(ctx, "request", slog.String("http.request.method", r.Method), slog.String("url.path", r.URL.Path), slog.String(telemetry.LogKey, id))
}

// requestIDHeader is the header with the request's ID, in requests and responses.
const requestIDHeader = "X-Request-Id"

// validRequestID matches a client's request ID if the ID is safe to log. A capability is too long
// to match.
var validRequestID = regexp.MustCompile(`^[A-Za-z0-9_.:=+/-]{1,64}$`)

// identify takes the client's request ID if the ID is valid, and otherwise creates a new ID. It
// adds the ID to the response's headers.
func (l *requestLine) identify(w http.ResponseWriter) {
	l.id[0] = rand.Text()
	if given := l.request.Header[requestIDHeader]; len(given) == 1 && validRequestID.MatchString(given[0]) {
		l.id[0] = given[0]
	}
	w.Header()[requestIDHeader] = l.id[:]
}
