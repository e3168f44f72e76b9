package gateway

import (
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/ocibridge/ocibridge/gateway/access"
)

// logged writes a line a request. Paths hold no secret once capabilities are out
// of them; headers and queries, which may, are not written.
func logged(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		out := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		defer func() {
			if p := recover(); p != nil {
				if p != http.ErrAbortHandler {
					log.Error("panic", "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
				}
				out.status = statusAborted
				defer panic(http.ErrAbortHandler)
			}
			logRequest(log, r, out.status, out.bytes, start)
		}()
		next.ServeHTTP(out, r)
	})
}

// logRequest writes a request's line. It is written for each, and made accordingly:
// nothing is formatted that the log does not want, nor here what it formats later.
func logRequest(log *slog.Logger, r *http.Request, status int, bytes int64, start time.Time) {
	ctx := r.Context()
	if !log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	now := time.Now()
	line := &requestLine{
		method: r.Method, path: r.URL.Path, client: r.RemoteAddr, agent: r.UserAgent(),
		status: status, bytes: bytes, took: now.Sub(start), access: access.LogAttrs(ctx),
	}
	if h, ok := log.Handler().(LateHandler); ok {
		h.HandleLate(now, slog.LevelInfo, "request", line)
		return
	}
	record := slog.NewRecord(now, slog.LevelInfo, "request", 0)
	record.AddAttrs(slog.Attr{Value: slog.AnyValue(line)})
	_ = log.Handler().Handle(ctx, record) // as a Logger does
}

// LateHandler is a [slog.Handler] that makes a record later of what it is given, on
// a stack that is not a request's: records are large, and handed on by value.
type LateHandler interface {
	slog.Handler
	// HandleLate logs a record with the one attribute, which has no name. It is for
	// levels that are enabled.
	HandleLate(t time.Time, level slog.Level, msg string, attr slog.LogValuer)
}

// requestLine is what the log says of a request. It is one attribute, and without a
// name, so that handlers write what is in it: many would cost each request more
// stack than its answer takes.
type requestLine struct {
	method, path, client, agent string
	status                      int
	bytes                       int64
	took                        time.Duration
	access                      []slog.Attr
}

var _ slog.LogValuer = (*requestLine)(nil)

// LogValue implements [slog.LogValuer].
func (l *requestLine) LogValue() slog.Value {
	return slog.GroupValue(append([]slog.Attr{
		slog.String("method", l.method), slog.String("path", l.path), slog.Int("status", l.status), slog.Int64("bytes", l.bytes),
		slog.Duration("duration", l.took.Round(time.Millisecond)), slog.String("client", l.client), slog.String("agent", l.agent),
	}, l.access...)...)
}

// statusAborted is what the log says of an answer that was broken off.
const statusAborted = 0

// statusWriter remembers what was answered.
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

// Unwrap gives http.ResponseController the writer below.
func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }
