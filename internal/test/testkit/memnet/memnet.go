// Package memnet provides a network in memory for real clients and servers, for tests that use the virtual time
// of package testing/synctest. A goroutine that waits for this network is durably blocked, so minutes of silence
// take no real time.
//
// Unlike net.Pipe, the network has buffers, half-closed connections and resets, as TCP has. A dial can fail
// because the address refuses connections, or because its host name is unknown.
package memnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
)

// backlog is the maximum number of connections that wait at one address to be accepted.
const backlog = 128

// Network is a network in memory. Use [New] to create one.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*listener
	failing   map[string]error
	open      []*conn
}

// New returns a network without listeners.
func New() *Network {
	return &Network{listeners: map[string]*listener{}, failing: map[string]error{}}
}

// Listen listens at an address, HOST:PORT. It returns an error if another listener uses the address.
func (n *Network) Listen(address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[address] != nil {
		return nil, dialError("listen", address, os.NewSyscallError("bind", syscall.EADDRINUSE))
	}
	l := &listener{network: n, address: addr(address), queue: make(chan *conn, backlog), closed: make(chan struct{})}
	n.listeners[address] = l
	return l, nil
}

// Refused returns the error of a dial to an address without a listener.
func Refused() error { return os.NewSyscallError("connect", syscall.ECONNREFUSED) }

// Unknown returns the error of a dial to an unknown host.
func Unknown(host string) error {
	return &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// NoAnswer returns the error of a dial to a host whose name servers do not answer.
func NoAnswer(host string) error {
	return &net.DNSError{Err: "server misbehaving", Name: host, IsTemporary: true}
}

var errSilence = errors.New("nobody answers")

// Silence returns an error for [Network.Fail] that stands for the loss of all packets. With this error, a dial
// waits until its context ends.
func Silence() error { return errSilence }

// Fail makes all dials to an address fail with err, and resets the open connections to the address. If err is
// nil, dials succeed again.
func (n *Network) Fail(address string, err error) {
	n.mu.Lock()
	if err == nil {
		delete(n.failing, address)
		n.mu.Unlock()
		return
	}
	n.failing[address] = err
	open := slices.Clone(n.open)
	n.mu.Unlock()
	for _, c := range open {
		if c.to == address {
			c.Reset()
		}
	}
}

// Dial connects to an address, as a dialer's DialContext does.
func (n *Network) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	l, err := n.listeners[address], n.failing[address]
	n.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil, dialError("dial", address, ctx.Err())
	case err == errSilence:
		<-ctx.Done()
		return nil, dialError("dial", address, os.ErrDeadlineExceeded)
	case err != nil:
		return nil, dialError("dial", address, err)
	case l == nil:
		return nil, dialError("dial", address, Refused())
	}
	client, server := newConns(n, address)
	n.mu.Lock()
	failing := n.failing[address] != nil
	if !failing {
		n.open = append(n.open, client, server) // before anything else, so that Fail also resets this connection
	}
	n.mu.Unlock()
	if failing { // since the check above
		return n.Dial(ctx, "", address)
	}
	select {
	case l.queue <- server:
		return client, nil
	case <-l.closed:
		err = Refused()
	case <-ctx.Done():
		err = ctx.Err()
	}
	client.Close()
	server.Close()
	return nil, dialError("dial", address, err)
}

// Open returns a description of each open end of a connection, such as "client of registry.test:443".
func (n *Network) Open() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for _, c := range n.open {
		out = append(out, fmt.Sprintf("%s of %s", c.role, c.to))
	}
	return out
}

func (n *Network) closed(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i := slices.Index(n.open, c); i >= 0 {
		n.open = slices.Delete(n.open, i, i+1)
	}
}

func dialError(op, address string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Addr: addr(address), Err: err}
}

type listener struct {
	network *Network
	address addr
	queue   chan *conn
	closed  chan struct{}
	once    sync.Once
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.address, Err: net.ErrClosed}
	}
}

// Close implements [net.Listener]. It resets the connections that still wait to be accepted.
func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.network.mu.Lock()
		delete(l.network.listeners, string(l.address))
		l.network.mu.Unlock()
		for {
			select {
			case c := <-l.queue:
				c.Reset()
			default:
				return
			}
		}
	})
	return nil
}

// Addr implements [net.Listener].
func (l *listener) Addr() net.Addr { return l.address }

type addr string

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return string(a) }
