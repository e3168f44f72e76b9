package serve

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
)

// Limits on clients. Without them, slow clients could hold connections forever. The download of an archive can take any time
// as long as bytes keep arriving.
const (
	headerTimeout = 10 * time.Second // for a handshake, and then for the headers of a request
	answerTimeout = 5 * time.Minute  // for a client to receive a response other than an archive
	// bodyTimeout is how long the server goes on reading the body of a request after the response. If the server closed the
	// connection immediately, a client that is still sending could lose the response.
	bodyTimeout = 10 * time.Second
	idleTimeout = 2 * time.Minute
	maxHeader   = 64 << 10
	maxStreams  = 128 // the maximum number of concurrent requests on one connection
	// pingAfter and pingTimeout end HTTP/2 connections whose client is gone. writeByteTimeout ends those whose client
	// reads nothing.
	pingAfter, pingTimeout, writeByteTimeout = 60 * time.Second, 15 * time.Second, 60 * time.Second
)

// newServer returns a server with the limits above. The handler does not see the bodies of requests.
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

// withoutBodies returns a handler that passes requests to next without their bodies. The server can therefore respond before
// the body of a request has arrived.
func withoutBodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		if r.ProtoMajor == 1 {
			// net/http reads the body before it sends the response, unless the response closes the connection. Closing the
			// connection also keeps the server from parsing a late body as another request.
			w.Header().Set("Connection", "close")
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // only the ResponseWriters of tests return an error
		}
		bodiless := r.WithContext(r.Context()) // a copy, because net/http closes the body of r
		bodiless.Body, bodiless.ContentLength = http.NoBody, 0
		next.ServeHTTP(w, bodiless)
	})
}

// serve answers requests on a listener until ctx ends, and then waits for running requests to finish. It returns an error if
// they take longer than the shutdown timeout.
func (l *live) serve(ctx context.Context, listener net.Listener) error {
	p := l.process
	server := newServer(l, p.log)
	server.TLSConfig = l.tlsConfig()
	failed := make(chan error, 1)
	go func() {
		if server.TLSConfig == nil {
			failed <- server.Serve(listener)
			return
		}
		failed <- server.ServeTLS(listener, "", "")
	}()
	p.manager.notify(daemon.SdNotifyReady + "\nSTATUS=serving")
	ended, end := context.WithCancel(context.Background())
	defer end()
	go p.manager.keepAlive(ended)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	p.draining.Store(true)
	p.ops.ready.Drain()
	p.manager.notify(daemon.SdNotifyStopping)
	g := l.current.Load().settings.gateway()
	if g.ShutdownDelay > 0 {
		p.log.Info("shutting down: requests are still answered, until load balancers notice", "for", g.ShutdownDelay)
		select {
		case err := <-failed:
			return err
		case <-time.After(g.ShutdownDelay):
		}
	}
	within := cmp.Or(g.ShutdownTimeout, config.DefaultShutdownTimeout)
	p.log.Info("shutting down: downloads under way may finish", "within", within)
	grace, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		return fmt.Errorf("shutting down: %w", errors.Join(err, server.Close()))
	}
	return nil
}

// handshakeError is how net/http begins its message about a failed handshake. The client's address and the reason follow.
const handshakeError = "http: TLS handshake error from "

// errorLog receives the messages of a net/http server. It logs them at the level debug. At most once a minute, it logs a
// failed TLS handshake as a warning instead, because a client that does not trust the certificate sends no request, so no
// other line names it.
type errorLog struct {
	log      *slog.Logger
	warnings telemetry.Throttle
}

// Write implements [io.Writer]. Each call is one message.
func (e *errorLog) Write(message []byte) (int, error) {
	text := strings.TrimSpace(string(message))
	if client, reason, ok := handshake(text); ok {
		if warn, others := e.warnings.Allow(); warn {
			e.log.Warn("a TLS handshake failed", "client", client, "err", reason, "others", others)
			return len(message), nil
		}
	}
	e.log.Debug(text)
	return len(message), nil
}

// handshake returns the client's address without its port, and the reason, from a message about a failed handshake. ok is
// false for other messages, and for a connection that the client closed before it sent anything, as a load balancer's
// health check does.
func handshake(message string) (client, reason string, ok bool) {
	rest, ok := strings.CutPrefix(message, handshakeError)
	address, reason, hasReason := strings.Cut(rest, ": ")
	if !ok || !hasReason || reason == "EOF" {
		return "", "", false
	}
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	return address, reason, true
}

// live passes each request to the current site, which another site can replace at any time. A replaced site is closed after
// its last request has ended.
type live struct {
	process *process
	mu      sync.Mutex           // guards site.uses, and is held while current is replaced
	current atomic.Pointer[site] // nil after Close
	closing sync.WaitGroup       // counts the sites that are not closed yet
}

func (l *live) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := l.begin()
	if s == nil {
		panic(http.ErrAbortHandler)
	}
	defer l.release(s)
	if l.process.draining.Load() {
		w.Header().Set("Connection", "close") // makes clients and proxies open a new connection for the next request, also with HTTP/2
	}
	s.handler.ServeHTTP(w, r)
}

// begin returns the current site. The site stays open until the caller releases it.
func (l *live) begin() *site {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.current.Load()
	if s != nil {
		s.uses++
	}
	return s
}

// release ends one use of a site. The end of the last use closes the site.
func (l *live) release(s *site) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.uses--; s.uses == 0 {
		go l.close(s)
	}
}

// replace makes s the current site. If s is nil, no more requests are served.
func (l *live) replace(s *site) {
	if s != nil {
		l.closing.Add(1)
		s.uses = 1
		l.process.ops.use(s)
	}
	l.mu.Lock()
	before := l.current.Swap(s)
	l.mu.Unlock()
	if s != nil {
		s.begin()
	}
	if before != nil {
		before.retire()
		l.release(before)
	}
}

// close closes a site that is no longer used.
func (l *live) close(s *site) {
	defer l.closing.Done()
	if err := s.Close(); err != nil {
		l.process.log.Warn("resources of earlier settings could not be closed", "err", err)
	}
}

// closeTimeout is how long the process waits for sites to close before it exits.
const closeTimeout = 10 * time.Second

// Close closes the current site, and waits until all sites are closed, for closeTimeout at most. The caller must make
// sure that no new request arrives.
func (l *live) Close() error {
	l.process.end()
	l.replace(nil)
	done := make(chan struct{})
	go func() { l.closing.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-time.After(closeTimeout):
		return errors.New("some requests have not ended")
	}
}

// tlsConfig returns a configuration that takes the certificate for each handshake from the current site, or nil for plain
// HTTP.
func (l *live) tlsConfig() *tls.Config {
	if l.current.Load().certificates == nil {
		return nil
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if s := l.current.Load(); s != nil {
				return s.certificates.configFor(hello)
			}
			return nil, context.Canceled
		},
	}
}
