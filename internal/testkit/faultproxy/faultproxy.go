// Package faultproxy injects faults between an HTTP client and a server. It wraps a handler, such as a reverse
// proxy to another process. During a fault, its answers are wrong, late, incomplete or missing.
//
// Faults apply to requests ([Proxy.Begin]) or to connections ([Proxy.Conns]), and the test begins and ends
// them. [Server] is a proxy with a listener, and can refuse connections.
package faultproxy

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// An Exchange is a request that a fault applies to.
type Exchange struct {
	W    http.ResponseWriter
	R    *http.Request
	Next http.Handler    // the original handler
	Over <-chan struct{} // closed when the fault ends
}

// A Fault answers a request instead of the original handler, which it can call.
type Fault func(*Exchange)

// A Rule selects the requests that a fault applies to.
type Rule struct {
	Match func(*http.Request) bool // nil matches all requests
	Fault Fault
	Skip  int // the number of matching requests to let through first
	Times int // the number of requests that the fault then applies to; 0 means all
}

type rule struct {
	Rule
	seen int
	over chan struct{}
}

// Proxy is a handler that wraps another handler. Its methods may be called at any time.
type Proxy struct {
	next http.Handler

	mu    sync.Mutex
	rules []*rule
	conns ConnFault
	hits  int
}

var _ http.Handler = (*Proxy)(nil)

// New returns a proxy that passes everything through.
func New(next http.Handler) *Proxy { return &Proxy{next: next} }

// Begin begins a fault, and returns a function that ends it. The function may be called more than once. If
// several rules match a request, the rule that began first applies.
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

// Conns applies a fault to each connection that is accepted from now on. The zero value lets new connections
// through.
func (p *Proxy) Conns(f ConnFault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = f
}

// Hits returns the number of requests and connections that a fault was applied to.
func (p *Proxy) Hits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hits
}

// choose returns the rule that applies to a request, or nil.
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

// connContext stores the connection of a request in its context, so that a fault can cut it. It is an
// [http.Server.ConnContext].
func connContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// Cut resets the connection of a request, or closes it if it cannot be reset. It does not return.
func (x *Exchange) Cut() {
	if c, ok := x.R.Context().Value(connKey{}).(net.Conn); ok {
		reset(c)
	}
	panic(http.ErrAbortHandler)
}

// reset closes a connection so that the other side sees a reset.
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
		// This only fails on a closed connection.
		_ = c.SetLinger(0)
	}
	_ = below.Close()
}

// abort aborts the request. An HTTP/2 connection stays open for its other requests.
func (x *Exchange) abort() { panic(http.ErrAbortHandler) }

// stall waits until the fault ends or the client disconnects, and then cuts the connection or aborts the
// request, respectively.
func (x *Exchange) stall() {
	select {
	case <-x.Over:
		x.Cut()
	case <-x.R.Context().Done():
		x.abort()
	}
}

// pause waits for a duration, or until the fault ends. If the client disconnects, it aborts the request.
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
