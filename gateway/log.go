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
// nothing is formatted that the log does not want.
func logRequest(log *slog.Logger, r *http.Request, status int, bytes int64, start time.Time) {
	if !log.Enabled(r.Context(), slog.LevelInfo) {
		return
	}
	attrs := append(make([]slog.Attr, 0, 9),
		slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Int("status", status), slog.Int64("bytes", bytes),
		slog.Duration("duration", time.Since(start).Round(time.Millisecond)), slog.String("client", r.RemoteAddr), slog.String("agent", r.UserAgent()))
	log.LogAttrs(r.Context(), slog.LevelInfo, "request", append(attrs, access.LogAttrs(r.Context())...)...)
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
