package archives

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/base/fill"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
)

// Cache keeps archives on disk by their digest, below DIR/archives:
//
//	sha256/ab/abcd...       the archive
//	sha256/ab/abcd....meta  its h1 hash; the mtime is the archive's last use
//	unpacked/...            unpacked packages, see [Cache.Unpack]
//	tmp/...                 fetches in progress
//	lock                    locked by the process that reserves room or evicts archives
//
// An archive is fetched into tmp, and renamed once its digest is verified. It is hashed again
// before its first use in a process, a day after it was last hashed, and whenever its file was
// replaced or its size or mtime has changed. An archive that does not match its digest is
// removed and fetched again. So a file that a crash, a failing disk or a person has damaged is
// not served. During that day, the cache does not notice a change that preserves size and
// mtime. Clients notice it, because they check the hash of each download.
//
// Fetches in progress count towards the size limit: before a fetch, the cache makes room by
// removing the least recently used archives. It never removes an archive that this process
// uses. If there is no room for an archive, it is not cached.
//
// Any number of processes may share a folder. The folder alone decides what is cached: each process
// serves the archives that other processes have fetched, and fetches an archive again that another
// process has evicted. Two processes may fetch the same archive at once; the later one replaces the
// file of the earlier one. A fetch's temporary file has the size of its archive from the beginning,
// so that each process sees how much room the fetches of other processes need. The process that
// fetches locks the file until the file has its final name, so that no other process removes it. On
// Unix, an archive that another process evicts can still be read by the responses that have it open.
// On Windows, it cannot be evicted.
//
// Everyone who can write to the folder can forge its h1 hashes, because the checksums of these
// hashes only detect damage.
type Cache struct {
	dir string
	id  string // identifies this cache among all that use the folder
	max int64
	log *slog.Logger
	h1  bool
	n   *telemetry.ArchiveCounters

	keepsAll bool // nothing is evicted when the cache is opened

	storage func(*os.File) fill.Storage // replaced in tests

	work
	space
	contents
}

// work limits and counts the fetches and the computations of h1 hashes in progress.
type work struct {
	fetches chan struct{}  // a semaphore: one element for each fetch
	running sync.WaitGroup // fetches
	hashing sync.Mutex     // held while an h1 hash is computed
}

// space is how much of the folder's maximum size is used.
type space struct {
	room      sync.Mutex   // held while the folder is counted, and while archives are removed
	counted   time.Time    // the time of the last count; zero if other processes have reserved room since; guarded by room
	lockedOut bool         // the last wait for the lock was in vain; guarded by room
	bytes     atomic.Int64 // the size of the folder at the last count, plus this process's changes since
}

// contents records what the process knows about the archives, and which archives are in use.
type contents struct {
	mu     sync.Mutex // guards the fields below; room is never locked while mu is held
	known  map[string]known
	shared map[blob]*shared
	failed time.Time // the last time that a write to the folder failed
	closed bool
}

// known is what the process knows about an archive in the folder.
type known struct {
	file     fs.FileInfo // the file's state when it was hashed; nil if it was not hashed
	verified time.Time
	h1       string // "" if unknown
}

// blob identifies an archive in use.
type blob struct {
	hex    string
	size   int64  // two manifests may name the same digest with different sizes
	source string // requests to another source do not wait for a source that does not respond
}

func (a Archive) blob() blob { return blob{a.Package.Digest.Encoded(), a.Package.Size, a.Source} }

const (
	rehashAfter = 24 * time.Hour // the time after which an archive is hashed again
	orphanAfter = time.Minute    // the age at which a meta file without an archive is removed
	// recountAfter is how long changes by people, and evictions by other processes, can go
	// unnoticed while there is room in the folder.
	recountAfter      = time.Minute
	pauseAfterFailure = time.Minute     // how long the cache writes nothing after a write to the folder has failed
	abandonAfter      = 5 * time.Minute // how long a fetch continues without clients
	maxFetches        = 64              // concurrent fetches; further archives are streamed, and not cached
)

// errBypass means that the cache cannot serve an archive, which is then streamed from the registry.
var errBypass = errors.New("past the cache")

// CacheOptions configure a [Cache].
type CacheOptions struct {
	H1       bool                       // compute the h1: hash of each archive, for [Cache.H1]
	Log      *slog.Logger               // receives problems with the folder; may be nil
	Counters *telemetry.ArchiveCounters // counts requests to the cache; may be nil
	KeepsAll bool                       // evict nothing while the cache is opened, even if it exceeds its maximum size
}

// OpenCache opens the cache in a folder, and creates the folder if needed. The cache holds at most
// maxSize bytes; 0 means [DefaultSize]. OpenCache removes the unfinished fetches of processes that
// have exited. The caller must close the cache.
func OpenCache(dir string, maxSize int64, o CacheOptions) (*Cache, error) {
	dir, err := filepath.Abs(dir) // links need it
	if err != nil {
		return nil, err
	}
	c := &Cache{
		dir: filepath.Join(dir, "archives"), id: rand.Text(), max: maxSize, h1: o.H1, keepsAll: o.KeepsAll,
		log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)), n: cmp.Or(o.Counters, &telemetry.ArchiveCounters{}),
		storage: func(f *os.File) fill.Storage { return f }, work: work{fetches: make(chan struct{}, maxFetches)},
		contents: contents{known: map[string]known{}, shared: map[blob]*shared{}},
	}
	if err := c.makeFolders(); err != nil {
		return nil, hint.Wrap(fmt.Errorf("the cache in %s cannot be used: %w", dir, err),
			"name a folder that the user who runs this may write to, as directory in the cache block")
	}
	if err := c.tidy(); err != nil {
		return nil, hint.Wrap(fmt.Errorf("the cache in %s cannot be read: %w", dir, err), "is all below it owned by the user who runs this?")
	}
	return c, nil
}

// tidy counts the archives, and sets the default limit if there is none. It evicts archives if they
// exceed the limit. If another process holds the lock, the first fetch evicts them instead.
func (c *Cache) tidy() error {
	c.room.Lock()
	defer c.room.Unlock()
	_, total, err := c.count(orphanAfter)
	if err != nil {
		return err
	}
	c.bytes.Store(total)
	if c.max == 0 {
		if c.max, err = defaultSize(c.dir, total); err != nil {
			return err
		}
	}
	if total <= c.max || c.keepsAll {
		return nil
	}
	lock, err := c.lock()
	switch {
	case errors.Is(err, privatefolder.ErrLocked):
		return nil
	case err != nil:
		return err
	}
	defer lock.Close()
	_, err = c.shrink(c.max)
	return err
}

// makeFolders creates the folders, and checks that it can write temporary files.
func (c *Cache) makeFolders() error {
	if err := privatefolder.Make(c.dir, c.log); err != nil {
		return err
	}
	if err := os.MkdirAll(c.temporary(), 0o700); err != nil {
		return err
	}
	probe, err := c.create(0)
	if err != nil {
		return err
	}
	err = probe.Close()
	if removed := os.Remove(probe.Name()); removed != nil && !errors.Is(removed, fs.ErrNotExist) { // another process may sweep it first
		err = errors.Join(err, removed)
	}
	return err
}

// Close cancels all fetches, and waits until they have ended.
func (c *Cache) Close() error {
	c.mu.Lock()
	c.closed = true
	for _, s := range c.shared {
		s.cancel()
	}
	c.mu.Unlock()
	c.running.Wait()
	return nil
}

func (c *Cache) temporary() string { return filepath.Join(c.dir, "tmp") }

func (c *Cache) path(hex string) string { return filepath.Join(c.dir, "sha256", hex[:2], hex) }

// SizeOf returns the size of the archive with the given digest, if it is in the folder. The archive
// may be unverified. A nil cache has no archives.
func (c *Cache) SizeOf(d digest.Digest) (int64, bool) {
	if c == nil || d.Validate() != nil || d.Algorithm() != digest.SHA256 {
		return 0, false
	}
	info, err := os.Stat(c.path(d.Encoded()))
	if err != nil || info.Size() == 0 {
		return 0, false
	}
	return info.Size(), true
}

// load opens and verifies an archive in the folder, or returns nil.
func (c *Cache) load(ctx context.Context, b blob) *os.File {
	f, err := os.Open(c.path(b.hex))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			c.log.WarnContext(ctx, "an archive in the cache cannot be opened", "sha256", b.hex, "err", err)
		}
		return nil
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() && !c.isVerified(b.hex, info) {
		err = c.rehash(ctx, f, info, b.hex)
	}
	if err == nil && info.Mode().IsRegular() && info.Size() == b.size {
		return f
	}
	f.Close()
	if errors.Is(err, ErrDigest) {
		c.n.Damaged.Add(1)
		c.log.ErrorContext(ctx, "an archive in the cache is damaged: it is removed and fetched again", "sha256", b.hex)
		c.discard(b.hex, info)
	} else if err != nil && ctx.Err() == nil {
		c.log.WarnContext(ctx, "an archive in the cache cannot be read", "sha256", b.hex, "err", err)
	}
	return nil
}

// isVerified reports whether a file was verified less than [rehashAfter] ago, and is unchanged since.
func (c *Cache) isVerified(hex string, info fs.FileInfo) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[hex]
	return k.file != nil && os.SameFile(k.file, info) && k.file.Size() == info.Size() && k.file.ModTime().Equal(info.ModTime()) &&
		time.Since(k.verified) < rehashAfter
}

// rehash hashes a file, and records it as verified if the hash matches its name.
func (c *Cache) rehash(ctx context.Context, f *os.File, info fs.FileInfo, hex string) error {
	h := sha256.New()
	if _, err := io.Copy(h, contextReader{ctx, f}); err != nil {
		return err
	}
	if got := fmt.Sprintf("%x", h.Sum(nil)); got != hex {
		return fmt.Errorf("%w: %s", ErrDigest, got)
	}
	c.setVerified(hex, info)
	return nil
}

// update passes what the process knows about an archive to the function change, and stores the result.
func (c *Cache) update(hex string, change func(*known)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[hex]
	change(&k)
	c.known[hex] = k
}

func (c *Cache) setVerified(hex string, info fs.FileInfo) {
	c.update(hex, func(k *known) { k.file, k.verified = info, time.Now() })
}

// use stores the time of an archive's last use on disk, for other processes and the next start.
func (c *Cache) use(hex string) {
	now := time.Now()
	if errors.Is(os.Chtimes(c.meta(hex), now, now), fs.ErrNotExist) {
		// If the meta file cannot be created, only the time of the last use is lost. O_EXCL
		// protects a meta file with an h1 hash that was created in the meantime.
		if f, err := os.OpenFile(c.meta(hex), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err == nil {
			f.Close()
		}
	}
}

// discard removes a damaged archive, unless another process has replaced it.
func (c *Cache) discard(hex string, info fs.FileInfo) {
	c.room.Lock()
	defer c.room.Unlock()
	if now, err := os.Stat(c.path(hex)); err == nil && os.SameFile(now, info) && os.Remove(c.path(hex)) == nil {
		c.bytes.Add(-info.Size())
	}
}

// has reports whether an archive is in the folder or is being fetched. It does not read the archive.
func (c *Cache) has(b blob) bool {
	c.mu.Lock()
	s := c.shared[b]
	c.mu.Unlock()
	if s != nil {
		if state := s.State(); state.Begun && state.Err == nil {
			return true
		}
	}
	info, err := os.Stat(c.path(b.hex))
	return err == nil && info.Mode().IsRegular() && info.Size() == b.size
}

// contextReader is a reader that fails after its context has ended.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
