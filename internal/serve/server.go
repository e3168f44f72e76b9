package serve

import (
	"log/slog"
	"net/http"
	"time"
)

// Limits on clients, so that slow ones do not hold connections for ever. Other limits apply
// to archives: a download may take long as long as bytes arrive.
const (
	// headerTimeout bounds the handshake, and then the headers of a request.
	headerTimeout = 10 * time.Second
	// answerTimeout bounds how long a client takes to receive an answer, except archives.
	answerTimeout = 5 * time.Minute
	// bodyTimeout bounds how long the server reads a body after its answer. If it closed
	// the connection at once, a client that is still sending could lose the answer.
	bodyTimeout = 10 * time.Second
	idleTimeout = 2 * time.Minute
	maxHeader   = 64 << 10
	// maxStreams bounds the concurrent requests on one connection.
	maxStreams = 128
	// pingAfter and pingTimeout end HTTP/2 connections whose client is gone, and
	// writeByteTimeout ends those whose client reads nothing.
	pingAfter, pingTimeout = 60 * time.Second, 15 * time.Second
	writeByteTimeout       = 60 * time.Second
)

// newServer returns a server with the limits above. Its handler sees requests without their
// bodies.
func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: withoutBodies(handler),
		// The answer of net/http to OPTIONS * waits for a body, without a deadline.
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            headerTimeout,
		WriteTimeout:                 answerTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeader,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams,
			SendPingTimeout:      pingAfter, PingTimeout: pingTimeout, WriteByteTimeout: writeByteTimeout,
		},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// withoutBodies hides the bodies of requests from a handler, so that the server answers
// before they arrive.
func withoutBodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		if r.ProtoMajor == 1 {
			// net/http reads the body before it answers, unless the answer closes the
			// connection. Closing also keeps a late body from being read as a request.
			w.Header().Set("Connection", "close")
			// Not every ResponseWriter has deadlines; those of a server do.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		bodiless := r.WithContext(r.Context()) // net/http closes the body that r has
		bodiless.Body, bodiless.ContentLength = http.NoBody, 0
		next.ServeHTTP(w, bodiless)
	})
}
