package archives

// Size is the size of a [Cache].
type Size struct {
	Bytes   int64 // the size of the folder, including the bytes that fetches in progress will write
	Limit   int64
	Fetches int // the number of fetches in progress
}

// Size returns the current size of the cache, without reading the folder.
func (c *Cache) Size() Size { return Size{c.bytes.Load(), c.max, len(c.fetches)} }
