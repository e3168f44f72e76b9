package pullthrough

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"slices"
	"sync"

	"github.com/ocibridge/ocibridge/origin"
)

// maxTries is how often a download is begun that leads to a host which has its share of
// the places.
const maxTries = 3

// errCrowded ends a request to a host that has its share of the places.
var errCrowded = errors.New("the host has its share of max_concurrent")

// open opens the package at its origin. Where the request leads to a host that has its
// share of the places, the download gives its place back, waits for one of that host's
// and begins again.
func (d *download) open(ctx context.Context, at origin.Package) (io.ReadCloser, int64, error) {
	for range maxTries {
		// The body is read by asking, too, which ends with ctx.
		asking, cancel := context.WithCancelCause(ctx)
		way := &route{room: d.room, cancel: cancel}
		body, size, err := at.Open(origin.WatchHosts(asking, way.asks))
		if !way.isOver(err == nil) {
			return body, size, trouble(err)
		}
		if err == nil {
			body.Close()
		}
		if err := d.p.limit.placeAgain(ctx, d.room); err != nil {
			return nil, 0, err
		}
	}
	return nil, 0, busy("max_concurrent", retryPlace)
}

// route follows the requests of a download: the host of the last one sends the package.
type route struct {
	room   *reservation
	cancel context.CancelCauseFunc // ends the requests

	mu      sync.Mutex // guards the following
	last    []string   // the host of the last request: its name, then its addresses
	crowded bool
	open    bool // the package is being read
}

// asks notes a host, as [origin.WatchHosts] reports it. A host that has its share of the
// places ends the requests. Once the package is being read, a host only counts: an
// interrupted download that is resumed keeps its place.
func (w *route) asks(name string, address netip.Prefix) {
	w.mu.Lock()
	defer w.mu.Unlock()
	host := name
	switch {
	case !address.IsValid():
		w.last = nil // a request begins
	case len(w.last) == 0 || w.last[0] != name:
		return // of a connection that an earlier request did not wait for
	default:
		host = address.String()
	}
	if !slices.Contains(w.last, host) {
		w.last = append(w.last, host)
	}
	if fits := w.room.asks(host); !fits && !w.open {
		w.crowded = true
		w.cancel(errCrowded)
	}
}

// isOver reports whether a host on the way has its share of the places. If not, and the
// package is opened, only the last host counts from then on.
func (w *route) isOver(opened bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.crowded && opened {
		w.open = true
		if w.last != nil {
			w.room.comesFrom(w.last)
		}
	}
	return w.crowded
}
