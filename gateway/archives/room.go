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

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
)

// entry is an archive or an unpacked package in the folder.
type entry struct {
	hex  string
	size int64
	used time.Time

	unpacked bool   // hex is then the h1: hash
	zip      string // the archive of an unpacked package
	linked   bool   // workspaces may have links to the unpacked package
	spare    bool   // an archive whose package is also stored unpacked
}

// byEviction sorts what is evicted first to the front: archives whose packages are also stored unpacked, then what was not
// used for longest.
func byEviction(all []entry) {
	unpacked := map[string]bool{}
	for _, e := range all {
		unpacked[e.zip] = true
	}
	for i, e := range all {
		all[i].spare = !e.unpacked && unpacked[e.hex]
	}
	slices.SortStableFunc(all, func(a, b entry) int {
		switch {
		case a.spare && !b.spare:
			return -1
		case b.spare && !a.spare:
			return 1
		}
		return a.used.Compare(b.used)
	})
}

const (
	// lockName is the name of the file that a process locks while it reserves room and evicts
	// archives. It contains the ID of the last cache that has reserved room.
	lockName = "lock"
	// lockPatience is how long the cache waits for the lock. shortPatience replaces it after a wait
	// in vain, so that a process that hangs does not delay each archive.
	lockPatience  = 2 * time.Second
	shortPatience = 50 * time.Millisecond
)

// lock locks the cache against other processes. The caller must hold the mutex room.
func (c *Cache) lock() (*os.File, error) {
	patience := lockPatience
	if c.lockedOut {
		patience = shortPatience
	}
	f, err := privatefolder.Lock(filepath.Join(c.dir, lockName), patience)
	c.lockedOut = errors.Is(err, privatefolder.ErrLocked)
	return f, err
}

// sign writes the cache's ID into the lock file. It reports whether this cache was also the
// last to reserve room. Otherwise, c.bytes lacks the archives of other processes.
func (c *Cache) sign(lock *os.File) (again bool, err error) {
	before := make([]byte, len(c.id))
	if n, _ := lock.ReadAt(before, 0); string(before[:n]) == c.id {
		return true, nil
	}
	if err := lock.Truncate(0); err != nil {
		return false, err
	}
	_, _ = lock.WriteAt([]byte(c.id), 0) // if that fails, the next process counts, too
	return false, nil
}

// reserve makes room for an archive of size bytes, and creates its temporary file.
func (c *Cache) reserve(size int64) (*os.File, error) {
	c.room.Lock()
	defer c.room.Unlock()
	if c.isPaused() {
		return nil, errPaused
	}
	if size > c.max {
		return nil, fmt.Errorf("%w: it is larger than all that is kept", errBypass)
	}
	lock, err := c.lock()
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if again, err := c.sign(lock); err != nil {
		return nil, err
	} else if !again {
		c.counted = time.Time{}
	}
	if c.bytes.Load() > c.max-size || time.Since(c.counted) > recountAfter {
		total, err := c.shrink(c.max - size)
		switch {
		case err != nil:
			return nil, err
		case total > c.max-size:
			return nil, fmt.Errorf("%w: there is no room beside what is in use", errBypass)
		}
	}
	f, err := c.create(size)
	if err == nil {
		c.bytes.Add(size)
	}
	return f, err
}

// shrink removes the least recently used archives until at most limit bytes are left. It returns
// the number of bytes that are left, which exceeds limit if archives are in use by this process or
// cannot be removed. The caller must hold the mutex room and the lock.
func (c *Cache) shrink(limit int64) (total int64, err error) {
	archives, total, err := c.count(orphanAfter)
	if err != nil {
		return total, err
	}
	c.counted = time.Now()
	defer func() { c.bytes.Store(total) }()
	if total <= limit {
		return total, nil
	}
	byEviction(archives)
	inUse := c.inUse()
	for _, a := range archives {
		if total <= limit {
			break
		}
		linked := a.linked && a.size <= c.max && time.Since(a.used) < keepLinked
		if inUse[a.hex] || linked || c.evict(a) != nil {
			continue
		}
		total -= a.size
		c.n.Evicted.Add(1)
		c.n.EvictedBytes.Add(uint64(a.size))
	}
	return total, nil
}

// evict removes an archive or an unpacked package. On Windows, a file cannot be removed while another process reads it.
func (c *Cache) evict(e entry) error {
	if e.unpacked {
		return c.removeUnpacked(e.hex)
	}
	if err := os.Remove(c.path(e.hex)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = os.Remove(c.meta(e.hex)) // if that fails, the next count removes it
	return nil
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

// count returns the archives and unpacked packages in the folder, and the total size of its files. It removes the files of
// processes that have exited, and forgets archives that no longer exist. It removes files that belong to nothing if they are
// older than orphans. The caller must hold the mutex room.
func (c *Cache) count(orphans time.Duration) (archives []entry, total int64, err error) {
	if total, err = c.sweep(); err != nil {
		return nil, 0, err
	}
	dirs, err := os.ReadDir(filepath.Join(c.dir, "sha256"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, err
	}
	present := map[string]bool{}
	for _, d := range dirs {
		in, err := c.countIn(d.Name(), orphans)
		if err != nil {
			return nil, 0, err
		}
		for _, a := range in {
			total += a.size
			present[a.hex] = true
		}
		archives = append(archives, in...)
	}
	c.forgetMissing(present)
	unpacked, err := c.countUnpacked(orphans)
	for _, u := range unpacked {
		total += u.size
	}
	return append(archives, unpacked...), total, err
}

// countIn returns the archives in one subfolder of sha256, with the times of their last use.
func (c *Cache) countIn(part string, orphans time.Duration) ([]entry, error) {
	entries, err := os.ReadDir(filepath.Join(c.dir, "sha256", part))
	if err != nil {
		return nil, err
	}
	var out []entry
	for _, e := range entries {
		hex, isMeta := strings.CutSuffix(e.Name(), metaSuffix)
		temporary := strings.HasPrefix(e.Name(), privatefolder.Temporary)
		if !temporary && (len(hex) != 64 || hex[:2] != part) {
			continue // not a file of the cache
		}
		info, err := e.Info()
		switch {
		case err != nil || !info.Mode().IsRegular(): // another process has removed it, or it is not a file of the cache
		case !isMeta && !temporary:
			out = append(out, entry{hex: hex, size: info.Size(), used: info.ModTime()})
		case len(out) > 0 && out[len(out)-1].hex == hex: // the names are sorted, so an archive comes just before its meta file
			out[len(out)-1].used = info.ModTime()
		case time.Since(info.ModTime()) > orphans: // a newer meta file may be written before its archive
			_ = os.Remove(filepath.Join(c.dir, "sha256", part, e.Name()))
		}
	}
	return out, nil
}

// forgetMissing removes from c.known the archives that are neither in the folder nor in use.
func (c *Cache) forgetMissing(present map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for b := range c.shared {
		present[b.hex] = true // a verified file may still have its temporary name
	}
	for hex := range c.known {
		if !present[hex] {
			delete(c.known, hex)
		}
	}
}

// sweep removes the temporary files of processes that have exited, and returns the total size of the other
// temporary files.
func (c *Cache) sweep() (inUse int64, err error) {
	entries, err := os.ReadDir(c.temporary())
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		name := filepath.Join(c.temporary(), e.Name())
		if locked, isFolder := strings.CutSuffix(name, folderSuffix); isFolder {
			// The locked file, which comes first, has the size of the folder.
			if _, err := os.Lstat(locked); errors.Is(err, fs.ErrNotExist) {
				_ = os.RemoveAll(name)
			}
			continue
		}
		if files.IsAbandoned(name) && os.Remove(name) == nil {
			continue
		}
		// On Windows, a directory entry has an outdated size while the file is open.
		if info, err := os.Lstat(name); err == nil {
			inUse += info.Size()
		}
	}
	return inUse, nil
}

// createAttempts is how often create tries. Many processes that start at once sweep the folder at the same time.
const createAttempts = 100

// create creates a temporary file of size bytes, locked so that other processes do not remove it.
func (c *Cache) create(size int64) (*os.File, error) {
	for range createAttempts {
		f, err := files.CreateNew(filepath.Join(c.temporary(), rand.Text()))
		if err != nil {
			return nil, err
		}
		// A process that sweeps the folder may have locked the file first, and then removes it.
		swept := files.Lock(f) != nil
		err = f.Truncate(size)
		if named, statErr := os.Stat(f.Name()); !swept && err == nil && statErr == nil {
			if info, err := f.Stat(); err == nil && os.SameFile(info, named) {
				return f, nil
			}
		}
		f.Close()
		_ = os.Remove(f.Name())
		if err != nil {
			return nil, err
		}
	}
	return nil, errors.New("other processes remove its temporary files")
}

// commit renames a fetched file to its final name. After a crash, some file systems leave only a
// part of the file. The cache notices this when it hashes the file. On Windows, a file that another
// process reads cannot be replaced, and stays.
func (c *Cache) commit(f *os.File, hex string) error {
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.path(hex)), 0o700); err != nil {
		return err
	}
	err := os.Rename(f.Name(), c.path(hex))
	if info, statErr := os.Stat(c.path(hex)); err != nil && statErr == nil && info.Mode().IsRegular() {
		return nil
	}
	return err
}

// maxDefaultSize is the maximum of [DefaultSize].
const maxDefaultSize = 10 << 30

// DefaultSize returns the default size limit in bytes of a cache in a folder, which may be missing:
// 10 GiB, or a tenth of the bytes that are free or that the cache holds, whichever is less.
func DefaultSize(dir string) (int64, error) {
	var held int64
	err := filepath.WalkDir(filepath.Join(dir, "archives"), func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil // another process may have removed the file
		}
		if info, err := e.Info(); err == nil {
			held += info.Size()
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return defaultSize(dir, held)
}

func defaultSize(dir string, held int64) (int64, error) {
	free, err := files.Free(dir)
	for errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir {
		dir = filepath.Dir(dir)
		free, err = files.Free(dir)
	}
	return sizeFor(free, held), err
}

// sizeFor returns the default size limit of a cache with held bytes, on a disk with free bytes left.
func sizeFor(free, held int64) int64 { return min(maxDefaultSize, (free+held)/10) }

// Size is the size of a [Cache].
type Size struct {
	Bytes   int64 // the size of the folder, including the bytes that fetches in progress will write
	Limit   int64
	Fetches int // the number of fetches in progress
}

// Size returns the current size of the cache, without reading the folder.
func (c *Cache) Size() Size { return Size{c.bytes.Load(), c.max, len(c.fetches)} }
