// Package ports reserves the ports of servers that a test has stopped. Otherwise the system may give such a
// port to another server, which would answer requests to the stopped one.
package ports

import "net/netip"

// Held are reserved addresses at which connections are refused. Its zero value is empty. It is not safe for
// concurrent use.
type Held struct{ release []func() }

// Hold reserves an address, "127.0.0.1:PORT", whose listener has ended, until [Held.Release]. A server can
// still listen at exactly that port. An address that is in use again is not reserved.
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
