// Package ports keeps the ports of servers that a test has ended from others: the
// system would give them to the next that asks for any, and requests to who is gone
// would be answered.
package ports

import "net/netip"

// Held are addresses at which connections are refused. Its zero value has none. It is
// not safe for concurrent use.
type Held struct{ release []func() }

// Hold keeps an address, "127.0.0.1:PORT", at which nobody listens any more, until
// [Held.Release]. Who asks for that very port still gets it. One that was taken
// meanwhile stays with who has it.
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

// Release gives them back.
func (h *Held) Release() {
	for _, release := range h.release {
		release()
	}
	h.release = nil
}
