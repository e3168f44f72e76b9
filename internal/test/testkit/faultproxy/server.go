package faultproxy

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
)

// ConnFault is a fault of a connection. It works with any protocol, because it counts the bytes that the server
// sends, including those of TLS.
type ConnFault struct {
	Reset int           // reset the connection after this many bytes; 0 means never
	Stall int           // stop sending after this many bytes; 0 means never
	Pause time.Duration // the pause before each piece of at most Piece bytes
	Piece int
}

// Server is a proxy with a listener.
type Server struct {
	*Proxy
	Addr string // the listen address

	listen func() (net.Listener, error)
	tls    *tls.Config

	mu     sync.Mutex
	server *http.Server // nil while it refuses connections
	ended  chan struct{}
}

// Start starts a proxy on a free port of the loopback interface, with TLS if config is not nil.
func Start(next http.Handler, config *tls.Config) (*Server, error) {
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := first.Addr().String()
	return Serve(New(next), config, func() (net.Listener, error) {
		if l := first; l != nil {
			first = nil
			return l, nil
		}
		return net.Listen("tcp", address)
	})
}

// For is like [Start], but fails the test if there is an error. It stops the server when the test ends.
func For(tb testkit.TB, next http.Handler, config *tls.Config) *Server {
	tb.Helper()
	s, err := Start(next, config)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(s.Close)
	return s
}

// Serve starts a proxy on the listener that listen returns. After [Server.Refuse], [Server.Accept] calls listen
// again.
func Serve(p *Proxy, config *tls.Config, listen func() (net.Listener, error)) (*Server, error) {
	s := &Server{Proxy: p, listen: listen, tls: config}
	return s, s.Accept()
}

// Accept listens again after [Server.Refuse].
func (s *Server) Accept() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		return nil
	}
	l, err := s.listen()
	if err != nil {
		return err
	}
	s.Addr = l.Addr().String()
	l = &faultListener{l, s.Proxy}
	if s.tls != nil {
		config := s.tls.Clone()
		config.NextProtos = []string{"h2", "http/1.1"}
		l = tls.NewListener(l, config)
	}
	s.server = &http.Server{
		Handler: s.Proxy, ConnContext: connContext, ErrorLog: log.New(io.Discard, "", 0), // do not log the errors of connections that a test cuts
	}
	s.ended = make(chan struct{})
	go func(server *http.Server, ended chan struct{}) {
		defer close(ended)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			panic(err) // a local listener ends with no other error
		}
	}(s.server, s.ended)
	return nil
}

// Refuse closes all connections, and refuses new connections until [Server.Accept].
func (s *Server) Refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		_ = s.server.Close() // ignore the error, because it is only about single connections
		<-s.ended
		s.server = nil
	}
}

// Close stops the server.
func (s *Server) Close() { s.Refuse() }

type faultListener struct {
	net.Listener
	p *Proxy
}

// Accept implements [net.Listener].
func (l *faultListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	f := l.p.conns
	if f == (ConnFault{}) {
		return c, nil
	}
	l.p.hits++
	return &faultConn{Conn: c, fault: f, gone: make(chan struct{})}, nil
}

// faultConn is the server's end of a connection with a fault.
type faultConn struct {
	net.Conn
	fault ConnFault
	once  sync.Once
	gone  chan struct{} // closed when the connection is closed

	mu   sync.Mutex
	sent int
}

// NetConn returns the wrapped connection.
func (c *faultConn) NetConn() net.Conn { return c.Conn }

// Close implements [net.Conn].
func (c *faultConn) Close() error {
	c.once.Do(func() { close(c.gone) })
	return c.Conn.Close()
}

// Write implements [net.Conn].
func (c *faultConn) Write(p []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n < len(p) && err == nil {
		piece := p[n:]
		if c.fault.Pause > 0 {
			piece = piece[:min(len(piece), max(1, c.fault.Piece))]
			c.pause(time.After(c.fault.Pause))
		}
		for _, limit := range []int{c.fault.Reset, c.fault.Stall} {
			if limit > 0 {
				piece = piece[:min(len(piece), max(0, limit-c.sent))]
			}
		}
		if len(piece) == 0 {
			if c.fault.Reset > 0 && c.sent >= c.fault.Reset {
				reset(c.Conn)
				return n, net.ErrClosed
			}
			c.pause(nil)
			return n, net.ErrClosed
		}
		var m int
		m, err = c.Conn.Write(piece)
		n, c.sent = n+m, c.sent+m
	}
	return n, err
}

// pause waits until the timer fires or the connection is closed. A nil timer never fires.
func (c *faultConn) pause(until <-chan time.Time) {
	select {
	case <-until:
	case <-c.gone:
	}
}
