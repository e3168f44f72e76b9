package main

import (
	"log/slog"
	"net/http"
	"time"
)

// What clients may take of the gateway's time and memory, so that slow ones do
// not hold connections for ever. Archives and what the registry sends have limits
// of their own: they may take long as long as they go on.
const (
	// headerTimeout bounds how long a client may take to shake hands and to ask.
	headerTimeout = 10 * time.Second
	// answerTimeout bounds how long it may take to receive what has no limit of its
	// own.
	answerTimeout = 5 * time.Minute
	// bodyTimeout bounds how long the server goes on reading a body after its answer.
	// If it closed the connection at once, a client that is still sending could lose
	// the answer.
	bodyTimeout = 10 * time.Second
	idleTimeout = 2 * time.Minute
	maxHeader   = 64 << 10
	// maxStreams is how many requests of one connection are under way at once.
	maxStreams = 128
	// pingAfter and pingTimeout find HTTP/2 connections that nobody is at the other
	// end of, and writeByteTimeout those that take nothing.
	pingAfter, pingTimeout = 60 * time.Second, 15 * time.Second
	writeByteTimeout       = 60 * time.Second
)

// newServer returns a server whose limits are those above. Its handler sees requests
// without their bodies.
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

// withoutBodies hides the bodies of requests from a handler, and has the server
// answer before they arrive.
func withoutBodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		if r.ProtoMajor == 1 {
			// net/http reads the body before it answers, unless it is to close the
			// connection; a body that comes late is then no new request either.
			w.Header().Set("Connection", "close")
			// Not every ResponseWriter has deadlines; those of a server do.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		bodiless := r.WithContext(r.Context()) // net/http closes the body that r has
		bodiless.Body, bodiless.ContentLength = http.NoBody, 0
		next.ServeHTTP(w, bodiless)
	})
}
