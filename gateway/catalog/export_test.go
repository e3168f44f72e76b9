package catalog

import (
	"path/filepath"
	"time"

	"github.com/ocibridge/ocibridge/provider"
)

// PutClockBack makes the answer about a provider's versions that much later than now.
func (c *Catalog) PutClockBack(a provider.Address, by time.Duration) {
	q := c.Registry().listingOf(a)
	last := *c.cache.Last(q)
	c.cache.Drop(func(other question) bool { return other.name() == q.name() }, nil)
	last.At = last.At.Add(by)
	c.cache.Put(q, last)
}

// MaxFlights is how many requests to the registry may be in flight.
const MaxFlights = maxFlights

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

// HoldDisk keeps answers from being saved on disk until release is called.
func (c *Catalog) HoldDisk() (release func()) {
	held, released := make(chan struct{}), make(chan struct{})
	go c.cache.Drop(func(question) bool { return false }, func() { close(held); <-released })
	<-held
	return func() { close(released) }
}
