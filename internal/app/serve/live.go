package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// live passes each request to the current site. Another site can replace the current site
// at any time. A replaced site is closed after its last request has ended.
type live struct {
	process *process
	mu      sync.Mutex           // guards site.uses, and is held while current is replaced
	current atomic.Pointer[site] // nil after Close
	closing sync.WaitGroup       // counts the sites that are not closed yet
}

// ServeHTTP implements [http.Handler].
func (l *live) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := l.begin()
	if s == nil {
		panic(http.ErrAbortHandler)
	}
	defer l.release(s)
	if l.process.draining.Load() {
		// Because of this header, clients and proxies use a new connection for the next
		// request. The header has this effect over HTTP/2, too.
		w.Header().Set("Connection", "close")
	}
	s.handler.ServeHTTP(w, r)
}

// begin returns the current site, which stays open until the caller releases it.
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

// Close closes the current site, and waits until all sites are closed. It returns an error
// if they are not closed after closeTimeout. The caller makes sure that no new request
// arrives.
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

// tlsConfig returns a configuration that takes the certificate for each handshake from the
// current site. It returns nil for plain HTTP.
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
