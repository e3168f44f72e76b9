// Package faultproxy puts faults between a client and a server of HTTP: in front
// of a handler, which may be a reverse proxy to another process, it answers
// otherwise, too late, in part or not at all, as long as it is told to.
//
// A fault is chosen by request ([Proxy.Begin]) or by connection ([Proxy.Conns]),
// and begins and ends on command. [Server] listens for it, and refuses
// connections while it is told to.
package faultproxy

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// An Exchange is a request that a fault befalls.
type Exchange struct {
	W    http.ResponseWriter
	R    *http.Request
	Next http.Handler    // what the request was for
	Over <-chan struct{} // closed when the fault ends
}

// A Fault answers in the place of what a request was for, which it may ask.
type Fault func(*Exchange)

// A Rule says which requests a fault befalls.
type Rule struct {
	Match func(*http.Request) bool // nil: all
	Fault Fault
	Skip  int // how many that match are left alone first
	Times int // how many it befalls then; 0 all
}

type rule struct {
	Rule
	seen int
	over chan struct{}
}

// Proxy is a handler in front of another. Its methods may be called at any time.
type Proxy struct {
	next http.Handler

	mu    sync.Mutex
	rules []*rule
	conns ConnFault
	hits  int
}

var _ http.Handler = (*Proxy)(nil)

// New returns a proxy that lets everything through.
func New(next http.Handler) *Proxy { return &Proxy{next: next} }

// Begin begins a fault, and returns what ends it, which may be called twice. Of
// several rules that match, the one that began first counts.
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

// Conns has a fault befall each connection that is accepted from now on; the zero
// one, none.
func (p *Proxy) Conns(f ConnFault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = f
}

// Hits returns how many requests and connections a fault has befallen.
func (p *Proxy) Hits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hits
}

// choose returns the rule for a request, nil for none.
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

// connContext lets a fault cut the connection of a request; see [http.Server].
func connContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// Cut resets the connection of a request, or ends it where there is none to be
// had, and does not return.
func (x *Exchange) Cut() {
	if c, ok := x.R.Context().Value(connKey{}).(net.Conn); ok {
		reset(c)
	}
	panic(http.ErrAbortHandler)
}

// reset ends a connection so that its other end sees a reset.
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
		// It fails only where the connection is gone already.
		_ = c.SetLinger(0)
	}
	_ = below.Close()
}

// abort ends the request alone, where connections carry several.
func (x *Exchange) abort() { panic(http.ErrAbortHandler) }

// stall waits until the fault ends, and then resets the connection, or until the
// client has had enough.
func (x *Exchange) stall() {
	select {
	case <-x.Over:
		x.Cut()
	case <-x.R.Context().Done():
		x.abort()
	}
}

// pause waits for a time, or until the fault ends.
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
