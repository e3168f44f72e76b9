package catalog

import (
	"sync"

	"github.com/ocibridge/ocibridge/provider"
)

// entryOverhead is about what an entry takes beside what it holds.
const entryOverhead = 512

// lru keeps entries within a bound of memory. What was not used for longest goes
// first; entries that the registry is being asked about stay. Those without a good
// answer have a small share of their own: anybody may ask for any number of things
// that do not exist, and what may stand in must outlast that.
type lru struct {
	limit int64

	mu    sync.Mutex
	byKey map[string]*entry
	good  ring
	rest  ring
}

// restShare is the part of the memory that entries without a good answer may have.
const restShare = 8

// ring is a list of entries.
type ring struct {
	ends  entry // next is the last used, prev the one to go
	bytes int64
}

func (r *ring) push(e *entry) {
	e.ring = r
	e.prev, e.next = &r.ends, r.ends.next
	e.next.prev, e.prev.next = e, e
	r.bytes += e.cost
}

func (r *ring) remove(e *entry) {
	e.prev.next, e.next.prev = e.next, e.prev
	r.bytes -= e.cost
}

func newLRU(limit int64) *lru {
	l := &lru{limit: limit, byKey: map[string]*entry{}}
	for _, r := range []*ring{&l.good, &l.rest} {
		r.ends.next, r.ends.prev = &r.ends, &r.ends
	}
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
	if e != nil && e.ring.ends.next != e {
		e.ring.remove(e)
		e.ring.push(e)
	}
	return e
}

// entries returns all entries with a good answer. It is no use of them.
func (l *lru) entries() []*entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*entry
	for e := l.good.ends.next; e != &l.good.ends; e = e.next {
		out = append(out, e)
	}
	return out
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
	l.rest.push(e)
	l.shrink()
	return e
}

// resize says what an entry's content takes now, and whether that is a good answer.
func (l *lru) resize(e *entry, content int64, good bool) {
	to := &l.rest
	if good {
		to = &l.good
	}
	l.move(e, to, func() int64 { return entryOverhead + int64(len(e.key)) + content })
}

// grow says what an entry takes in addition.
func (l *lru) grow(e *entry, by int64) { l.move(e, nil, func() int64 { return e.cost + by }) }

// move puts an entry that costs something else now into a ring, nil for its own.
func (l *lru) move(e *entry, to *ring, cost func() int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byKey[e.key] != e {
		return // it went meanwhile
	}
	if to == nil {
		to = e.ring
	}
	e.ring.remove(e)
	e.cost = cost()
	to.push(e)
	l.shrink()
}

// shrink removes what is too much.
func (l *lru) shrink() {
	l.shrinkTo(&l.rest, l.limit/restShare)
	l.shrinkTo(&l.good, l.limit-l.rest.bytes)
}

func (l *lru) shrinkTo(r *ring, limit int64) {
	for e := r.ends.prev; e != &r.ends && r.bytes > limit; {
		before := e.prev
		if !e.busy.Load() {
			l.remove(e)
		}
		e = before
	}
}

func (l *lru) remove(e *entry) {
	delete(l.byKey, e.key)
	e.ring.remove(e)
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
