package serve

import (
	stdlog "log"
	"log/slog"
	"net/http"
	"time"
)

// Limits on clients. Without them, slow clients could hold connections forever. Archives
// have other limits. The download of an archive can take any time as long as bytes keep
// arriving.
const (
	// headerTimeout is the timeout for a handshake, and then for the headers of a request.
	headerTimeout = 10 * time.Second
	// answerTimeout is how long a client can take to receive a response other than an
	// archive.
	answerTimeout = 5 * time.Minute
	// bodyTimeout is how long the server goes on reading the body of a request after the
	// response. If the server closed the connection immediately, a client that is still
	// sending could lose the response.
	bodyTimeout = 10 * time.Second
	idleTimeout = 2 * time.Minute
	maxHeader   = 64 << 10
	// maxStreams is the maximum number of concurrent requests on one connection.
	maxStreams = 128
	// pingAfter and pingTimeout end HTTP/2 connections whose client is gone, and
	// writeByteTimeout ends HTTP/2 connections whose client reads nothing.
	pingAfter, pingTimeout = 60 * time.Second, 15 * time.Second
	writeByteTimeout       = 60 * time.Second
)

// newServer returns a server with the limits above. The handler does not see the bodies of
// requests.
func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: withoutBodies(handler),
		// net/http's own handler for OPTIONS * waits for a body, without a deadline.
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            headerTimeout,
		WriteTimeout:                 answerTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeader,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams,
			SendPingTimeout:      pingAfter, PingTimeout: pingTimeout, WriteByteTimeout: writeByteTimeout,
		},
		ErrorLog: stdlog.New(&errorLog{log: log}, "", 0),
	}
}

// withoutBodies returns a handler that passes requests to next without their bodies. The
// server can therefore respond before the body of a request has arrived.
func withoutBodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		if r.ProtoMajor == 1 {
			// net/http reads the body before it sends the response, unless the response
			// closes the connection. Closing the connection also keeps the server from
			// parsing a late body as another request.
			w.Header().Set("Connection", "close")
			// The error is ignored because only the ResponseWriters of tests do not support
			// deadlines.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		bodiless := r.WithContext(r.Context()) // a copy, because net/http closes the body of r
		bodiless.Body, bodiless.ContentLength = http.NoBody, 0
		next.ServeHTTP(w, bodiless)
	})
}
