// Package fresh caches answers that expire. It provides single flight, expiry, early refresh, stale answers, and a bound
// on memory to every such cache.
//
// A [Cache] calls [Options].Fetch to get answers from a source. An answer is current for its TTL. After that, the cache
// asks the source again. While the source fails, the cache can serve the last answer stale for a while.
//
// Invariants:
//
//   - At most one fetch of a key is in flight. A caller that gives up does not cancel the fetch.
//   - An answer that is an error ("not found") is served only while it is current.
//   - A failed fetch leaves the last answer unchanged. A fetch that panics has failed.
//   - Memory stays within [Options].MaxBytes, apart from keys that are being fetched and the answer that was used last.
//     Keys without a good answer share an eighth of the memory, so that requests for things that do not exist evict no
//     good answer.
//   - After [Cache.Drop], earlier answers for the dropped keys are not saved, and are served only to callers that were
//     already waiting for them.
package fresh

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Forever is the TTL of an answer that never expires.
const Forever time.Duration = math.MaxInt64

var (
	// ErrBusy means that too many fetches are in flight.
	ErrBusy = errors.New("too many requests are waiting for an answer")
	// ErrClosed means that the cache was closed.
	ErrClosed = errors.New("shutting down")
)

// Answer is one answer of the source. It does not change once it is in the cache.
type Answer[V any] struct {
	Value V
	// Err, if not nil, is the source's answer, such as "not found". A source that fails gives no answer.
	Err error
	// At is when the source gave the answer. If it is zero, the cache sets it to the end of the fetch.
	At time.Time
	// TTL is how long the answer is current, counted from At. An answer with a TTL of zero is served to the callers that
	// are waiting for it, and afterwards only as a stale answer.
	TTL time.Duration
	// StaleFor is how long the answer can be served while the source fails, counted from At.
	StaleFor time.Duration
	// Save, if not nil, is called once in the background after the answer is cached, unless its key was dropped. Latest is
	// the answer that the cache holds at that time.
	Save func(latest *Answer[V])
}

// Current reports whether the answer can be served without asking the source again.
func (a *Answer[V]) Current(now time.Time) bool {
	if a == nil {
		return false
	}
	age := now.Sub(a.At)
	return a.TTL == Forever || 0 <= age && age < a.TTL // the clock may have gone backwards
}

// Stale returns the answer if it can be served while the source fails, or else nil.
func (a *Answer[V]) Stale(now time.Time) *Answer[V] {
	if a == nil || a.Err != nil || now.Sub(a.At) >= a.StaleFor {
		return nil
	}
	return a
}

// Options configure a [Cache]. Key and Fetch are required.
type Options[K, V any] struct {
	// Key returns the name under which a key's answer is cached.
	Key func(K) string
	// Fetch asks the source. Last is the previous answer, or nil. An error means that the source failed. A panic becomes an
	// error, because it would end the process, and not only one request.
	Fetch func(ctx context.Context, key K, last *Answer[V]) (Answer[V], error)
	// Load returns the saved answer for a key. It is called when a key is first used.
	Load func(key K) (a Answer[V], ok bool)
	// Superseded reports whether a later answer for another key contradicts the given current answer.
	Superseded func(key K, a *Answer[V]) bool
	// Failed is called after each failed fetch. Stale is the answer that is served instead, or nil. Again means that
	// another fetch failed in the preceding 30 s.
	Failed func(ctx context.Context, key K, stale *Answer[V], again bool, err error)
	// LastFailure returns when the source last failed for the keys that are likely to fail together with this one, such as
	// all keys of one registry. The cache itself remembers when each single key last failed.
	LastFailure func(key K) time.Time
	// Follow returns the context of a fetch: ctx with values of the caller's context, such as a trace.
	Follow func(ctx, caller context.Context) context.Context
	// Log gets the panics of Fetch; if it is nil, the callers have to log them.
	Log *slog.Logger
	// Size returns roughly how many bytes of memory an answer or a failure takes.
	Size func(key K, value V, err error) int64

	// Timeout limits the duration of one fetch; 0 means 30 s.
	Timeout time.Duration
	// Patience is how long a caller waits for the source if it can get a stale answer instead; 0 means 2 s.
	Patience time.Duration
	// FailureTTL is how long callers without a stale answer get the error of the last failed fetch. Zero means that each
	// caller asks the source.
	FailureTTL time.Duration
	// Early means that an answer that is used in the last quarter of its TTL is refreshed in the background.
	Early bool
	// MaxBytes limits the memory of the cache, and MaxEntries limits its number of keys; 0 means no limit.
	MaxBytes   int64
	MaxEntries int
	// MaxFlights is the maximum number of fetches in flight; 0 means 512. Without a maximum, clients that give up could
	// start any number of fetches from a source that hangs.
	MaxFlights int
	// Counters counts the answers. It may be nil.
	Counters *Counters
}

// Counters counts the answers of a [Cache] by their kind. A cache can share the counters of a cache that it replaces.
type Counters struct {
	Hits      atomic.Uint64 // current answers
	Misses    atomic.Uint64 // the source answered while the caller waited
	Stale     atomic.Uint64 // stale answers
	Failures  atomic.Uint64 // errors: the source failed, and no stale answer was left
	Refreshes atomic.Uint64 // fetches in the background
}

const (
	// failureRest is how long after a failure the cache does not ask the source again if there is a stale answer to
	// serve.
	failureRest = 5 * time.Second
	// failureDoubt is how long after a failure no caller waits for the source if there is a stale answer to serve.
	failureDoubt = 30 * time.Second
	// maxRefreshes is the maximum number of fetches in the background.
	maxRefreshes = 8
)

// Cache caches answers by key. It is safe for concurrent use.
type Cache[K, V any] struct {
	o         Options[K, V]
	entries   store[K, V]
	flights   chan struct{} // holds an element for each fetch in flight
	refreshes chan struct{} // holds an element for each fetch in the background
	// dropping is locked during Drop, and read-locked during each call of Load and Save. Otherwise, a dropped answer could
	// come back from disk or be saved again.
	dropping sync.RWMutex

	ctx    context.Context
	cancel context.CancelFunc
	mu     sync.Mutex // guards closed, and additions to tasks
	closed bool
	tasks  sync.WaitGroup
}

var _ io.Closer = (*Cache[string, int])(nil)

// New returns a cache.
func New[K, V any](o Options[K, V]) *Cache[K, V] {
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.Patience = cmp.Or(o.Patience, 2*time.Second)
	o.MaxBytes = cmp.Or(o.MaxBytes, math.MaxInt64)
	o.MaxEntries = cmp.Or(o.MaxEntries, math.MaxInt)
	o.Counters = cmp.Or(o.Counters, &Counters{})
	if o.Size == nil {
		o.Size = func(K, V, error) int64 { return 0 }
	}
	c := &Cache[K, V]{
		o: o, entries: newStore(&o),
		flights: make(chan struct{}, cmp.Or(o.MaxFlights, 512)), refreshes: make(chan struct{}, maxRefreshes),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Close cancels the fetches in flight. It returns when these fetches and all calls of Save have ended. Later fetches
// fail with [ErrClosed].
func (c *Cache[K, V]) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.tasks.Wait()
	return nil
}

// Get returns the current answer for a key, or a new answer from the source, or a stale answer if the source fails. An
// error means that the source failed or that ctx ended.
func (c *Cache[K, V]) Get(ctx context.Context, key K) (*Answer[V], error) {
	a, counter, err := c.get(ctx, key)
	counter.Add(1)
	return a, err
}

// GetFor is like [Cache.Get], but is not counted. A Fetch function calls it to get the answer for another key.
func (c *Cache[K, V]) GetFor(ctx context.Context, key K) (*Answer[V], error) {
	a, _, err := c.get(ctx, key)
	return a, err
}

func (c *Cache[K, V]) get(ctx context.Context, key K) (*Answer[V], *atomic.Uint64, error) {
	n := c.o.Counters
	if err := ctx.Err(); err != nil {
		return nil, &n.Failures, err
	}
	e := c.entry(key)
	defer e.release()
	now, last := time.Now(), e.answer.Load()
	if c.current(e, last, now) {
		return last, &n.Hits, nil
	}
	stale := last.Stale(now)
	if stale != nil {
		switch since := c.sinceFailure(e, now); {
		case since < failureRest:
			return stale, &n.Stale, nil
		case since < failureDoubt:
			c.refresh(e, last)
			return stale, &n.Stale, nil
		}
	}
	return c.wait(ctx, e, last, stale)
}

// Ask is like [Cache.Get], but it asks the source even if an answer is current, and returns no stale answer.
func (c *Cache[K, V]) Ask(ctx context.Context, key K) (*Answer[V], error) {
	e := c.entry(key)
	defer e.release()
	a, _, err := c.wait(ctx, e, e.answer.Load(), nil)
	return a, err
}

// Current returns the current answer that is cached under a name, or nil. It never waits.
func (c *Cache[K, V]) Current(name string, now time.Time) *Answer[V] {
	e := c.entries.get(name)
	if e == nil {
		return nil
	}
	defer e.release()
	if last := e.answer.Load(); c.current(e, last, now) {
		return last
	}
	return nil
}

// Last returns the last answer for a key in memory, even if it has expired, or nil.
func (c *Cache[K, V]) Last(key K) *Answer[V] {
	e := c.entries.get(c.o.Key(key))
	if e == nil {
		return nil
	}
	defer e.release()
	return e.answer.Load()
}

// Put adds an answer for a key, unless the key already has an answer.
func (c *Cache[K, V]) Put(key K, a Answer[V]) {
	e := c.entries.acquire(key)
	defer e.release()
	if e.answer.CompareAndSwap(nil, &a) {
		c.entries.resize(e)
	}
}

// Resize updates the memory of the cache after the size of a key's answer has changed.
func (c *Cache[K, V]) Resize(key K) {
	if e := c.entries.get(c.o.Key(key)); e != nil {
		defer e.release()
		c.entries.resize(e)
	}
}

// Drop forgets the keys for which match returns true, and returns their number. It first calls remove, unless remove is
// nil, to delete the saved answers of these keys.
func (c *Cache[K, V]) Drop(match func(K) bool, remove func()) int {
	c.dropping.Lock()
	defer c.dropping.Unlock()
	if remove != nil {
		remove()
	}
	return c.entries.drop(match)
}

// Good returns the answers that are not errors, in no particular order. It does not mark them as used.
func (c *Cache[K, V]) Good() []*Answer[V] { return c.entries.answers() }

// Size returns the number of keys in the cache, and roughly their memory in bytes.
func (c *Cache[K, V]) Size() (entries int, bytes int64) { return c.entries.size() }
