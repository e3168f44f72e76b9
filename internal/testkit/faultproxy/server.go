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

	"github.com/ocibridge/ocibridge/internal/testkit"
)

// ConnFault is a fault of a connection, whatever its protocol. It counts the bytes that the server sends,
// including TLS.
type ConnFault struct {
	Reset int           // after this many bytes; less than 1: never
	Stall int           // after this many bytes; less than 1: never
	Pause time.Duration // before each piece of at most Piece bytes
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

// For is [Start] for a test, and closes the server with it.
func For(tb testkit.TB, next http.Handler, config *tls.Config) *Server {
	tb.Helper()
	s, err := Start(next, config)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(s.Close)
	return s
}

// Serve starts a proxy on a listener, and calls listen again after each [Server.Refuse].
func Serve(p *Proxy, config *tls.Config, listen func() (net.Listener, error)) (*Server, error) {
	s := &Server{Proxy: p, listen: listen, tls: config}
	return s, s.Accept()
}

// Accept ends [Server.Refuse].
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
		Handler: s.Proxy, ConnContext: connContext, ErrorLog: log.New(io.Discard, "", 0), // tests cut connections on purpose
	}
	s.ended = make(chan struct{})
	go func(server *http.Server, ended chan struct{}) {
		defer close(ended)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			panic(err) // nothing else ends a local listener
		}
	}(s.server, s.ended)
	return nil
}

// Refuse ends all connections, and refuses new ones.
func (s *Server) Refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		_ = s.server.Close() // its errors concern single connections
		<-s.ended
		s.server = nil
	}
}

// Close ends the server.
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

// faultConn is the server's side of a connection with a fault.
type faultConn struct {
	net.Conn
	fault ConnFault
	once  sync.Once
	gone  chan struct{} // closed with the connection

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

// pause waits for a duration, or for the connection's end.
func (c *faultConn) pause(until <-chan time.Time) {
	select {
	case <-until:
	case <-c.gone:
	}
}
