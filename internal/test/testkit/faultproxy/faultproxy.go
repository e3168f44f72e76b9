// Package faultproxy injects faults between an HTTP client and a server. A proxy wraps a handler, such as a
// reverse proxy to another process. During a fault, the proxy's responses are wrong, late, incomplete or
// missing.
//
// A fault applies to requests ([Proxy.Begin]) or to connections ([Proxy.Conns]). The test begins and ends each
// fault. [Server] is a proxy with a listener. It can also refuse connections.
package faultproxy

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// An Exchange is a request to which a fault is applied.
type Exchange struct {
	W    http.ResponseWriter
	R    *http.Request
	Next http.Handler    // the wrapped handler
	Over <-chan struct{} // closed when the fault ends
}

// A Fault responds to a request in place of the wrapped handler. It can call the wrapped handler.
type Fault func(*Exchange)

// A Rule selects the requests to which a fault is applied.
type Rule struct {
	Match func(*http.Request) bool // nil matches all requests
	Fault Fault
	Skip  int // the number of matching requests to pass through before the fault is applied
	Times int // the number of requests to which the fault is then applied; 0 means all
}

type rule struct {
	Rule
	seen int
	over chan struct{}
}

// Proxy is a handler that wraps another handler. Its methods are safe for concurrent use.
type Proxy struct {
	next http.Handler

	mu    sync.Mutex
	rules []*rule
	conns ConnFault
	hits  int
}

var _ http.Handler = (*Proxy)(nil)

// New returns a proxy without faults.
func New(next http.Handler) *Proxy { return &Proxy{next: next} }

// Begin begins a fault, and returns a function that ends the fault. The function may be called more than once.
// If several rules select a request, only the fault that began first is applied.
func (p *Proxy) Begin(r Rule) (end func()) {
	if r.Match == nil {
		r.Match = func(*http.Request) bool { return true }
	}
	active := &rule{Rule: r, over: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, active)
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.rules = slices.DeleteFunc(p.rules, func(r *rule) bool { return r == active })
		close(active.over)
	})
}

// Conns applies a fault to each connection that is accepted from now on. The zero ConnFault means no fault.
func (p *Proxy) Conns(f ConnFault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = f
}

// Hits returns the number of requests and connections to which a fault was applied.
func (p *Proxy) Hits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hits
}

// choose returns the rule whose fault is applied to a request. It returns nil if no fault is applied.
func (p *Proxy) choose(r *http.Request) *rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, rule := range p.rules {
		if !rule.Match(r) {
			continue
		}
		rule.seen++
		if rule.seen <= rule.Skip || rule.Times > 0 && rule.seen > rule.Skip+rule.Times {
			continue
		}
		p.hits++
		return rule
	}
	return nil
}

// ServeHTTP implements [http.Handler].
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if rule := p.choose(r); rule != nil {
		rule.Fault(&Exchange{W: w, R: r, Next: p.next, Over: rule.over})
		return
	}
	p.next.ServeHTTP(w, r)
}

type connKey struct{}

// connContext is an [http.Server.ConnContext]. It stores the connection of a request in the request's context,
// so that a fault can reset the connection.
func connContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// Cut resets the connection of the request. If the connection cannot be reset, Cut closes it. Cut does not
// return.
func (x *Exchange) Cut() {
	if c, ok := x.R.Context().Value(connKey{}).(net.Conn); ok {
		reset(c)
	}
	panic(http.ErrAbortHandler)
}

// reset closes a connection in such a way that the other end sees a reset.
func reset(c net.Conn) {
	below := c
	for {
		if w, ok := below.(interface{ NetConn() net.Conn }); ok {
			below = w.NetConn()
			continue
		}
		break
	}
	switch c := below.(type) {
	case interface{ Reset() }:
		c.Reset()
	case *net.TCPConn:
		// SetLinger fails only if the connection is already closed.
		_ = c.SetLinger(0)
	}
	_ = below.Close()
}

// abort aborts the request. An HTTP/2 connection stays open for its other requests.
func (x *Exchange) abort() { panic(http.ErrAbortHandler) }

// stall waits until the fault ends or the client disconnects. If the fault ends, stall cuts the connection. If
// the client disconnects, stall aborts the request.
func (x *Exchange) stall() {
	select {
	case <-x.Over:
		x.Cut()
	case <-x.R.Context().Done():
		x.abort()
	}
}

// pause waits for the duration d or until the fault ends. If the client disconnects, pause aborts the request.
func (x *Exchange) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-x.Over:
	case <-x.R.Context().Done():
		x.abort()
	}
}
