package memnet

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// window is the maximum number of bytes in flight in one direction.
const window = 64 << 10

// conn is one end of a connection.
type conn struct {
	network  *Network
	role, to string // role is "client" or "server"; to is the dialled address
	in, out  *stream
}

func newConns(n *Network, to string) (client, server *conn) {
	a, b := newStream(), newStream()
	return &conn{n, "client", to, a, b}, &conn{n, "server", to, b, a}
}

// Read implements [net.Conn].
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	return n, c.explain("read", err)
}

// Write implements [net.Conn].
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.out.write(p)
	return n, c.explain("write", err)
}

func (c *conn) explain(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Addr: addr(c.to), Err: err}
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.in.readerCloses()
	c.out.writerCloses()
	c.network.closed(c)
	return nil
}

// CloseWrite closes the sending direction.
func (c *conn) CloseWrite() error {
	c.out.writerCloses()
	return nil
}

// Reset ends the connection as a TCP reset does. The bytes in flight are lost, and the other end gets an error.
func (c *conn) Reset() {
	c.in.reset()
	c.out.reset()
	_ = c.Close() // always succeeds
}

// LocalAddr implements [net.Conn].
func (c *conn) LocalAddr() net.Addr { return addr(c.role) }

// RemoteAddr implements [net.Conn].
func (c *conn) RemoteAddr() net.Addr { return addr(c.to) }

// SetDeadline implements [net.Conn].
func (c *conn) SetDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.readBy, t)
	c.out.setDeadline(&c.out.writeBy, t)
	return nil
}

// SetReadDeadline implements [net.Conn].
func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.readBy, t)
	return nil
}

// SetWriteDeadline implements [net.Conn].
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.setDeadline(&c.out.writeBy, t)
	return nil
}

// stream carries one direction of a connection.
type stream struct {
	mu      sync.Mutex
	changed *sync.Cond

	buf             []byte
	ended           bool // whether the writer has closed its end; reads then return io.EOF after buf
	unread          bool // whether the reader has closed its end
	cut             bool // whether the connection was reset
	readBy, writeBy deadline
}

type deadline struct {
	at    time.Time // the zero time means never
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func newStream() *stream {
	s := &stream{}
	s.changed = sync.NewCond(&s.mu)
	return s
}

func (s *stream) read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.unread && !s.cut:
			return 0, net.ErrClosed
		case s.cut:
			return 0, os.NewSyscallError("read", syscall.ECONNRESET)
		case s.readBy.passed():
			return 0, os.ErrDeadlineExceeded
		case len(s.buf) > 0 || len(p) == 0:
			n := copy(p, s.buf)
			s.buf = s.buf[n:]
			s.changed.Broadcast()
			return n, nil
		case s.ended:
			return 0, io.EOF
		}
		s.changed.Wait()
	}
}

func (s *stream) write(p []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.cut:
			return n, os.NewSyscallError("write", syscall.ECONNRESET)
		case s.ended:
			return n, net.ErrClosed
		case s.unread:
			return n, os.NewSyscallError("write", syscall.EPIPE)
		case s.writeBy.passed():
			return n, os.ErrDeadlineExceeded
		}
		if room := min(window-len(s.buf), len(p)); room > 0 {
			s.buf = append(s.buf, p[:room]...)
			p, n = p[room:], n+room
			s.changed.Broadcast()
		}
		if len(p) == 0 {
			return n, nil
		}
		s.changed.Wait()
	}
}

func (s *stream) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.changed.Broadcast()
}

func (s *stream) writerCloses() {
	s.change(func() {
		s.ended = true
		s.stop(&s.writeBy)
	})
}

func (s *stream) readerCloses() {
	s.change(func() {
		s.unread = true
		s.stop(&s.readBy)
	})
}

func (s *stream) reset() { s.change(func() { s.cut, s.buf = true, nil }) }

func (s *stream) stop(d *deadline) {
	if d.timer != nil {
		d.timer.Stop()
	}
}

func (s *stream) setDeadline(d *deadline, at time.Time) {
	s.change(func() {
		s.stop(d)
		d.at = at
		if until := time.Until(at); !at.IsZero() && until > 0 {
			d.timer = time.AfterFunc(until, func() { s.change(func() {}) })
		}
	})
}
