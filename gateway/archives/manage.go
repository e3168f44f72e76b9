package archives

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/provider"
)

// Entry is a zip or an unpacked package in the cache.
type Entry struct {
	Digest  digest.Digest // of the zip; "" for an unpacked package
	H1      provider.Hash // of the unpacked package; the zero hash for a zip
	Program string        // the name of the provider's program in the package, or "" if it is unknown
	Size    int64         // in bytes
	Used    time.Time     // the last use

	entry entry
}

// Hash returns the hash that names the entry.
func (e Entry) Hash() string {
	if e.entry.unpacked {
		return e.H1.String()
	}
	return e.Digest.String()
}

// Entries returns what the cache holds, sorted by program and hash.
func (c *Cache) Entries(ctx context.Context) ([]Entry, error) {
	c.room.Lock()
	defer c.room.Unlock()
	return c.entries(ctx, orphanAfter)
}

func (c *Cache) entries(ctx context.Context, orphans time.Duration) ([]Entry, error) {
	found, _, err := c.count(orphans)
	var out []Entry
	for _, e := range found {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		shown := Entry{Size: e.size, Used: e.used, entry: e}
		if e.unpacked {
			shown.H1, _ = h1Of(e.hex) // count checks the name
			shown.Program = c.programIn(e.hex)
		} else {
			shown.Digest = digest.NewDigestFromEncoded(digest.SHA256, e.hex)
			shown.Program = c.programOf(ctx, e)
		}
		out = append(out, shown)
	}
	slices.SortFunc(out, func(a, b Entry) int {
		return cmp.Or(strings.Compare(a.Program, b.Program), strings.Compare(a.Hash(), b.Hash()))
	})
	return out, err
}

// programIn returns the name of the program in an unpacked package.
func (c *Cache) programIn(hex string) string {
	entries, _ := os.ReadDir(c.unpacked(hex)) // another process may have removed it
	for _, e := range entries {
		if provider.LooksLikeProgram(e.Name()) {
			return e.Name()
		}
	}
	return ""
}

// programOf returns the name of the program in a zip.
func (c *Cache) programOf(ctx context.Context, e entry) string {
	f, err := os.Open(c.path(e.hex))
	if err != nil {
		return ""
	}
	defer f.Close()
	z, err := provider.OpenZip(ctx, f, e.size)
	if err != nil {
		return ""
	}
	return z.Program()
}

// Verify hashes all bytes of an entry again. The error wraps [ErrDigest] if they have changed. The entry is then removed.
// The error wraps [ErrNotCached] if the entry is gone.
func (c *Cache) Verify(ctx context.Context, e Entry) error {
	if e.entry.unpacked {
		_, err := c.verifyUnpacked(ctx, e.H1, true)
		return err
	}
	f, err := os.Open(c.path(e.entry.hex))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", e.Digest, ErrNotCached)
	} else if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		err = c.rehash(ctx, f, info, e.entry.hex)
	}
	if errors.Is(err, ErrDigest) {
		c.discard(e.entry.hex, info)
	}
	return err
}

// Prune removes what killed processes have left, and the entries that the function unwanted selects, while no other process
// evicts anything. It returns the entries that it has removed. In a dry run, it returns those that it would remove.
func (c *Cache) Prune(ctx context.Context, dryRun bool, unwanted func(Entry) bool) (removed []Entry, err error) {
	c.room.Lock()
	defer c.room.Unlock()
	lock, err := c.lock()
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if _, err := c.sign(lock); err != nil { // so that other processes count again
		return nil, err
	}
	orphans := time.Duration(0)
	if dryRun {
		orphans = orphanAfter
	}
	all, err := c.entries(ctx, orphans)
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		if ctx.Err() != nil {
			return removed, ctx.Err()
		}
		if !unwanted(e) {
			continue
		}
		removed = append(removed, e)
		if dryRun {
			continue
		}
		if err := c.evict(e.entry); err != nil {
			return removed[:len(removed)-1], err
		}
		c.bytes.Add(-e.Size)
	}
	return removed, nil
}
