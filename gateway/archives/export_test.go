package archives

import (
	"io"
	"os"
	"syscall"
)

// FillUp has the disk of a cache full after so many more bytes.
func (c *Cache) FillUp(after int) {
	c.write = func(f *os.File, p []byte) (int, error) {
		if after -= len(p); after < 0 {
			return 0, syscall.ENOSPC
		}
		return f.Write(p)
	}
}

// Users returns how many answers and fetches use an archive.
func (c *Cache) Users() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, s := range c.shared {
		n += s.users
	}
	return n
}

var _ io.ReaderFrom = (*answer)(nil)
