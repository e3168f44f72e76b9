package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/felixge/httpsnoop"
	"github.com/gorilla/mux"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/lastuse"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/provider"
)

// Hooks are called during requests, perhaps concurrently. They must not block. Each hook may be nil.
type Hooks struct {
	Began func() // called when a request arrives
	// Ended is called when the response to a request ends. method can be any text that the client sent. status is 0
	// if the response was broken off.
	Ended func(route, method string, status int, took time.Duration)
	// Tracer records traces. With a tracer, requests for the hottest documents go through the router, too.
	Tracer telemetry.Tracer
}

// Names of routes in metrics and traces. Routes without a name in the router belong to the web page.
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

// validRequestID matches request IDs that are safe to log. A capability is too long to match.
var validRequestID = regexp.MustCompile(`^[A-Za-z0-9_.:=+/-]{1,64}$`)

// identify takes the client's request ID if it is valid, or else creates one. It adds the ID to the response's
// headers.
func (l *requestLine) identify(w http.ResponseWriter) {
	l.id[0] = rand.Text()
	if given := l.request.Header[requestIDHeader]; len(given) == 1 && validRequestID.MatchString(given[0]) {
		l.id[0] = given[0]
	}
	w.Header()[requestIDHeader] = l.id[:]
}

// logged gives each request an ID, a line in the log and a span, and calls the hooks. If next writes a document,
// logged sends it. The log contains no secrets: capabilities have been removed from its paths, and it has no queries.
// Its only headers are the User-Agent and a valid request ID.
func (g *gateway) logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		line := g.begin(w, r, time.Now())
		out := httpsnoop.Metrics{Code: http.StatusOK}
		line.route = routeOf(r)
		ctx, end := g.trace(context.WithValue(r.Context(), lineKey{}, line), r, line.id[0])
		r = r.WithContext(ctx)
		defer func() {
			if p := recover(); p != nil {
				if p != http.ErrAbortHandler {
					panics.Log(ctx, g.Log, p, "path", r.URL.Path)
				}
				out.Code = statusAborted
				defer panic(http.ErrAbortHandler)
			}
			if line.archive {
				line.sent = sentOf(r.Method, out.Code, w.Header().Get("Content-Range"))
			}
			g.ended(line, out.Code, out.Written)
			end(nil, slog.String("http.route", line.route), slog.Int("http.response.status_code", out.Code))
		}()
		out.CaptureMetrics(w, func(w http.ResponseWriter) { g.documents.Serve(w, r, next) })
	})
}

// begin starts the log line of a request, and calls the hook Began.
func (g *gateway) begin(w http.ResponseWriter, r *http.Request, now time.Time) *requestLine {
	line := &requestLine{request: r, start: now}
	line.identify(w)
	if g.Hooks.Began != nil {
		g.Hooks.Began()
	}
	return line
}

// maxLogged is the maximum length in bytes of each text from a client in the log. No path of the gateway is longer.
const maxLogged = 1024

func clip(s string) string {
	if len(s) <= maxLogged {
		return s
	}
	return strings.Clone(s[:maxLogged]) + "..."
}

// ended calls the hook Ended, records the use of a version, and logs the request.
func (g *gateway) ended(line *requestLine, status int, bytes int64) {
	r, took := line.request, time.Since(line.start)
	if line.of != nil && lastuse.Counts(r.Method, r.URL.Path, status) {
		g.LastUses.Add(line.of, line.version, line.start.Add(took))
	}
	if g.Hooks.Ended != nil {
		g.Hooks.Ended(line.route, r.Method, status, took)
	}
	level := slog.LevelInfo
	if line.route == routeHealth {
		level = slog.LevelDebug // monitoring polls these paths
	}
	ctx := context.Background() // the request's context would add the request's ID to the line again
	if g.Log.Enabled(ctx, level) {
		var space [13]slog.Attr // the attributes of most lines
		attrs := append(space[:0],
			slog.String("method", clip(r.Method)), slog.String("path", clip(r.URL.Path)), slog.Int("status", status), slog.Int64("bytes", bytes),
			slog.Duration("duration", took.Round(time.Millisecond)), slog.String("client", r.RemoteAddr), slog.String("agent", clip(r.UserAgent())),
			slog.String(telemetry.LogKey, line.id[0]))
		attrs = line.appendUsage(attrs)
		g.Log.LogAttrs(ctx, level, "request", append(attrs, access.LogAttrs(r.Context())...)...)
	}
}

// requestLine is the log line of a request.
type requestLine struct {
	request *http.Request
	id      [1]string // an array, so that a slice of it can be a header value
	route   string
	start   time.Time

	// of and version are the version that the client uses: it requests the version's packages or their description. of
	// is nil in the lines of all other requests.
	of      subject.Address
	version provider.Version
	archive bool   // the response is a package or the zip of a module
	sent    string // how much of the package the client was sent, see sentOf
}

// appendUsage appends the attributes that "ocibridge usage" reads.
func (l *requestLine) appendUsage(to []slog.Attr) []slog.Attr {
	if l.of == nil {
		return to
	}
	to = append(to, subject.Attr(l.of), slog.String("version", l.version.String()))
	if l.sent != "" {
		to = append(to, slog.String("sent", l.sent))
	}
	return to
}

type lineKey struct{}

// lineOf returns the log line of a request, or an empty one if the request is not logged.
func lineOf(r *http.Request) *requestLine {
	if line, ok := r.Context().Value(lineKey{}).(*requestLine); ok {
		return line
	}
	return &requestLine{}
}

// uses records the version that the client of a request uses, for the log.
func uses(r *http.Request, of subject.Address, v provider.Version) {
	line := lineOf(r)
	line.of, line.version = of, v
}

// sentRedirect means that the client was sent to the registry, which sends the package itself.
const sentRedirect = "redirect"

// sentOf says how much of a package a client was sent: "whole", "end" for a range with the last byte, "part" for another
// range, sentRedirect, or "" for nothing, as to HEAD and conditional requests. A response that broke off has the status 0.
func sentOf(method string, status int, contentRange string) string {
	switch {
	case method != http.MethodGet:
		return ""
	case status == http.StatusOK:
		return "whole"
	case status == http.StatusTemporaryRedirect:
		return sentRedirect
	case status != http.StatusPartialContent:
		return ""
	}
	var first, last, size int64
	if n, _ := fmt.Sscanf(contentRange, "bytes %d-%d/%d", &first, &last, &size); n != 3 || last != size-1 {
		return "part"
	}
	if first == 0 {
		return "whole"
	}
	return "end"
}

// statusAborted is the status of a broken-off response in the log and in hooks.
const statusAborted = 0
