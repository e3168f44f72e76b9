package archives

// Size is the size of a [Cache].
type Size struct {
	Bytes   int64 // in the folder, as far as known
	Limit   int64
	Fetches int // under way
}

// Size returns the current size of the cache.
func (c *Cache) Size() Size {
	c.room.Lock()
	bytes := c.total
	c.room.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	return Size{bytes, c.max, c.fetches}
}
