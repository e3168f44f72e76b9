package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/internal/telemetry"
)

// logged observes requests: it gives each an ID, a line in the log and a span, and calls the hooks. Paths
// contain no secret after capabilities are removed; headers and queries may contain some, and are not logged.
func (g *gateway) logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		line := g.begin(w, r, time.Now())
		out := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		ctx, end := g.trace(contextWith(r.Context(), &line.route), r, line.id[0])
		r = r.WithContext(ctx)
		defer func() {
			if p := recover(); p != nil {
				if p != http.ErrAbortHandler {
					g.log.ErrorContext(ctx, "panic", "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
				}
				out.status = statusAborted
				defer panic(http.ErrAbortHandler)
			}
			line.access = access.LogAttrs(ctx)
			g.ended(line, out.status, out.bytes)
			end(nil, slog.String("http.route", line.route), slog.Int("http.response.status_code", out.status))
		}()
		next.ServeHTTP(out, r)
	})
}

// begin starts the log line of a request.
func (g *gateway) begin(w http.ResponseWriter, r *http.Request, now time.Time) *requestLine {
	line := &requestLine{
		method: clip(r.Method), path: clip(r.URL.Path), client: r.RemoteAddr, agent: clip(r.UserAgent()), route: routeOther, start: now,
	}
	line.identify(w, r)
	if g.hooks.Began != nil {
		g.hooks.Began()
	}
	return line
}

// maxLogged bounds each text of a client in the log: clients may send 64 KiB. It is longer
// than any path of the gateway.
const maxLogged = 1024

// clip shortens a text of a client for the log.
func clip(s string) string {
	if len(s) <= maxLogged {
		return s
	}
	return strings.Clone(s[:maxLogged]) + "..."
}

// ended calls the hook for an answered request, and logs the request.
func (g *gateway) ended(line *requestLine, status int, bytes int64) {
	line.status, line.bytes, line.took = status, bytes, time.Since(line.start)
	if g.hooks.Ended != nil {
		g.hooks.Ended(line.route, line.method, status, line.took)
	}
	level := slog.LevelInfo
	if line.route == routeHealth {
		level = slog.LevelDebug // machines poll it
	}
	ctx := context.Background() // the line has the ID of the request's context
	if g.log.Enabled(ctx, level) {
		g.log.LogAttrs(ctx, level, "request", line.attrs()...)
	}
}

// requestLine is the line of the log about a request.
type requestLine struct {
	method, path, client, agent string
	id                          [1]string // as a header has it
	route                       string
	start                       time.Time
	status                      int
	bytes                       int64
	took                        time.Duration
	access                      []slog.Attr
}

// attrs returns the attributes of the line.
func (l *requestLine) attrs() []slog.Attr {
	return append([]slog.Attr{
		slog.String("method", l.method), slog.String("path", l.path), slog.Int("status", l.status), slog.Int64("bytes", l.bytes),
		slog.Duration("duration", l.took.Round(time.Millisecond)), slog.String("client", l.client), slog.String("agent", l.agent),
		slog.String(telemetry.LogKey, l.id[0]),
	}, l.access...)
}

// statusAborted is the status of an aborted answer, in the log and for hooks.
const statusAborted = 0

// statusWriter records the status and size of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (s *statusWriter) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

func (s *statusWriter) Write(p []byte) (int, error) {
	n, err := s.ResponseWriter.Write(p)
	s.bytes += int64(n)
	return n, err
}

// Unwrap gives http.ResponseController the wrapped writer.
func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }
