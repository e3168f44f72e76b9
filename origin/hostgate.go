package origin

import (
	"context"
	"hash/maphash"
	"net/http"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/ocibridge/ocibridge/internal/outgoing"
)

// hostGate limits how many answers from one host are pending or being read at the same
// time. A request holds its slot until the answer's body is closed.
type hostGate struct {
	next http.RoundTripper
	*hostSlots
}

func newHostGate(next http.RoundTripper, limit int64) *hostGate {
	slots := &hostSlots{seed: maphash.MakeSeed()}
	for i := range slots.shards {
		slots.shards[i] = semaphore.NewWeighted(limit)
	}
	return &hostGate{next, slots}
}

// over returns a gate for another transport. Both gates share one limit per host.
func (g *hostGate) over(next http.RoundTripper) *hostGate { return &hostGate{next, g.hostSlots} }

// hostSlots has a fixed number of shards, because others can choose any number of host
// names. The hosts of a shard share its slots. Few hosts are active at the same time, and
// nobody can choose a name in the shard of another host, because the seed is random.
type hostSlots struct {
	seed   maphash.Seed
	shards [256]*semaphore.Weighted
}

// wait takes a slot. The origin's clock is stopped while it waits, because the limit is
// ours.
func wait(ctx context.Context, slots *semaphore.Weighted) error {
	if slots.TryAcquire(1) {
		return nil
	}
	origin := paceOf(ctx)
	origin.stop()
	defer origin.start()
	return slots.Acquire(ctx, 1)
}

// RoundTrip implements [http.RoundTripper].
func (g *hostGate) RoundTrip(req *http.Request) (*http.Response, error) {
	slots := g.shards[maphash.String(g.seed, req.URL.Host)%uint64(len(g.shards))]
	if err := wait(req.Context(), slots); err != nil {
		return nil, err // requests to origins have no body that must be closed
	}
	release := sync.OnceFunc(func() { slots.Release(1) })
	resp, err := g.next.RoundTrip(req)
	if err != nil {
		release()
		return nil, err
	}
	outgoing.OnClose(resp, release)
	return resp, nil
}
