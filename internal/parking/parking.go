// Package parking has connections cost little on which nothing is asked.
//
// A connection that net/http serves keeps two buffers and a stack that its last
// request made large, as long as it is open. Here, one of HTTP/1 that has idled for
// a moment is taken from the server, which lets go of all that, and is given back
// with the first byte of its next request. HTTP/2 multiplexes: its connections stay
// with the server.
//
// What the server has read of a next request beside the one before is not seen here.
// It looks at four bytes before it knows one: a client that sends fewer with the
// request before, and the others a second later, loses them, and is told that its
// request is a bad one. No client pipelines so.
package parking

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// parkAfter is how long a connection idles in the server before it is parked: no
// client notices that its next request is served by another goroutine.
const parkAfter = time.Second

// Listen returns a listener of TLS connections for server alone, to be given to its
// Serve, and has it hand over those that idle. Handshakes are made before the server
// sees a connection, by server.TLSConfig and within server.ReadHeaderTimeout;
// server.IdleTimeout bounds how long one is parked.
func Listen(inner net.Listener, server *http.Server) net.Listener {
	l := &listener{inner: inner, server: server, ready: make(chan net.Conn), failed: make(chan error), closed: make(chan struct{}), held: map[net.Conn]struct{}{}}
	hook := server.ConnState
	server.ConnState = func(c net.Conn, state http.ConnState) {
		if p, ok := c.(*conn); ok && state == http.StateIdle {
			p.idle.Store(true)
		}
		if hook != nil {
			hook(c, state)
		}
	}
	l.all.Go(l.accept)
	return l
}

// listener accepts connections that have shaken hands, and those that were parked.
type listener struct {
	inner  net.Listener
	server *http.Server
	ready  chan net.Conn
	failed chan error // of Accept
	once   sync.Once
	closed chan struct{}
	all    sync.WaitGroup // goroutines

	mu   sync.Mutex
	held map[net.Conn]struct{} // connections that the server does not have; nil at the end
}

// Addr implements [net.Listener].
func (l *listener) Addr() net.Addr { return l.inner.Addr() }

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case err := <-l.failed:
		return nil, err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener]. It closes the connections that the server does
// not have, too.
func (l *listener) Close() error {
	err := l.inner.Close()
	l.once.Do(func() {
		close(l.closed)
		l.mu.Lock()
		held := l.held
		l.held = nil
		l.mu.Unlock()
		for c := range held {
			_ = c.Close() // of which nobody is waiting for more
		}
		l.all.Wait()
	})
	return err
}

// accept accepts connections until the listener is closed. What is temporary about
// an error is for the server to say: it asks again after a while.
func (l *listener) accept() {
	for {
		c, err := l.inner.Accept()
		if err != nil {
			select {
			case l.failed <- err:
				continue
			case <-l.closed:
				return
			}
		}
		l.hold(tls.Server(c, l.server.TLSConfig), l.shakeHands)
	}
}

// hold has f deal with a connection that the server does not have, and gives the
// server what comes of that.
func (l *listener) hold(c *tls.Conn, f func(*tls.Conn) net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		_ = c.Close() // as all others
		return
	}
	l.held[c] = struct{}{}
	l.all.Go(func() {
		given := f(c)
		if given != nil {
			select {
			case l.ready <- given:
			case <-l.closed:
				given = nil
			}
		}
		if given == nil {
			_ = c.Close() // which idled, or failed, or ends with all others
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.held, c)
	})
}

// shakeHands returns a connection as the server is to have it. One that failed is
// the server's, too, which says so.
func (l *listener) shakeHands(c *tls.Conn) net.Conn {
	// A connection whose deadline cannot be set fails below.
	_ = c.SetDeadline(time.Now().Add(l.server.ReadHeaderTimeout))
	err := c.HandshakeContext(context.Background())
	_ = c.SetDeadline(time.Time{})
	if proto := c.ConnectionState().NegotiatedProtocol; err != nil || proto != "" && proto != "http/1.1" {
		return c
	}
	return &conn{Conn: c, l: l}
}

// wait returns a connection when something is asked, or nil if it ends before.
func (l *listener) wait(c *tls.Conn) net.Conn {
	// Where there is no deadline to be had, reading fails.
	_ = c.SetReadDeadline(time.Now().Add(l.server.IdleTimeout - parkAfter))
	var first [1]byte
	if n, _ := c.Read(first[:]); n == 0 {
		return nil
	}
	return &conn{Conn: c, l: l, first: first[:]}
}

// conn is a connection of HTTP/1 that the server has, from its handshake or from
// where it was parked to where it is parked again or ends.
type conn struct {
	*tls.Conn
	l     *listener
	first []byte // read before

	idle    atomic.Bool // nothing was read since a request was answered
	ahead   atomic.Bool // something of a next request was read beside one: it is the server's
	expired atomic.Bool // it idles so long that it is to be parked
}

// Read implements [net.Conn].
func (c *conn) Read(p []byte) (n int, err error) {
	if len(c.first) > 0 && len(p) > 0 {
		n = copy(p, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	n, err = c.Conn.Read(p)
	switch {
	case n == 1 && len(p) == 1:
		c.ahead.Store(true) // the server looks whether the client is still there
	case n > 0:
		c.idle.Store(false)
	case c.idle.Load() && errors.Is(err, os.ErrDeadlineExceeded):
		c.expired.Store(true)
	}
	return n, err
}

// SetReadDeadline implements [net.Conn]. While a connection idles, the server sets
// it so that it ends when it has idled for too long, which here is sooner.
func (c *conn) SetReadDeadline(t time.Time) error {
	if soon := time.Now().Add(parkAfter); c.parks() && soon.Before(t) {
		t = soon
	}
	return c.Conn.SetReadDeadline(t)
}

func (c *conn) parks() bool { return c.idle.Load() && !c.ahead.Load() }

// Close implements [net.Conn]. The server closes what idles for too long, which is
// parked in place of that.
func (c *conn) Close() error {
	if c.parks() && c.expired.Swap(false) {
		c.l.hold(c.Conn, c.l.wait)
		return nil
	}
	return c.Conn.Close()
}
