package archives

// Size is the size of a [Cache].
type Size struct {
	Bytes   int64 // in the folder, including those that fetches in progress will write
	Limit   int64
	Fetches int // in progress
}

// Size returns the current size of the cache, without reading the folder.
func (c *Cache) Size() Size { return Size{c.bytes.Load(), c.max, len(c.fetches)} }
