package archives

import "sync/atomic"

// Counters counts what becomes of requests for archives. It may outlive the handler
// and the cache, and count for the next ones, too.
type Counters struct {
	// Answers by where the bytes came from: what the cache had, what it fetched
	// meanwhile, or the registry past the cache. Clients that were redirected got the
	// bytes elsewhere.
	Cached, Fetched, Streamed, Redirected Served
	// BrokenOff are answers that end early because of the registry or the cache, and
	// not because the client left.
	BrokenOff atomic.Uint64

	// Hits, Joins and Misses are what the cache was asked for and had, was fetching
	// already, or had to fetch; Bypasses, what it could not keep.
	Hits, Joins, Misses, Bypasses atomic.Uint64
	// Evicted and EvictedBytes are archives that went to make room.
	Evicted, EvictedBytes atomic.Uint64
	// Damaged are archives in the cache that were not what their names say.
	Damaged atomic.Uint64
}

// Served counts answers and their bytes.
type Served struct{ Answers, Bytes atomic.Uint64 }

func (s *Served) add(bytes int64) {
	s.Answers.Add(1)
	s.Bytes.Add(uint64(max(0, bytes)))
}

// Size is what a [Cache] has.
type Size struct {
	Bytes   int64 // in the folder, by all that is known
	Limit   int64
	Fetches int // under way
}

// Size returns that of now.
func (c *Cache) Size() Size {
	c.room.Lock()
	bytes := c.total
	c.room.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	return Size{bytes, c.max, c.fetches}
}
