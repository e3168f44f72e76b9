package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// live answers by the site that is in force. Another one takes its place between
// requests: those under way are answered by the one that they began with, which is
// closed after the last of them.
type live struct {
	process *process
	current atomic.Pointer[site] // nil at the end
	closing sync.WaitGroup       // of sites that were in force
}

// ServeHTTP implements [http.Handler].
func (l *live) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := l.use()
	if s == nil {
		panic(http.ErrAbortHandler)
	}
	defer l.leave(s)
	if l.process.draining.Load() {
		// Has clients, and proxies above all, come by a new connection next time, be it
		// over HTTP/2 or not: this one is about to end.
		w.Header().Set("Connection", "close")
	}
	s.handler.ServeHTTP(w, r)
}

// use returns the site in force, which is not closed before it is left.
func (l *live) use() *site {
	for {
		s := l.current.Load()
		if s == nil || s.enter() {
			return s
		}
	}
}

// enter counts a user of a site, unless it has had its last one.
func (s *site) enter() bool {
	for {
		n := s.users.Load()
		if n == 0 {
			return false
		}
		if s.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (l *live) leave(s *site) {
	if s.users.Add(-1) > 0 {
		return
	}
	go func() {
		defer l.closing.Done()
		if err := s.Close(); err != nil {
			l.process.log.Warn("what earlier settings needed could not be closed", "err", err)
		}
	}()
}

// replace puts a site, or none, in the place of the one in force.
func (l *live) replace(s *site) {
	if s != nil {
		s.users.Store(1) // l itself
		l.process.ops.use(s.back, s.catalog, s.cache)
		l.closing.Add(1)
	}
	before := l.current.Swap(s)
	if s != nil {
		for _, f := range s.begins {
			f()
		}
	}
	if before != nil {
		for _, f := range before.retires {
			f()
		}
		l.leave(before)
	}
}

// closeTimeout bounds how long the end of the process waits for what its last
// requests used.
const closeTimeout = 10 * time.Second

// Close closes the site in force. No request may come any more.
func (l *live) Close() error {
	l.process.end()
	l.replace(nil)
	done := make(chan struct{})
	go func() { l.closing.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-time.After(closeTimeout):
		return errors.New("requests do not end")
	}
}

// tlsConfig is how TLS is spoken by the site in force; nil for not at all.
func (l *live) tlsConfig() *tls.Config {
	if l.current.Load().tls == nil {
		return nil
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if s := l.current.Load(); s != nil {
				return s.tls.GetConfigForClient(hello)
			}
			return nil, context.Canceled
		},
	}
}

// pool has what sites share that are there at the same time, such as a folder's
// cache. What is in it is closed with the last that uses it.
type pool struct {
	mu   sync.Mutex
	open map[any]*pooled
}

type pooled struct {
	io.Closer
	users int
}

// share returns what is open by a key, which anything comparable may be, or opens
// it. The caller calls done once.
func share[T io.Closer](p *pool, key any, open func() (T, error)) (shared T, done func() error, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.open[key]
	if found == nil {
		if shared, err = open(); err != nil {
			return shared, nil, err
		}
		if p.open == nil {
			p.open = map[any]*pooled{}
		}
		found = &pooled{Closer: shared}
		p.open[key] = found
	}
	found.users++
	return found.Closer.(T), func() error { return p.leave(key, found) }, nil
}

func (p *pool) leave(key any, left *pooled) error {
	p.mu.Lock()
	if left.users--; left.users > 0 {
		p.mu.Unlock()
		return nil
	}
	delete(p.open, key)
	p.mu.Unlock()
	return left.Close()
}
