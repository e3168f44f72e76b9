// Package ports reserves the ports of servers that a test has stopped. Otherwise the system can give such a port
// to another server, which then gets requests for the stopped server.
package ports

import "net/netip"

// Held is a set of reserved addresses. Connections to them are refused. The zero value is an empty set. Held is
// not safe for concurrent use.
type Held struct{ release []func() }

// Hold reserves an address, "127.0.0.1:PORT", until [Held.Release]. The listener at that address must be closed.
// A server that asks for exactly this port can still listen there. If the address is already in use again, Hold
// does nothing.
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
