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

	"github.com/ocibridge/ocibridge/internal/telemetry"
)

// Hooks are called during requests, concurrently. They must not block. Each may be nil.
type Hooks struct {
	// Began is called when a request arrives.
	Began func()
	// Ended is called when the answer to a request ends. method is what the client wrote, which can
	// be any text. status is 0 if the answer was broken off.
	Ended func(route, method string, status int, took time.Duration)
	// Tracer records traces. With a tracer, requests for the hottest documents go through the
	// router, too.
	Tracer telemetry.Tracer
}

// Names of routes in metrics and traces. Routes that mux has no name for belong to the web page.
const (
	routeOther   = "other" // not found, or an unsupported method
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

// requestIDHeader is the header of requests and answers that contains the request's ID.
const requestIDHeader = "X-Request-Id"

// validRequestID matches the clients' request IDs that are safe to log. A capability is too long to
// match.
var validRequestID = regexp.MustCompile(`^[A-Za-z0-9_.:=+/-]{1,64}$`)

// identify uses the client's request ID, or creates one if that is not valid, and adds it to the
// answer's headers.
func (l *requestLine) identify(w http.ResponseWriter) {
	l.id[0] = rand.Text()
	if given := l.request.Header[requestIDHeader]; len(given) == 1 && validRequestID.MatchString(given[0]) {
		l.id[0] = given[0]
	}
	w.Header()[requestIDHeader] = l.id[:]
}
