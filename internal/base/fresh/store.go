package fresh

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/sync/singleflight"
)

const (
	// entryOverhead is roughly the memory of an entry without its answer, in bytes.
	entryOverhead = 512
	restShare     = 8 // the entries without a good answer together use at most an eighth of the cache
)

// entry holds what the cache knows about one key.
type entry[K, V any] struct {
	name string
	key  K
	fetched[V]
	pins    atomic.Int32 // the number of callers and fetches that use the entry; a used entry is not evicted
	busy    atomic.Bool  // a fetch is in flight, or about to begin
	dropped atomic.Bool

	// Guarded by the store's mutex.
	list *list[K, V]
	cost int64
}

// fetched holds the results of the fetches of an entry.
type fetched[V any] struct {
	load    sync.Once
	answer  atomic.Pointer[Answer[V]] // nil: no answer yet
	failure atomic.Pointer[failure]   // nil unless the last fetch failed
	flight  singleflight.Group
	saving  sync.Mutex
}

// good reports whether an entry has an answer that is not an error.
func (e *entry[K, V]) good() bool {
	a := e.answer.Load()
	return a != nil && a.Err == nil
}

// list holds entries in the order of their last use.
type list[K, V any] struct {
	*simplelru.LRU[string, *entry[K, V]]
	bytes int64
}

func newList[K, V any]() list[K, V] {
	l, err := simplelru.NewLRU[string, *entry[K, V]](math.MaxInt, nil)
	if err != nil {
		panic(err) // only a size below one is an error
	}
	return list[K, V]{LRU: l}
}

// store holds the entries of a cache, within its limits. It evicts the least recently used first, and never a pinned one.
type store[K, V any] struct {
	o *Options[K, V]

	mu   sync.Mutex
	good list[K, V]
	rest list[K, V]
}

func newStore[K, V any](o *Options[K, V]) store[K, V] {
	return store[K, V]{o: o, good: newList[K, V](), rest: newList[K, V]()}
}

// get returns the entry with the given name, or nil. It marks the entry as used, and pins it until it is released.
func (s *store[K, V]) get(name string) *entry[K, V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.use(name)
}

func (s *store[K, V]) use(name string) *entry[K, V] {
	e, ok := s.good.Get(name)
	if !ok {
		if e, ok = s.rest.Get(name); !ok {
			return nil
		}
	}
	e.pins.Add(1)
	return e
}

// acquire is like get, but adds the entry if there is none.
func (s *store[K, V]) acquire(key K) *entry[K, V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := s.o.Key(key)
	if e := s.use(name); e != nil {
		return e
	}
	e := &entry[K, V]{name: name, key: key}
	e.pins.Add(1)
	s.add(e)
	s.shrink()
	return e
}

func (e *entry[K, V]) release() { e.pins.Add(-1) }

// add adds an entry to the list where it belongs, as the most recently used one, and counts its memory.
func (s *store[K, V]) add(e *entry[K, V]) {
	if e.list = &s.rest; e.good() {
		e.list = &s.good
	}
	var none V
	e.cost = entryOverhead + int64(len(e.name))
	if a := e.answer.Load(); a != nil {
		e.cost += s.o.Size(e.key, a.Value, a.Err)
	} else {
		e.cost += s.o.Size(e.key, none, nil)
	}
	if f := e.failure.Load(); f != nil && f.err != nil {
		e.cost += s.o.Size(e.key, none, f.err)
	}
	e.list.Add(e.name, e)
	e.list.bytes += e.cost
}

func (s *store[K, V]) remove(e *entry[K, V]) {
	e.list.Remove(e.name)
	e.list.bytes -= e.cost
}

// resize counts the memory of an entry again, and moves the entry to the list where it now belongs.
func (s *store[K, V]) resize(e *entry[K, V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held, _ := e.list.Peek(e.name); held != e {
		return // the entry was evicted or dropped
	}
	s.remove(e)
	s.add(e)
	s.shrink()
}

// shrink removes expired entries without a good answer, and evicts others until the store is within its limits.
func (s *store[K, V]) shrink() {
	now := time.Now()
	for {
		_, e, ok := s.rest.GetOldest()
		if !ok || s.rest.Len() == 1 || e.pins.Load() > 0 || !s.isExpired(e, now) {
			break
		}
		s.remove(e)
	}
	s.evict(&s.rest, s.o.MaxBytes/restShare, s.o.MaxEntries/restShare)
	s.evict(&s.good, s.o.MaxBytes-s.rest.bytes, s.o.MaxEntries-s.rest.Len())
}

// isExpired reports whether an entry without a good answer has nothing left to serve.
func (s *store[K, V]) isExpired(e *entry[K, V], now time.Time) bool {
	f := e.failure.Load()
	return !e.answer.Load().Current(now) && (f == nil || now.Sub(f.at) >= s.o.FailureTTL)
}

// evict removes the least recently used entries of a list until it is within its limits. The most recently used entry
// stays, however large it is.
func (s *store[K, V]) evict(l *list[K, V], bytes int64, entries int) {
	for n := l.Len(); n > 1 && (l.bytes > bytes || l.Len() > max(entries, 1)); n-- {
		_, e, _ := l.GetOldest()
		if e.pins.Load() > 0 {
			l.Get(e.name) // the entry is in use
			continue
		}
		s.remove(e)
	}
}

func (s *store[K, V]) drop(match func(K) bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, l := range []*list[K, V]{&s.good, &s.rest} {
		for _, e := range l.Values() {
			if match(e.key) {
				e.dropped.Store(true)
				s.remove(e)
				n++
			}
		}
	}
	return n
}

func (s *store[K, V]) answers() []*Answer[V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*Answer[V]
	for _, e := range s.good.Values() {
		if a := e.answer.Load(); a.Err == nil {
			out = append(out, a)
		}
	}
	return out
}

func (s *store[K, V]) size() (entries int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.good.Len() + s.rest.Len(), s.good.bytes + s.rest.bytes
}
