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

// live passes requests to the current site. Another site can replace it at any time. The old
// site is closed after its last request has ended.
type live struct {
	process *process
	mu      sync.Mutex           // guards the uses of sites, and is held while current is replaced
	current atomic.Pointer[site] // nil at the end
	closing sync.WaitGroup       // one for each site that is not closed
}

// ServeHTTP implements [http.Handler].
func (l *live) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := l.begin()
	if s == nil {
		panic(http.ErrAbortHandler)
	}
	defer l.release(s)
	if l.process.draining.Load() {
		// Over HTTP/2, too, clients and proxies then use a new connection next time.
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

// release ends one use of a site. The last use closes the site.
func (l *live) release(s *site) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.uses--; s.uses == 0 {
		go l.close(s)
	}
}

// replace swaps a site in. A nil site ends the service.
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

// close closes a site that is not used.
func (l *live) close(s *site) {
	defer l.closing.Done()
	if err := s.Close(); err != nil {
		l.process.log.Warn("resources of earlier settings could not be closed", "err", err)
	}
}

// closeTimeout bounds how long the process waits at its end for sites to close.
const closeTimeout = 10 * time.Second

// Close closes the current site. The caller makes sure that no new request arrives.
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
