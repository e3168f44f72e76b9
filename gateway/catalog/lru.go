package catalog

import (
	"sync"

	"github.com/ocibridge/ocibridge/provider"
)

// entryOverhead is about what an entry takes beside what it holds.
const entryOverhead = 512

// lru keeps entries within a bound of memory. What was not used for longest goes
// first; entries that the registry is being asked about stay.
type lru struct {
	limit int64

	mu    sync.Mutex
	byKey map[string]*entry
	ends  entry // the ring's: next is the last used, prev the one to go
	bytes int64
}

func newLRU(limit int64) *lru {
	l := &lru{limit: limit, byKey: map[string]*entry{}}
	l.ends.next, l.ends.prev = &l.ends, &l.ends
	return l
}

// get returns an entry, nil if there is none, and counts that as a use of it.
func (l *lru) get(key string) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.use(key)
}

func (l *lru) use(key string) *entry {
	e := l.byKey[key]
	if e != nil && l.ends.next != e {
		e.unlink()
		e.link(&l.ends)
	}
	return e
}

func (l *lru) getOrAdd(key string, make func() *entry) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.use(key); e != nil {
		return e
	}
	e := make()
	e.cost = entryOverhead + int64(len(key))
	l.byKey[key] = e
	e.link(&l.ends)
	l.bytes += e.cost
	l.shrink()
	return e
}

// resize says what an entry's content takes now.
func (l *lru) resize(e *entry, content int64) {
	l.add(e, func() int64 { return entryOverhead + int64(len(e.key)) + content - e.cost })
}

// grow says what an entry takes in addition.
func (l *lru) grow(e *entry, by int64) { l.add(e, func() int64 { return by }) }

func (l *lru) add(e *entry, more func() int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byKey[e.key] != e {
		return // it went meanwhile
	}
	by := more()
	e.cost += by
	l.bytes += by
	l.shrink()
}

// shrink removes what is too much.
func (l *lru) shrink() {
	for e := l.ends.prev; e != &l.ends && l.bytes > l.limit; {
		before := e.prev
		if !e.busy.Load() {
			l.remove(e)
		}
		e = before
	}
}

func (l *lru) remove(e *entry) {
	delete(l.byKey, e.key)
	e.unlink()
	l.bytes -= e.cost
}

// drop removes the entries of a provider, also for whoever holds one.
func (l *lru) drop(a provider.Address) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, e := range l.byKey {
		if e.address == a {
			e.dropped.Store(true)
			l.remove(e)
			n++
		}
	}
	return n
}

func (e *entry) link(after *entry) {
	e.prev, e.next = after, after.next
	e.next.prev, after.next = e, e
}

func (e *entry) unlink() { e.prev.next, e.next.prev = e.next, e.prev }
