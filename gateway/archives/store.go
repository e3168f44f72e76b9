package archives

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
	"github.com/ocibridge/ocibridge/provider"
)

// The cache also keeps packages unpacked, below DIR/archives/unpacked:
//
//	HEX/        the read-only files of a package; HEX is the package's h1: hash in hexadecimal
//	HEX.meta    a line about the package; the mtime is the package's last use
//	HEX.linked  an empty file: workspaces may have links to the package
//
// A package is unpacked into tmp from a verified archive, and renamed. All of its bytes are hashed again whenever they are
// copied or linked. A folder that does not match its hash is removed.

const (
	unpackedDir  = "unpacked"
	linkedSuffix = ".linked"
	folderSuffix = ".folder" // ends the name of a folder in tmp; the file without the suffix is locked while the folder is in use
	// keepLinked is how long a package is kept after its last use if workspaces may have links to it.
	keepLinked = 30 * 24 * time.Hour
	// unpackPatience is how long a process waits for another one that is unpacking the same package.
	unpackPatience = time.Minute
)

// ignoresModes is whether the system has no mode that says which files may be executed.
const ignoresModes = runtime.GOOS == "windows"

// ErrNotCached means that the cache does not have a package.
var ErrNotCached = errors.New("not in the cache")

// unpackedMeta is the content of the meta file of an unpacked package.
type unpackedMeta struct {
	size     int64  // of the files
	zip      string // the SHA-256 of the archive from which the package was unpacked, in hexadecimal
	programs string // the SHA-256 of the names of the executable files, each followed by a line feed
}

func (m unpackedMeta) line(hex string) string {
	text := fmt.Sprintf("%d %s %s", m.size, m.zip, m.programs)
	return fmt.Sprintf("%s %x\n", text, sha256.Sum256([]byte(hex+" "+text)))
}

func (c *Cache) unpacked(hex string) string { return filepath.Join(c.dir, unpackedDir, hex) }

// hexOf returns an h1: hash in hexadecimal, or "" for other hashes.
func hexOf(h provider.Hash) string {
	value, ok := strings.CutPrefix(h.String(), "h1:")
	raw, err := base64.StdEncoding.DecodeString(value)
	if !ok || err != nil {
		return ""
	}
	return hex.EncodeToString(raw)
}

// h1Of is the inverse of hexOf.
func h1Of(name string) (provider.Hash, bool) {
	raw, err := hex.DecodeString(name)
	if err != nil {
		return provider.Hash{}, false
	}
	h, err := provider.ParseHash("h1:" + base64.StdEncoding.EncodeToString(raw))
	return h, err == nil
}

// readUnpackedMeta returns what the meta file says about an unpacked package. The bool is false if there is no such file, or
// if it is damaged.
func (c *Cache) readUnpackedMeta(hex string) (m unpackedMeta, ok bool) {
	f, err := os.Open(c.unpacked(hex) + metaSuffix)
	if err != nil {
		return m, false
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxMeta))
	if _, serr := fmt.Sscanf(string(text), "%d %64s %64s", &m.size, &m.zip, &m.programs); err != nil || serr != nil {
		return m, false
	}
	return m, m.line(hex) == string(text)
}

// Unpacked returns which of the hashes is that of the archive with the given digest, if that package is stored unpacked.
// A nil cache stores nothing.
func (c *Cache) Unpacked(d digest.Digest, hashes []provider.Hash) (provider.Hash, bool) {
	if c == nil {
		return provider.Hash{}, false
	}
	i := slices.IndexFunc(hashes, func(h provider.Hash) bool { return c.holds(hexOf(h), d.Encoded()) })
	if i < 0 {
		return provider.Hash{}, false
	}
	return hashes[i], true
}

// holds reports whether the package with the given h1: hash is stored, unpacked from the given archive.
func (c *Cache) holds(hex, zip string) bool {
	m, ok := c.readUnpackedMeta(hex)
	info, err := os.Lstat(c.unpacked(hex))
	return ok && m.zip == zip && err == nil && info.IsDir()
}

// Unpack unpacks a cached archive, and returns its h1: hash. The error wraps ErrNotCached if the archive is not cached, and
// [provider.ErrNotPlain] if clients unpack it in ways of their own.
func (c *Cache) Unpack(ctx context.Context, d digest.Digest, size int64) (provider.Hash, error) {
	if err := c.waitFor(ctx, d.Encoded(), size); err != nil {
		return provider.Hash{}, err
	}
	f := c.load(ctx, blob{hex: d.Encoded(), size: size})
	if f == nil {
		return provider.Hash{}, fmt.Errorf("%s: %w", d, ErrNotCached)
	}
	defer f.Close()
	c.use(d.Encoded())
	z, err := provider.OpenZip(ctx, f, size)
	if err != nil {
		return provider.Hash{}, err
	}
	// Other processes may need the same package now.
	lock, err := privatefolder.Lock(filepath.Join(c.temporary(), d.Encoded()+".unpack"), unpackPatience)
	if err != nil {
		return provider.Hash{}, err
	}
	defer func() {
		lock.Close()
		_ = os.Remove(lock.Name())
	}()
	if h, ok := c.H1(d); ok && c.holds(hexOf(h), d.Encoded()) {
		return h, nil
	}
	h, err := c.unpack(d.Encoded(), z)
	if err == nil {
		c.keepH1(ctx, d.Encoded(), h.String())
	}
	return h, err
}

// unpack unpacks an archive into tmp, and gives the folder its final name.
func (c *Cache) unpack(zip string, z *provider.Zip) (provider.Hash, error) {
	room, err := c.reserve(z.Size())
	if err != nil {
		return provider.Hash{}, err
	}
	dir, stays := room.Name()+folderSuffix, false
	defer func() {
		c.room.Lock() // so that a count sees the folder or its room, but not both
		defer c.room.Unlock()
		_ = os.RemoveAll(dir)
		room.Close()
		if os.Remove(room.Name()); !stays {
			c.bytes.Add(-z.Size())
		}
	}()
	h, m, err := unpackInto(dir, z)
	if err != nil {
		return h, err
	}
	m.zip = zip
	stays, err = c.commitFolder(dir, hexOf(h), m)
	return h, err
}

// waitFor waits until this process does not fetch an archive. Readers get all of its bytes before it has its final name.
func (c *Cache) waitFor(ctx context.Context, hex string, size int64) error {
	var all []*shared
	c.mu.Lock()
	for b, s := range c.shared {
		if b.hex == hex && b.size == size {
			all = append(all, s)
		}
	}
	c.mu.Unlock()
	for _, s := range all {
		select {
		case <-s.filled:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// unpackInto unpacks a zip into a new folder. The files are read-only, and the folders are not, so that "rm -r" removes them.
func unpackInto(dir string, z *provider.Zip) (h provider.Hash, m unpackedMeta, err error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return h, m, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return h, m, err
	}
	defer root.Close()
	var programs []string
	h, err = z.Unpack(func(name string, executable bool) (io.WriteCloser, error) {
		mode := fs.FileMode(0o444)
		if executable {
			programs, mode = append(programs, name), 0o555
		}
		path := filepath.FromSlash(name)
		if err := root.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		f, err := root.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		err = f.Chmod(mode) // whatever the umask
		if info, serr := f.Stat(); err == nil && serr == nil && !ignoresModes && info.Mode() != mode {
			err = errors.New("the file system keeps no modes")
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		return f, nil
	})
	return h, unpackedMeta{size: z.Size(), programs: sumPrograms(programs)}, err
}

func sumPrograms(names []string) string {
	slices.Sort(names)
	h := sha256.New()
	for _, name := range names {
		fmt.Fprintln(h, name)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// commitFolder gives an unpacked package its final name. If another process has stored the same package, that one stays.
func (c *Cache) commitFolder(dir, hex string, m unpackedMeta) (isNew bool, err error) {
	final := c.unpacked(hex)
	if err := os.MkdirAll(filepath.Dir(final), 0o700); err != nil {
		return false, err
	}
	if err := privatefolder.Write(final+metaSuffix, []byte(m.line(hex))); err != nil {
		return false, err
	}
	c.room.Lock()
	defer c.room.Unlock()
	err = os.Rename(dir, final)
	if info, serr := os.Lstat(final); err != nil && serr == nil && info.IsDir() {
		return false, nil
	}
	return err == nil, err
}

// Lay copies an unpacked package into the new folder to. If the file system can, the copies share the bytes with the cache.
//
// The error wraps ErrNotCached if the package is not stored unpacked, and ErrDigest if it does not match its hash. Such a
// package is removed. The caller removes the folder after an error.
func (c *Cache) Lay(ctx context.Context, h provider.Hash, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	err := c.check(ctx, h, func(name string, from *os.File, executable bool) (sum [sha256.Size]byte, err error) {
		path := filepath.Join(to, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return sum, err
		}
		mode := fs.FileMode(0o644)
		if executable {
			mode = 0o755
		}
		if files.Clone(from, path, mode) == nil {
			return sumFile(ctx, from, nil)
		}
		out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			return sum, err
		}
		sum, err = sumFile(ctx, from, out)
		return sum, errors.Join(err, out.Close())
	})
	if err == nil {
		c.useUnpacked(hexOf(h))
	}
	return err
}

// Linked returns the folder of an unpacked package, for a link to it. The error is that of [Cache.Lay].
func (c *Cache) Linked(ctx context.Context, h provider.Hash) (string, error) {
	to := c.unpacked(hexOf(h))
	err := c.verifyUnpacked(ctx, h)
	if err == nil {
		c.useUnpacked(hexOf(h))
		err = os.WriteFile(to+linkedSuffix, nil, 0o600)
	}
	return to, err
}

// useUnpacked stores the time of a package's last use on disk. If that fails, only this time is lost.
func (c *Cache) useUnpacked(hex string) {
	now := time.Now()
	_ = os.Chtimes(c.unpacked(hex)+metaSuffix, now, now)
}

func (c *Cache) verifyUnpacked(ctx context.Context, h provider.Hash) error {
	return c.check(ctx, h, func(_ string, from *os.File, _ bool) ([sha256.Size]byte, error) { return sumFile(ctx, from, nil) })
}

// UnpackedHash returns the h1: hash of the package to whose folder in a cache, this one or another, the path leads. The folder
// may be gone. The bool is false for other paths.
func UnpackedHash(path string) (provider.Hash, bool) {
	if parent := filepath.Dir(path); filepath.Base(parent) != unpackedDir || filepath.Base(filepath.Dir(parent)) != "archives" {
		return provider.Hash{}, false
	}
	return h1Of(filepath.Base(path))
}

// UseLinked records that a package is used to which a workspace has a link.
func (c *Cache) UseLinked(h provider.Hash) {
	if c != nil {
		c.useUnpacked(hexOf(h))
	}
}

// Runs reports whether clients find the program of a provider of the given type in an unpacked package.
func (c *Cache) Runs(h provider.Hash, typ string) bool {
	entries, _ := os.ReadDir(c.unpacked(hexOf(h))) // another process may have evicted it
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		info, err := e.Info()
		return err == nil && provider.IsProgram(e.Name(), typ) && info.Mode().IsRegular() && (ignoresModes || info.Mode()&0o100 != 0)
	})
}

// check passes each file of an unpacked package to the function use, which returns the SHA-256 of the file's content. It
// compares the hash of the whole package with h.
func (c *Cache) check(ctx context.Context, h provider.Hash, use func(name string, from *os.File, executable bool) ([sha256.Size]byte, error)) error {
	hex := hexOf(h)
	m, ok := c.readUnpackedMeta(hex)
	if !ok {
		return fmt.Errorf("%s: %w", h, ErrNotCached)
	}
	before, _ := os.Lstat(c.unpacked(hex))
	sums := map[string][sha256.Size]byte{}
	var programs []string
	err := filepath.WalkDir(c.unpacked(hex), func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir():
			return nil
		case !e.Type().IsRegular():
			return fmt.Errorf("%w: %s is no file", ErrDigest, path)
		}
		rel, err := filepath.Rel(c.unpacked(hex), path)
		if err != nil {
			return err
		}
		f, info, err := files.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		name, executable := filepath.ToSlash(rel), info.Mode()&0o100 != 0
		if executable {
			programs = append(programs, name)
		}
		sums[name], err = use(name, f, executable)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) { // another process has evicted it
		return fmt.Errorf("%s: %w", h, ErrNotCached)
	}
	if err == nil && (provider.HashFolder(sums) != h || sumPrograms(programs) != m.programs && !ignoresModes) {
		err = fmt.Errorf("%w: %s", ErrDigest, h)
	}
	if _, there := c.readUnpackedMeta(hex); errors.Is(err, ErrDigest) && !there { // it was evicted meanwhile
		return fmt.Errorf("%s: %w", h, ErrNotCached)
	}
	if errors.Is(err, ErrDigest) {
		c.n.Damaged.Add(1)
		c.log.ErrorContext(ctx, "an unpacked package in the cache is damaged: it is removed and unpacked again", "h1", h.String())
		c.discardFolder(hex, before, m.size)
	}
	return err
}

// sumFile returns the SHA-256 of a file, and copies it to w unless w is nil.
func sumFile(ctx context.Context, f *os.File, w io.Writer) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	to := io.Writer(h)
	if w != nil {
		to = io.MultiWriter(h, w)
	}
	buf := buffers.Get().(*[CopyBuffer]byte)
	defer buffers.Put(buf)
	_, err = io.CopyBuffer(struct{ io.Writer }{to}, contextReader{ctx, f}, buf[:])
	return [sha256.Size]byte(h.Sum(nil)), err
}

// discardFolder removes a damaged package, unless another process has replaced it.
func (c *Cache) discardFolder(hex string, seen fs.FileInfo, size int64) {
	c.room.Lock()
	defer c.room.Unlock()
	now, err := os.Lstat(c.unpacked(hex))
	if err == nil && seen != nil && os.SameFile(now, seen) && c.removeUnpacked(hex) == nil {
		c.bytes.Add(-size)
	}
}

// removeUnpacked removes an unpacked package. Processes that are reading it notice that its meta file or other files are
// missing.
func (c *Cache) removeUnpacked(hex string) error {
	final := c.unpacked(hex)
	if err := os.Remove(final + metaSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = os.Remove(final + linkedSuffix) // if that fails, a count removes it
	aside := filepath.Join(c.temporary(), rand.Text()+folderSuffix)
	if err := os.Rename(final, aside); err != nil {
		return err
	}
	return os.RemoveAll(aside)
}

// countUnpacked returns the unpacked packages. It removes what is left of packages without a valid meta file, if it is older
// than orphans.
func (c *Cache) countUnpacked(orphans time.Duration) ([]entry, error) {
	entries, err := os.ReadDir(filepath.Join(c.dir, unpackedDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []entry
	folders, linked := map[string]bool{}, map[string]bool{}
	// The names are sorted: a folder comes first, then its marker, and then its meta file.
	for _, e := range entries {
		name := strings.TrimSuffix(strings.TrimSuffix(e.Name(), metaSuffix), linkedSuffix)
		_, isHash := h1Of(name)
		info, err := e.Info()
		switch {
		case err != nil || !isHash && !strings.HasPrefix(name, privatefolder.Temporary): // another process has removed it, or it is not the cache's
		case isHash && name == e.Name() && info.IsDir():
			folders[name] = true
		case folders[name] && strings.HasSuffix(e.Name(), linkedSuffix):
			linked[name] = true
		case folders[name]:
			if m, ok := c.readUnpackedMeta(name); ok {
				delete(folders, name)
				out = append(out, entry{hex: name, size: m.size, used: info.ModTime(), unpacked: true, zip: m.zip, linked: linked[name]})
			}
		case time.Since(info.ModTime()) > orphans: // a newer meta file may be written before its folder
			_ = os.RemoveAll(filepath.Join(c.dir, unpackedDir, e.Name()))
		}
	}
	for name := range folders {
		if _, ok := c.readUnpackedMeta(name); !ok { // it may have been written since
			_ = c.removeUnpacked(name)
		}
	}
	return out, nil
}
