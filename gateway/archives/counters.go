package archives

// Size is the size of a [Cache].
type Size struct {
	Bytes   int64 // in the folder, with those that fetches under way will write
	Limit   int64
	Fetches int // under way
}

// Size returns the current size of the cache.
func (c *Cache) Size() Size {
	c.room.Lock()
	defer c.room.Unlock()
	_, bytes, _ := c.count() // why it cannot be read is logged with the next fetch
	return Size{bytes, c.max, len(c.fetches)}
}
