package catalog

// MaxFlights is how many questions the registry is asked at once.
const MaxFlights = maxFlights

// Bytes is what the catalog believes to hold in memory.
func (c *Catalog) Bytes() int64 {
	c.cache.mu.Lock()
	defer c.cache.mu.Unlock()
	return c.cache.good.bytes + c.cache.rest.bytes
}

// Swept returns when the folder is within its bound.
func (c *Catalog) Swept() int64 {
	c.disk.sweeps.Lock() // the one at the start may still go on
	defer c.disk.sweeps.Unlock()
	c.disk.clean(c.ctx)
	return c.disk.bytes.Load()
}
