package archives

import (
	"io"
	"os"
	"syscall"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/fill"
	"github.com/ocibridge/ocibridge/provider"
)

// FillUp makes writes to a cache fail with a full disk in each fetch, after the given
// number of bytes.
func (c *Cache) FillUp(after int) {
	c.storage = func(f *os.File) fill.Storage { return &fullDisk{f, after} }
}

type fullDisk struct {
	*os.File
	left int
}

func (f *fullDisk) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, syscall.ENOSPC
	}
	return f.File.Write(p)
}

// Users returns the number of responses and fetches that use an archive.
func (c *Cache) Users() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, s := range c.shared {
		n += s.State().Users
	}
	return n
}

var _ io.ReaderFrom = (*answer)(nil)

// SizeFor is sizeFor.
var SizeFor = sizeFor

// AgeUnpacked makes the cache believe that an unpacked package was last hashed by so much earlier.
func (c *Cache) AgeUnpacked(h provider.Hash, by time.Duration) {
	m, _ := c.readUnpackedMeta(hexOf(h))
	m.hashed -= int64(by.Seconds())
	c.keepUnpackedMeta(hexOf(h), m)
}

// StateOf returns what the meta file of an unpacked package says about its files.
func (c *Cache) StateOf(h provider.Hash) string {
	m, _ := c.readUnpackedMeta(hexOf(h))
	return m.state
}
