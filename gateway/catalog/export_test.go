package catalog

import (
	"context"
	"path/filepath"
	"time"

	"github.com/ocibridge/ocibridge/provider"
)

// PutClockBack moves the time of the cached list of a provider's versions into the future.
// The effect is the same as if the clock had been put back by the given duration.
func (c *Catalog) PutClockBack(a provider.Address, by time.Duration) {
	q := c.Registry().question(listing, a)
	last := *c.cache.Last(q)
	c.cache.Drop(func(other question) bool { return other.name() == q.name() }, nil)
	last.At = last.At.Add(by)
	c.cache.Put(q, last)
}

// MaxFlights is the maximum number of fetches from the registry in flight.
const MaxFlights = maxFlights

// Swept waits until the folder is within its maximum size, and returns its size in bytes.
func (c *Catalog) Swept() int64 {
	c.disk.sweeps.Lock() // the sweep that New has started may be in progress
	defer c.disk.sweeps.Unlock()
	c.disk.clean(c.ctx)
	return c.disk.bytes.Load()
}

// RecordFile returns the path of a provider's record with the given file name.
func RecordFile(c *Catalog, a provider.Address, name string) string {
	return filepath.Join(c.disk.folder(a), name)
}

// HoldDisk prevents answers from being saved on disk until release is called.
func (c *Catalog) HoldDisk() (release func()) {
	held, released := make(chan struct{}), make(chan struct{})
	go c.cache.Drop(func(question) bool { return false }, func() { close(held); <-released })
	<-held
	return func() { close(released) }
}

// RunInBackground runs f as a look-up in the background, and returns once it has ended.
func (c *Catalog) RunInBackground(f func()) {
	c.learning.add("test", func(context.Context) { f() })
	c.learning.tasks.Wait()
}
