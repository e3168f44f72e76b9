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
			log.Info("request", append([]any{"method", r.Method, "path", r.URL.Path, "status", out.status, "bytes", out.bytes,
				"duration", time.Since(start).Round(time.Millisecond), "client", r.RemoteAddr, "agent", r.UserAgent()},
				access.LogAttrs(r.Context())...)...)
		}()
		next.ServeHTTP(out, r)
	})
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
