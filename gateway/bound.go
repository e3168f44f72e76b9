package gateway

import (
	"net/http"
	"time"
)

// boundWrites limits the time that a client may take to read each piece of a response. Without a limit,
// a client that stops reading would keep its connection open, and block a shutdown, forever.
func boundWrites(next http.Handler, limit time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&boundWriter{w, http.NewResponseController(w), limit}, r)
	})
}

type boundWriter struct {
	http.ResponseWriter
	client *http.ResponseController
	limit  time.Duration
}

func (b *boundWriter) Write(p []byte) (int, error) {
	// The call fails for some ResponseWriters, but not for those of net/http's server. The error does
	// not matter.
	_ = b.client.SetWriteDeadline(time.Now().Add(b.limit))
	defer b.client.SetWriteDeadline(time.Time{})
	return b.ResponseWriter.Write(p)
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (b *boundWriter) Unwrap() http.ResponseWriter { return b.ResponseWriter }
