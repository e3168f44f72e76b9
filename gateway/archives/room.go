package archives

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// kept is an archive in the folder.
type kept struct {
	hex  string
	size int64
	used time.Time
}

// reserve makes room for a fetch of so many bytes, which release or commit gives
// back.
func (c *Cache) reserve(size int64) error {
	c.room.Lock()
	defer c.room.Unlock()
	if size > c.max {
		return fmt.Errorf("%w: it is larger than all that is kept", errBypass)
	}
	if c.total+c.reserved+size > c.max || time.Since(c.counted) > recount {
		archives, err := c.count()
		if err != nil {
			return err
		}
		c.evict(archives, c.max-size-c.reserved)
	}
	if c.total+c.reserved+size > c.max {
		return fmt.Errorf("%w: there is no room beside what is in use", errBypass)
	}
	c.reserved += size
	return nil
}

// unreserve gives back the room of a fetch, of which so many bytes have come to
// stay.
func (c *Cache) unreserve(size, stay int64) {
	c.room.Lock()
	defer c.room.Unlock()
	c.reserved -= size
	c.total += stay
}

// evict removes archives, those first that were not used for longest, until at
// most so many bytes are left. What is in use stays.
func (c *Cache) evict(archives []kept, limit int64) {
	if c.total <= limit {
		return
	}
	slices.SortFunc(archives, func(a, b kept) int { return a.used.Compare(b.used) })
	inUse := c.inUse()
	for _, a := range archives {
		if c.total <= limit {
			return
		}
		if inUse[a.hex] {
			continue
		}
		// Elsewhere than on Unix, what another process reads cannot be removed.
		if err := os.Remove(c.path(a.hex)); err == nil || errors.Is(err, fs.ErrNotExist) {
			_ = os.Remove(c.meta(a.hex)) // if it stays, the next count removes it
			c.total -= a.size
			c.n.Evicted.Add(1)
			c.n.EvictedBytes.Add(uint64(a.size))
		}
	}
}

func (c *Cache) inUse() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]bool{}
	for b := range c.shared {
		out[b.hex] = true
	}
	return out
}

// count reads the folder: it returns the archives in it, sets total, removes what
// ended processes left, and forgets what is gone. It is called with room held.
func (c *Cache) count() ([]kept, error) {
	total, err := c.sweep()
	if err != nil {
		return nil, err
	}
	var archives []kept
	dirs, err := os.ReadDir(filepath.Join(c.dir, "sha256"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, d := range dirs {
		in, err := c.countIn(d.Name())
		if err != nil {
			return nil, err
		}
		archives = append(archives, in...)
	}
	there := map[string]bool{}
	for i, a := range archives {
		total += a.size
		there[a.hex] = true
		archives[i].used = c.lastUse(a)
	}
	c.forgetMissing(there)
	c.total, c.counted = total, time.Now()
	return archives, nil
}

// countIn returns the archives in one of the folder's parts, with their last use
// as far as the folder knows it.
func (c *Cache) countIn(part string) ([]kept, error) {
	entries, err := os.ReadDir(filepath.Join(c.dir, "sha256", part))
	if err != nil {
		return nil, err
	}
	var out []kept
	for _, e := range entries {
		hex, isMeta := strings.CutSuffix(e.Name(), metaSuffix)
		if len(hex) != 64 || hex[:2] != part {
			continue // nothing of ours
		}
		info, err := e.Info()
		switch {
		case err != nil || !info.Mode().IsRegular(): // removed by another process, or none of ours
		case !isMeta:
			out = append(out, kept{hex, info.Size(), info.ModTime()})
		case len(out) > 0 && out[len(out)-1].hex == hex: // names are sorted
			out[len(out)-1].used = info.ModTime()
		case time.Since(info.ModTime()) > recount: // else it may be just coming
			_ = os.Remove(c.meta(hex))
		}
	}
	return out, nil
}

// lastUse returns when an archive was last used by anybody.
func (c *Cache) lastUse(a kept) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if used := c.known[a.hex].used; used.After(a.used) {
		return used
	}
	return a.used
}

// forgetMissing drops what is known of archives that are not there.
func (c *Cache) forgetMissing(there map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for hex := range c.known {
		if !there[hex] {
			delete(c.known, hex)
		}
	}
}

// sweep removes temporary files of processes that ended, and returns the size of
// those of other processes that live.
func (c *Cache) sweep() (int64, error) {
	entries, err := os.ReadDir(c.temporary())
	if err != nil {
		return 0, err
	}
	var living int64
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), c.id) {
			continue // ours, and reserved
		}
		name := filepath.Join(c.temporary(), e.Name())
		if isAbandoned(name) {
			if err := os.Remove(name); err == nil {
				continue
			}
		}
		if info, err := e.Info(); err == nil {
			living += info.Size()
		}
	}
	return living, nil
}

// create makes a temporary file that other processes know to be in use.
func (c *Cache) create() (*os.File, error) {
	for range 3 {
		f, err := newFile(filepath.Join(c.temporary(), c.id+rand.Text()))
		if err != nil {
			return nil, err
		}
		err = lock(f)
		// Before it was locked another process may have taken it for left over.
		if there, statErr := os.Stat(f.Name()); err == nil && statErr == nil {
			if info, err := f.Stat(); err == nil && os.SameFile(info, there) {
				return f, nil
			}
		}
		f.Close()
		_ = os.Remove(f.Name())
	}
	return nil, errors.New("other processes remove its temporary files")
}

// commit gives a fetched file its name. A crash may lose it, and leave one that
// is not whole only where the file system does: then it is found out when it is
// hashed.
func (c *Cache) commit(f *os.File, hex string) error {
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.path(hex)), 0o700); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), c.path(hex)); err != nil {
		return err
	}
	c.mu.Lock()
	k := c.known[hex]
	k.touched = time.Time{} // what readers noted before had no place
	c.known[hex] = k
	c.mu.Unlock()
	c.use(hex)
	return nil
}
