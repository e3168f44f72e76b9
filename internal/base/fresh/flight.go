package fresh

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/ocibridge/ocibridge/internal/base/panics"
)

// failure is the last failed fetch of a key.
type failure struct {
	err error // nil if FailureTTL is 0, because callers then never get the error
	at  time.Time
}

// entry returns the entry of a key, and pins it. The first use of the entry loads the saved answer. The caller must
// release the entry.
func (c *Cache[K, V]) entry(key K) *entry[K, V] {
	e := c.entries.acquire(key)
	if c.o.Load != nil {
		e.load.Do(func() { c.load(e) })
	}
	return e
}

func (c *Cache[K, V]) load(e *entry[K, V]) {
	c.dropping.RLock()
	defer c.dropping.RUnlock()
	if e.answer.Load() != nil {
		return
	}
	if a, ok := c.o.Load(e.key); ok && e.answer.CompareAndSwap(nil, &a) {
		c.entries.resize(e)
	}
}

// current reports whether the last answer of an entry is current. If [Options].Early is set, current starts a refresh
// of an answer that will soon expire.
func (c *Cache[K, V]) current(e *entry[K, V], last *Answer[V], now time.Time) bool {
	if !last.Current(now) || c.o.Superseded != nil && c.o.Superseded(e.key, last) {
		return false
	}
	if c.o.Early && now.Sub(last.At) >= last.TTL-last.TTL/4 && c.sinceFailure(e, now) >= failureRest {
		c.refresh(e, last)
	}
	return true
}

// sinceFailure returns how long ago the source last failed for an entry.
func (c *Cache[K, V]) sinceFailure(e *entry[K, V], now time.Time) time.Duration {
	var last time.Time
	if c.o.LastFailure != nil {
		last = c.o.LastFailure(e.key)
	}
	if f := e.failure.Load(); f != nil && f.at.After(last) {
		last = f.at
	}
	return now.Sub(last)
}

// wait waits for an answer that is newer than last, the answer that the caller has seen. If there is a stale answer, wait
// returns it when the source fails, when ctx ends, or after [Options].Patience. It also returns the counter for the
// outcome.
func (c *Cache[K, V]) wait(ctx context.Context, e *entry[K, V], last, stale *Answer[V]) (*Answer[V], *atomic.Uint64, error) {
	n := c.o.Counters
	if f := e.failure.Load(); stale == nil && f != nil && time.Since(f.at) < c.o.FailureTTL {
		return nil, &n.Failures, f.err
	}
	var patience <-chan time.Time
	if stale != nil {
		t := time.NewTimer(c.o.Patience)
		defer t.Stop()
		patience = t.C
	}
	var err error
	select {
	case r := <-c.ask(ctx, e, last):
		if r.Err == nil {
			return r.Val.(*Answer[V]), &n.Misses, nil
		}
		err = r.Err
	case <-patience:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if stale != nil {
		return stale, &n.Stale, nil
	}
	return nil, &n.Failures, err
}

// refresh asks the source in the background for an answer that is newer than last, unless a fetch of the key is in flight
// or too many other keys are being refreshed.
func (c *Cache[K, V]) refresh(e *entry[K, V], last *Answer[V]) {
	if !e.busy.CompareAndSwap(false, true) {
		return
	}
	select {
	case c.refreshes <- struct{}{}:
	default:
		e.busy.Store(false)
		return
	}
	c.o.Counters.Refreshes.Add(1)
	e.pins.Add(1)
	answered := c.ask(c.ctx, e, last)
	go func() {
		<-answered
		e.release()
		e.busy.Store(false)
		<-c.refreshes
	}()
}

// begin adds a task, for which Close waits. It returns false if the cache is closed.
func (c *Cache[K, V]) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.tasks.Add(1)
	}
	return !c.closed
}

// ask asks the source, or joins the fetch in flight. If a fetch has ended since the caller has seen the last answer, ask
// returns the newer answer.
func (c *Cache[K, V]) ask(caller context.Context, e *entry[K, V], last *Answer[V]) <-chan singleflight.Result {
	return e.flight.DoChan("", func() (any, error) {
		if latest := e.answer.Load(); latest != last {
			return latest, nil
		}
		if !c.begin() {
			return nil, ErrClosed
		}
		defer c.tasks.Done()
		return c.fetch(caller, e, last)
	})
}

// fetch asks the source, and caches its answer or its failure.
func (c *Cache[K, V]) fetch(caller context.Context, e *entry[K, V], last *Answer[V]) (*Answer[V], error) {
	select {
	case c.flights <- struct{}{}:
		defer func() { <-c.flights }()
	default:
		return nil, ErrBusy
	}
	e.pins.Add(1)
	defer e.release()
	e.busy.Store(true)
	defer e.busy.Store(false)
	ctx := c.ctx
	if c.o.Follow != nil {
		ctx = c.o.Follow(ctx, caller)
	}
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	var a Answer[V]
	err := panics.Catch(ctx, c.o.Log, func() (err error) {
		a, err = c.o.Fetch(ctx, e.key, last)
		return err
	})
	now := time.Now()
	if err != nil {
		c.failed(ctx, e, last.Stale(now), failure{err, now})
		return nil, err
	}
	save := a.Save
	a.Save = nil
	if a.At.IsZero() {
		a.At = now
	}
	e.answer.Store(&a)
	e.failure.Store(nil)
	c.entries.resize(e)
	if save != nil {
		e.pins.Add(1)
		c.tasks.Go(func() { c.save(e, save) })
	}
	return &a, nil
}

// failed records a failed fetch, and reports it to [Options].Failed.
func (c *Cache[K, V]) failed(ctx context.Context, e *entry[K, V], stale *Answer[V], f failure) {
	again := c.sinceFailure(e, f.at) < failureDoubt
	if err := f.err; c.o.Failed != nil {
		defer c.o.Failed(ctx, e.key, stale, again, err)
	}
	if c.o.FailureTTL == 0 {
		f.err = nil
	}
	e.failure.Store(&f)
	c.entries.resize(e)
}

// save saves the latest answer of an entry, unless the entry's key was dropped.
func (c *Cache[K, V]) save(e *entry[K, V], save func(*Answer[V])) {
	defer e.release()
	c.dropping.RLock()
	defer c.dropping.RUnlock()
	e.saving.Lock()
	defer e.saving.Unlock()
	if !e.dropped.Load() {
		save(e.answer.Load())
	}
}
