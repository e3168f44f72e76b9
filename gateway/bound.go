package gateway

import (
	"net/http"
	"path"
	"time"
)

// boundBlobs limits the time that a client may take to read each piece of a blob. Without a limit, a client that
// stops reading would keep its connection open, and block a shutdown, forever. All other answers of a registry are
// documents, which package respond sends.
func boundBlobs(next http.Handler, limit time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Base(path.Dir(r.URL.Path)) == "blobs" {
			w = &boundWriter{w, http.NewResponseController(w), limit}
		}
		next.ServeHTTP(w, r)
	})
}

type boundWriter struct {
	http.ResponseWriter
	client *http.ResponseController
	limit  time.Duration
}

func (b *boundWriter) Write(p []byte) (int, error) {
	// The call fails for some ResponseWriters, but not for those of net/http's server. The error does
	// not matter. The deadline stays after the last write, because the server sends the last bytes when
	// the handler has returned.
	_ = b.client.SetWriteDeadline(time.Now().Add(b.limit))
	return b.ResponseWriter.Write(p)
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (b *boundWriter) Unwrap() http.ResponseWriter { return b.ResponseWriter }
