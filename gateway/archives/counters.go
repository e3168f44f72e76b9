package archives

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
