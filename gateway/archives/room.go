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

// entry is an archive in the folder.
type entry struct {
	hex  string
	size int64
	used time.Time
}

// reserve makes room for a fetch. unreserve gives the room back.
func (c *Cache) reserve(size int64) error {
	c.room.Lock()
	defer c.room.Unlock()
	if size > c.max {
		return fmt.Errorf("%w: it is larger than all that is kept", errBypass)
	}
	if c.total+c.reserved+size > c.max || time.Since(c.counted) > recountAfter {
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

// unreserve gives back the room of a fetch, which has stored so many bytes.
func (c *Cache) unreserve(size, stored int64) {
	c.room.Lock()
	defer c.room.Unlock()
	c.reserved -= size
	c.total += stored
}

// evict removes the least recently used archives until at most limit bytes are left. It
// never removes an archive that is in use. It is called with room held.
func (c *Cache) evict(archives []entry, limit int64) {
	if c.total <= limit {
		return
	}
	slices.SortFunc(archives, func(a, b entry) int { return a.used.Compare(b.used) })
	inUse := c.inUse()
	for _, a := range archives {
		if c.total <= limit {
			return
		}
		if inUse[a.hex] {
			continue
		}
		// Windows refuses to remove a file that another process reads.
		if err := os.Remove(c.path(a.hex)); err == nil || errors.Is(err, fs.ErrNotExist) {
			_ = os.Remove(c.meta(a.hex)) // if that fails, the next count removes it
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

// count reads the folder and returns its archives. It sets total, removes files of ended
// processes, and forgets archives that are gone. It is called with room held.
func (c *Cache) count() ([]entry, error) {
	total, err := c.sweep()
	if err != nil {
		return nil, err
	}
	var archives []entry
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
	present := map[string]bool{}
	for i, a := range archives {
		total += a.size
		present[a.hex] = true
		archives[i].used = c.lastUse(a)
	}
	c.forgetMissing(present)
	c.total, c.counted = total, time.Now()
	return archives, nil
}

// countIn returns the archives in one of the folder's parts, with their last uses on disk.
func (c *Cache) countIn(part string) ([]entry, error) {
	entries, err := os.ReadDir(filepath.Join(c.dir, "sha256", part))
	if err != nil {
		return nil, err
	}
	var out []entry
	for _, e := range entries {
		hex, isMeta := strings.CutSuffix(e.Name(), metaSuffix)
		if len(hex) != 64 || hex[:2] != part {
			continue // not a file of the cache
		}
		info, err := e.Info()
		switch {
		case err != nil || !info.Mode().IsRegular(): // another process has removed it, or it is none of the cache's
		case !isMeta:
			out = append(out, entry{hex, info.Size(), info.ModTime()})
		case len(out) > 0 && out[len(out)-1].hex == hex: // names are sorted
			out[len(out)-1].used = info.ModTime()
		case time.Since(info.ModTime()) > recountAfter: // a newer one may precede its archive
			_ = os.Remove(c.meta(hex))
		}
	}
	return out, nil
}

// lastUse returns when this process or another one last used an archive.
func (c *Cache) lastUse(a entry) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if used := c.known[a.hex].used; used.After(a.used) {
		return used
	}
	return a.used
}

// forgetMissing forgets all archives that are not in the folder.
func (c *Cache) forgetMissing(present map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for hex := range c.known {
		if !present[hex] {
			delete(c.known, hex)
		}
	}
}

// sweep removes the temporary files of processes that have ended. It returns the bytes of
// temporary files that other processes still use.
func (c *Cache) sweep() (int64, error) {
	entries, err := os.ReadDir(c.temporary())
	if err != nil {
		return 0, err
	}
	var inUse int64
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), c.id) {
			continue // of this process: reserved already
		}
		name := filepath.Join(c.temporary(), e.Name())
		if isAbandoned(name) {
			if err := os.Remove(name); err == nil {
				continue
			}
		}
		if info, err := e.Info(); err == nil {
			inUse += info.Size()
		}
	}
	return inUse, nil
}

// create makes a temporary file, and marks it as in use for other processes.
func (c *Cache) create() (*os.File, error) {
	for range 3 {
		f, err := newFile(filepath.Join(c.temporary(), c.id+rand.Text()))
		if err != nil {
			return nil, err
		}
		err = lock(f)
		// Another process may have removed it before it was locked.
		if named, statErr := os.Stat(f.Name()); err == nil && statErr == nil {
			if info, err := f.Stat(); err == nil && os.SameFile(info, named) {
				return f, nil
			}
		}
		f.Close()
		_ = os.Remove(f.Name())
	}
	return nil, errors.New("other processes remove its temporary files")
}

// commit gives a fetched file its name. A crash may lose the file, and some file systems
// then leave a part of it: the cache notices when it hashes the file.
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
	c.update(hex, func(k *known) { k.touched = time.Time{} }) // there was no file to touch before
	c.use(hex)
	return nil
}
