package catalog

import (
	"path/filepath"
	"time"

	"github.com/ocibridge/ocibridge/provider"
)

// PutClockBack makes what is known of the list of a provider's versions so much
// later than now.
func (c *Catalog) PutClockBack(a provider.Address, by time.Duration) {
	e := c.cache.get(listingKey(a))
	s := e.state.Load()
	e.state.Store(&state{item: s.item, err: s.err, at: s.at.Add(by)})
}

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

// RecordFile is where a record about a provider is kept.
func RecordFile(c *Catalog, a provider.Address, name string) string {
	return filepath.Join(c.disk.folder(a), name)
}

// HoldDisk keeps answers from being kept on disk until release is called.
func (c *Catalog) HoldDisk() (release func()) {
	c.refreshing.Lock()
	return c.refreshing.Unlock
}
