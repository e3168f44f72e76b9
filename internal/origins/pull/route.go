package pull

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/ocibridge/ocibridge/origin"
)

// maxTried is the number of tried addresses that count as addresses of the host while a request
// is not connected yet. A dialer tries two addresses concurrently: an IPv6 address and an IPv4
// address.
const maxTried = 2

// errCrowded means that a request was cancelled because its host already has its share of the
// slots.
var errCrowded = errors.New("the host has its share of max_concurrent")

// open opens the package at its origin. If the request goes or is redirected to a host that
// already has its share of the slots, the download loses its slot. It then waits until that
// host may have another slot, and requests the package again.
func (d *download) open(ctx context.Context, at origin.Package) (io.ReadCloser, int64, error) {
	for {
		// The context is not cancelled on return, because reads of the body still need it. It
		// ends with ctx.
		asking, cancel := context.WithCancelCause(ctx)
		way := &route{room: d.room, cancel: cancel}
		body, size, err := at.Open(origin.WatchHosts(asking, way.asks))
		if !way.isCrowded(err == nil) {
			return body, size, outage(err)
		}
		if err == nil {
			body.Close()
		}
		if err := d.p.limit.waitForSlot(ctx, d.room); err != nil {
			return nil, 0, err
		}
	}
}

// route follows the requests of a download through redirects. The download counts only for the
// host of the last request, because that host sends the package.
type route struct {
	room   *reservation
	cancel context.CancelCauseFunc // ends the requests

	mu        sync.Mutex // guards the following
	last      []string   // the host of the last request: its name, then its addresses; never changed in place
	connected bool       // the last request is connected
	crowded   bool       // the host of the last request already has its share of the slots
	failed    bool       // the package could not be opened
	open      bool       // the package is being read
}

// asks records a host that [origin.WatchHosts] reports. It cancels the requests if the host
// already has its share of the slots. Once the package is being read, asks only records the
// host, because a download that resumes keeps its slot.
func (w *route) asks(host origin.AskedHost) {
	w.mu.Lock()
	defer w.mu.Unlock()
	address := host.Address.String()
	switch {
	case w.crowded || w.failed:
		return
	case !host.Address.IsValid():
		w.last, w.connected = []string{host.Name}, false
	case len(w.last) == 0 || w.last[0] != host.Name:
		return // the address belongs to an earlier request
	case host.Connected:
		w.last, w.connected = []string{host.Name, address}, true
	case w.connected || slices.Contains(w.last, address):
		return
	default:
		tried := w.last[max(1, len(w.last)-maxTried+1):]
		w.last = slices.Concat([]string{host.Name}, tried, []string{address})
	}
	if !w.room.asks(w.last, w.open) {
		w.crowded = true
		w.cancel(errCrowded)
	}
}

// isCrowded reports whether the requests were cancelled because a host already has its share of
// the slots. If it returns false, no later request can cost the download its slot.
func (w *route) isCrowded(opened bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.crowded:
	case !opened:
		w.failed = true
	default:
		w.open = true
		if w.last != nil {
			w.room.comesFrom(w.last)
		}
	}
	return w.crowded
}
