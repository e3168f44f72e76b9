// Package ports reserves the ports of servers that a test has stopped. Otherwise the system might give such a
// port to another server, which would then answer requests that are meant for the stopped server.
package ports

import "net/netip"

// Held is a set of reserved addresses, which refuse connections. The zero value is an empty set. It is not
// safe for concurrent use.
type Held struct{ release []func() }

// Hold reserves an address, "127.0.0.1:PORT", whose listener is closed, until [Held.Release]. A server that
// asks for exactly that port can still listen there. If the address is in use again, Hold does nothing.
func (h *Held) Hold(addr string) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil || !at.Addr().Is4() {
		return
	}
	release, err := bind(at)
	if err != nil {
		return
	}
	h.release = append(h.release, release)
}

// Release releases all addresses.
func (h *Held) Release() {
	for _, release := range h.release {
		release()
	}
	h.release = nil
}
