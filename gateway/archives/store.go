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
// A package is unpacked into tmp from a verified archive, and renamed. Before it is copied or linked, its files are listed. Its
// bytes are hashed again if the names, modes, sizes or times of the files have changed, and a day after they were last hashed. A
// folder that does not match its hash is removed. Clients notice what remains, because they hash what they find.

const (
	unpackedDir  = "unpacked"
	linkedSuffix = ".linked"
	folderSuffix = ".folder" // ends the name of a folder in tmp; the file without the suffix is locked while the folder is in use
	// keepLinked is how long a package is kept after its last use if workspaces may have links to it.
	keepLinked = 30 * 24 * time.Hour
	copyAtOnce = 64 << 20 // the bytes that are copied before ctx is asked
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
	state    string // the result of stateOf when the files were hashed
	hashed   int64  // when they were hashed, in seconds since 1970
}

func (m unpackedMeta) line(hex string) string {
	text := fmt.Sprintf("%d %s %s %s %d", m.size, m.zip, m.programs, m.state, m.hashed)
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
	if _, serr := fmt.Sscanf(string(text), "%d %64s %64s %64s %d", &m.size, &m.zip, &m.programs, &m.state, &m.hashed); err != nil || serr != nil {
		return m, false
	}
	return m, m.line(hex) == string(text)
}

// Unpacked finds the unpacked package of the archive with the given digest, and returns its h1: hash. It finds only packages
// whose hash is among hashes. A nil cache has none.
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
	// Other processes may need the same package now. If two of them lock different files because one was removed, both unpack it,
	// and one result stays.
	waiting, cancel := context.WithTimeout(ctx, unpackPatience)
	defer cancel()
	lock, err := privatefolder.LockUntil(waiting, filepath.Join(c.temporary(), d.Encoded()+".unpack"))
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
		_ = os.Remove(room.Name()) // what is left, a count removes
		if !stays {
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
	if err != nil {
		return h, m, err
	}
	all, err := listFolder(dir)
	return h, unpackedMeta{size: z.Size(), programs: sumPrograms(programs), state: stateOf(all), hashed: time.Now().Unix()}, err
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
	all, err := c.verifyUnpacked(ctx, h, false)
	if err == nil {
		err = os.Mkdir(to, 0o755)
	}
	for _, f := range all {
		if err == nil {
			err = copyFile(ctx, filepath.Join(c.unpacked(hexOf(h)), filepath.FromSlash(f.name)), filepath.Join(to, filepath.FromSlash(f.name)), f.executable())
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist): // another process has evicted it
		return fmt.Errorf("%s: %w", h, ErrNotCached)
	case err == nil:
		c.useUnpacked(hexOf(h))
	}
	return err
}

// copyFile copies a file to a new one, and creates the folders that lead to it.
func copyFile(ctx context.Context, from, to string, executable bool) error {
	in, _, err := files.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if executable {
		mode = 0o755
	}
	if files.Clone(in, to, mode) == nil {
		return nil
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	for n := int64(copyAtOnce); err == nil && n == copyAtOnce; { // in pieces, so that it stops when ctx ends
		if err = ctx.Err(); err == nil {
			n, err = io.Copy(out, io.LimitReader(in, copyAtOnce)) // the kernel copies, where it can
		}
	}
	return errors.Join(err, out.Close())
}

// Linked returns the folder of an unpacked package, for a link to it. The error is that of [Cache.Lay].
func (c *Cache) Linked(ctx context.Context, h provider.Hash) (string, error) {
	to := c.unpacked(hexOf(h))
	_, err := c.verifyUnpacked(ctx, h, false)
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

// UnpackedHash returns the h1: hash of the package to whose folder in a cache, this one or another, the path leads. The folder
// may be gone. The bool is false for other paths.
func UnpackedHash(path string) (provider.Hash, bool) {
	if parent := filepath.Dir(path); filepath.Base(parent) != unpackedDir || filepath.Base(filepath.Dir(parent)) != "archives" {
		return provider.Hash{}, false
	}
	return h1Of(filepath.Base(path))
}

// UseLinked records that a workspace uses a package through its link. A nil cache records nothing.
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

// storedFile is a file of an unpacked package.
type storedFile struct {
	name string // its path in the package, with slashes
	info fs.FileInfo
}

func (f storedFile) executable() bool { return f.info.Mode()&0o100 != 0 }

// listFolder returns the files in a folder, in the order of their paths. The error wraps ErrDigest if something else than files
// and folders is there.
func listFolder(dir string) (out []storedFile, err error) {
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir():
			return nil
		case !e.Type().IsRegular():
			return fmt.Errorf("%w: %s is no file", ErrDigest, path)
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		info, err := e.Info()
		out = append(out, storedFile{filepath.ToSlash(rel), info})
		return err
	})
	return out, err
}

// stateOf returns a hash of what the file system says about files, without their bytes.
func stateOf(all []storedFile) string {
	h := sha256.New()
	for _, f := range all {
		fmt.Fprintf(h, "%s\n%v %d %d\n", f.name, f.info.Mode(), f.info.Size(), f.info.ModTime().UnixNano())
	}
	return hex.EncodeToString(h.Sum(nil))
}

// verifyUnpacked returns the files of an unpacked package. It hashes them if they may have changed since they were last hashed,
// if that was longer than [rehashAfter] ago, or always. The error is that of [Cache.Lay].
func (c *Cache) verifyUnpacked(ctx context.Context, h provider.Hash, always bool) ([]storedFile, error) {
	hex := hexOf(h)
	m, ok := c.readUnpackedMeta(hex)
	if !ok {
		return nil, fmt.Errorf("%s: %w", h, ErrNotCached)
	}
	before, _ := os.Lstat(c.unpacked(hex))
	all, err := listFolder(c.unpacked(hex))
	if age := time.Since(time.Unix(m.hashed, 0)); err == nil && !always && m.state == stateOf(all) && age >= 0 && age < rehashAfter {
		return all, nil
	}
	if err == nil {
		err = c.hashFolder(ctx, h, all, m.programs)
	}
	_, there := c.readUnpackedMeta(hex)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrDigest) && !there: // another process has evicted it
		return nil, fmt.Errorf("%s: %w", h, ErrNotCached)
	case errors.Is(err, ErrDigest):
		c.n.Damaged.Add(1)
		c.log.ErrorContext(ctx, "an unpacked package in the cache is damaged: it is removed and unpacked again", "h1", h.String())
		c.discardFolder(hex, before, m.size)
		return nil, err
	case err != nil:
		return nil, err
	}
	m.state, m.hashed = stateOf(all), time.Now().Unix()
	c.keepUnpackedMeta(hex, m)
	return all, nil
}

// keepUnpackedMeta changes the meta file of an unpacked package, and keeps the time of its last use. If that fails, the package is
// hashed again before its next use.
func (c *Cache) keepUnpackedMeta(hex string, m unpackedMeta) {
	name := c.unpacked(hex) + metaSuffix
	info, err := os.Stat(name)
	if err == nil && privatefolder.Write(name, []byte(m.line(hex))) == nil {
		_ = os.Chtimes(name, info.ModTime(), info.ModTime())
	}
}

// hashFolder hashes the files of an unpacked package. The error wraps ErrDigest if they are not those of the package.
func (c *Cache) hashFolder(ctx context.Context, h provider.Hash, all []storedFile, programs string) error {
	sums := map[string][sha256.Size]byte{}
	var executable []string
	for _, stored := range all {
		f, _, err := files.Open(filepath.Join(c.unpacked(hexOf(h)), filepath.FromSlash(stored.name)))
		if err != nil {
			return err
		}
		sum := sha256.New()
		_, err = io.Copy(sum, contextReader{ctx, f})
		f.Close()
		if err != nil {
			return err
		}
		sums[stored.name] = [sha256.Size]byte(sum.Sum(nil))
		if stored.executable() {
			executable = append(executable, stored.name)
		}
	}
	if provider.HashFolder(sums) != h || sumPrograms(executable) != programs && !ignoresModes {
		return fmt.Errorf("%w: %s", ErrDigest, h)
	}
	return nil
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
