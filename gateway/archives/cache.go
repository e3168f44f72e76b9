package archives

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/privatefolder"
	"github.com/ocibridge/ocibridge/internal/telemetry"
)

// Cache keeps archives on disk, by their digest, below DIR/archives:
//
//	sha256/ab/abcd...       the archive
//	sha256/ab/abcd....meta  its h1 hash; when it was modified is when the archive was last used
//	tmp/...                 what is being fetched
//
// An archive is fetched into tmp and renamed once its digest is right. It is
// hashed again before it is first used in a process, after a day of use, and
// whenever its file is another one or has another size or modification time than
// when it was hashed; one that is not what its name says is removed and fetched
// anew. So whatever a crash, a failing disk or a hand leaves in the folder is not
// served. What changes on disk within that day and leaves size and time alone is
// not seen here, but by clients, which check the hash of what they download.
//
// The bound holds for what is being fetched, too: room is made before a fetch
// begins, by removing what was not used for longest. What is in use stays. An
// archive for which there is no room is not kept.
//
// Several processes may use one folder. Each sees what the others did when it
// counts the folder, at least once a minute while it fetches; until then it may
// exceed the bound by what they fetched.
//
// Whoever can write to the folder is trusted with the h1 hashes in it, which are
// guarded against damage alone.
type Cache struct {
	dir string
	max int64
	log *slog.Logger
	h1  bool
	n   *telemetry.ArchiveCounters
	id  string // begins the names of this process's temporary files

	write func(*os.File, []byte) (int, error)

	room     sync.Mutex // guards the following, and removing
	total    int64      // bytes in the folder when last counted, and since
	reserved int64      // bytes of fetches under way
	counted  time.Time

	mu      sync.Mutex // guards the following; room is never locked within
	known   map[string]known
	shared  map[blob]*shared
	fetches int
	trouble time.Time // when the folder could not be written to
	absent  absence   // of h1 hashes
	closed  bool

	running sync.WaitGroup // fetches
	hashing sync.Mutex     // one archive's h1 at a time
}

// known is what the process knows of an archive in the folder.
type known struct {
	file     fs.FileInfo // when it was hashed; nil: it was not
	verified time.Time
	used     time.Time
	touched  time.Time // when the folder was last told of its use
	h1       string    // "" not known
}

// blob is what a fetch is for. The size is part of it: of two manifests that name
// one digest, one may lie. So is the source: of two, one may hang.
type blob struct {
	hex    string
	size   int64
	source string
}

func (a Archive) blob() blob { return blob{a.Package.Digest.Encoded(), a.Package.Size, a.Source} }

const (
	reverify    = 24 * time.Hour // after which an archive is hashed again
	recount     = time.Minute    // after which the folder is counted again
	touchEvery  = time.Minute    // how often the folder is told of a use
	troubleFor  = time.Minute    // how long nothing is kept after the folder could not be written to
	abandonTime = 5 * time.Minute
	maxFetches  = 64
)

// errBypass means that the cache cannot answer, and the registry is to be asked
// past it.
var errBypass = errors.New("past the cache")

// CacheOptions configure a [Cache].
type CacheOptions struct {
	// H1 computes the h1: hash of each archive that is kept, for [Cache.H1].
	H1 bool
	// Log takes what is wrong with the folder; nil: nobody reads it.
	Log *slog.Logger
	// Counters counts what it is asked for; nil: nobody counts.
	Counters *telemetry.ArchiveCounters
}

// OpenCache opens the cache in a folder, which is made if it is not there, of at
// most maxSize bytes. What a process that ended left half fetched is removed.
// The caller closes it.
func OpenCache(dir string, maxSize int64, o CacheOptions) (*Cache, error) {
	c := &Cache{
		dir: filepath.Join(dir, "archives"), max: maxSize, h1: o.H1, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)), n: o.Counters,
		known: map[string]known{}, shared: map[blob]*shared{}, write: (*os.File).Write,
	}
	if c.n == nil {
		c.n = &telemetry.ArchiveCounters{}
	}
	err := privatefolder.Make(c.dir, c.log)
	if err == nil {
		err = os.MkdirAll(c.temporary(), 0o700)
	}
	if err == nil {
		var probe *os.File
		if probe, err = os.CreateTemp(c.temporary(), "open-*"); err == nil {
			c.id = filepath.Base(probe.Name()) + "."
			err = errors.Join(probe.Close(), os.Remove(probe.Name()))
		}
	}
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("the cache in %s cannot be used: %w", dir, err),
			"name a folder that the user who runs this may write to, as directory in the cache block")
	}
	c.room.Lock()
	defer c.room.Unlock()
	kept, err := c.count()
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("the cache in %s cannot be read: %w", dir, err), "is all below it owned by the user who runs this?")
	}
	c.evict(kept, c.max)
	return c, nil
}

// Close ends fetches under way, waits for that, and tells the folder when what is
// in it was last used.
func (c *Cache) Close() error {
	c.mu.Lock()
	c.closed = true
	for _, s := range c.shared {
		s.cancel()
	}
	c.mu.Unlock()
	c.running.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for hex, k := range c.known {
		if k.used.After(k.touched) {
			_ = os.Chtimes(c.meta(hex), k.used, k.used)
		}
	}
	return nil
}

func (c *Cache) temporary() string { return filepath.Join(c.dir, "tmp") }

func (c *Cache) path(hex string) string { return filepath.Join(c.dir, "sha256", hex[:2], hex) }

// SizeOf returns the size of the archive with a digest, if it is in the folder: what
// its bytes are, nobody has looked at yet. A nil cache has none.
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

// load opens an archive in the folder and makes sure of what it is; nil if it is
// not there, or not right.
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
		c.use(b.hex)
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

// isVerified reports whether a file is the one that was hashed.
func (c *Cache) isVerified(hex string, info fs.FileInfo) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[hex]
	return k.file != nil && os.SameFile(k.file, info) && k.file.Size() == info.Size() && k.file.ModTime().Equal(info.ModTime()) &&
		time.Since(k.verified) < reverify
}

// rehash hashes a file, and remembers it if it is what its name says.
func (c *Cache) rehash(ctx context.Context, f *os.File, info fs.FileInfo, hex string) error {
	h := sha256.New()
	buf := buffers.Get().(*[CopyBuffer]byte)
	defer buffers.Put(buf)
	// Wrapped, since a file would bring a buffer of its own.
	if _, err := io.CopyBuffer(h, struct{ io.Reader }{contextReader{ctx, f}}, buf[:]); err != nil {
		return err
	}
	if got := fmt.Sprintf("%x", h.Sum(nil)); got != hex {
		return fmt.Errorf("%w: %s", ErrDigest, got)
	}
	c.learn(hex, info)
	return nil
}

// learn remembers a file as verified.
func (c *Cache) learn(hex string, info fs.FileInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[hex]
	k.file, k.verified = info, time.Now()
	c.known[hex] = k
}

// forget has an archive hashed again before it is used.
func (c *Cache) forget(hex string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[hex]
	k.file = nil
	c.known[hex] = k
}

// use notes that an archive is used now. The folder is told seldom, for it is to
// survive this process and no more.
func (c *Cache) use(hex string) {
	now := time.Now()
	c.mu.Lock()
	k := c.known[hex]
	k.used = now
	touch := now.Sub(k.touched) >= touchEvery
	if touch {
		k.touched = now
	}
	c.known[hex] = k
	c.mu.Unlock()
	if touch && errors.Is(os.Chtimes(c.meta(hex), now, now), fs.ErrNotExist) {
		// Without it all that is lost is the age of what is there. One with an h1 may
		// just be coming: it is not to be replaced.
		if f, err := os.OpenFile(c.meta(hex), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err == nil {
			f.Close()
		}
	}
}

// discard removes an archive that is not what its name says, unless another
// process has replaced it by now.
func (c *Cache) discard(hex string, info fs.FileInfo) {
	c.room.Lock()
	defer c.room.Unlock()
	if now, err := os.Stat(c.path(hex)); err == nil && os.SameFile(now, info) {
		if err := os.Remove(c.path(hex)); err == nil {
			c.total -= info.Size()
		}
	}
}

// has reports whether an archive is there or on its way, without reading it.
func (c *Cache) has(b blob) bool {
	c.mu.Lock()
	s := c.shared[b]
	c.mu.Unlock()
	if s != nil && s.usable() {
		return true
	}
	info, err := os.Stat(c.path(b.hex))
	return err == nil && info.Mode().IsRegular() && info.Size() == b.size
}

// contextReader fails once its context has ended.
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
