package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/felixge/httpsnoop"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
)

// logged gives each request an ID, a line in the log and a span, and calls the hooks. It sends the documents that
// next writes. The log contains no
// secrets. Capabilities have been removed from paths. Queries and headers may contain secrets, so the log
// has no queries, and only two headers: the User-Agent, and a valid request ID.
func (g *gateway) logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		line := g.begin(w, r, time.Now())
		out := httpsnoop.Metrics{Code: http.StatusOK}
		line.route = routeOf(r)
		ctx, end := g.trace(r.Context(), r, line.id[0])
		r = r.WithContext(ctx)
		defer func() {
			if p := recover(); p != nil {
				if p != http.ErrAbortHandler {
					g.Log.ErrorContext(ctx, "panic", "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
				}
				out.Code = statusAborted
				defer panic(http.ErrAbortHandler)
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

// maxLogged is the maximum length in bytes of each text from a client in the log. Clients may send texts of
// 64 KiB, but no path of the gateway is longer than maxLogged.
const maxLogged = 1024

// clip shortens a client's text for the log.
func clip(s string) string {
	if len(s) <= maxLogged {
		return s
	}
	return strings.Clone(s[:maxLogged]) + "..."
}

// ended calls the hook Ended, and logs the request.
func (g *gateway) ended(line *requestLine, status int, bytes int64) {
	r, took := line.request, time.Since(line.start)
	if g.Hooks.Ended != nil {
		g.Hooks.Ended(line.route, r.Method, status, took)
	}
	level := slog.LevelInfo
	if line.route == routeHealth {
		level = slog.LevelDebug // monitoring polls these paths
	}
	ctx := context.Background() // the request's context would add the request's ID to the line again
	if g.Log.Enabled(ctx, level) {
		g.Log.LogAttrs(ctx, level, "request", append([]slog.Attr{
			slog.String("method", clip(r.Method)), slog.String("path", clip(r.URL.Path)), slog.Int("status", status), slog.Int64("bytes", bytes),
			slog.Duration("duration", took.Round(time.Millisecond)), slog.String("client", r.RemoteAddr), slog.String("agent", clip(r.UserAgent())),
			slog.String(telemetry.LogKey, line.id[0]),
		}, access.LogAttrs(r.Context())...)...)
	}
}

// requestLine is the log line of a request.
type requestLine struct {
	request *http.Request
	id      [1]string // an array, so that a slice of it can be a header value
	route   string
	start   time.Time
}

// statusAborted is the status of a broken-off response in the log and in hooks.
const statusAborted = 0
