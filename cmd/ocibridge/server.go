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
	// bodyTimeout and maxBody bound what it sends beside its question: nothing here
	// needs any.
	bodyTimeout = 10 * time.Second
	maxBody     = 64 << 10
	idleTimeout = 2 * time.Minute
	maxHeader   = 64 << 10
	// maxStreams is how many requests of one connection are under way at once.
	maxStreams = 128
	// pingAfter and pingTimeout find HTTP/2 connections that nobody is at the other
	// end of, and writeByteTimeout those that take nothing.
	pingAfter, pingTimeout = 60 * time.Second, 15 * time.Second
	writeByteTimeout       = 60 * time.Second
)

// newServer returns a server whose limits are those above.
func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           boundBodies(handler),
		ReadHeaderTimeout: headerTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams,
			SendPingTimeout:      pingAfter, PingTimeout: pingTimeout, WriteByteTimeout: writeByteTimeout,
		},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// boundBodies bounds what clients send beside their questions. A server reads some
// of it even after its answer.
func boundBodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			// Not every ResponseWriter has deadlines; those of a server do.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		}
		next.ServeHTTP(w, r)
	})
}
