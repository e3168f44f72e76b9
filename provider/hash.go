package provider

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"unicode/utf8"
)

// Hash is a package hash in the format of lock files and mirrors. It is "zh:" and the SHA-256
// of the zip in hexadecimal, or "h1:" and the result of [H1] in base64. The zero value means
// no hash.
type Hash struct{ s string }

// maxHash is the maximum length of a hash in bytes, which is the length of a zh: hash.
const maxHash = 67

// ParseHash parses a hash of a scheme that clients know, which is zh or h1.
func ParseHash(s string) (Hash, error) {
	scheme, value, _ := strings.Cut(s[:min(len(s), maxHash+1)], ":")
	switch scheme {
	case "zh":
		if raw, err := hex.DecodeString(value); err == nil && len(raw) == sha256.Size && strings.ToLower(value) == value {
			return Hash{s}, nil
		}
	case "h1":
		if raw, err := base64.StdEncoding.Strict().DecodeString(value); err == nil && len(raw) == sha256.Size && len(value) == 44 {
			return Hash{s}, nil
		}
	}
	return Hash{}, fmt.Errorf("invalid package hash %.80q: want zh: and 64 hexadecimal digits, or h1: and 44 characters of base64", s)
}

// ZipHash returns the zh: hash of a package with the given SHA-256.
func ZipHash(sum [sha256.Size]byte) Hash { return Hash{"zh:" + hex.EncodeToString(sum[:])} }

// String returns the hash with its scheme; "" for no hash.
func (h Hash) String() string { return h.s }

// IsZero reports whether h is the zero value.
func (h Hash) IsZero() bool { return h.s == "" }

// IsZip reports whether the scheme of h is zh.
func (h Hash) IsZip() bool { return strings.HasPrefix(h.s, "zh:") }

// MarshalText implements [encoding.TextMarshaler].
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.s), nil }

// ErrNoH1 means that a zip has no h1: hash, because clients could compute different hashes or
// refuse the zip.
var ErrNoH1 = errors.New("no h1 hash")

// ErrNotZip means that bytes are not a zip, or that an entry cannot be unpacked. Errors of
// [H1] that wrap ErrNotZip also wrap ErrNoH1.
var ErrNotZip = errors.New("not a zip")

// notZipError is ErrNotZip with the reason.
type notZipError struct{ why error }

func (e *notZipError) Error() string { return fmt.Sprintf("%v: %v", ErrNotZip, e.why) }

func (e *notZipError) Is(target error) bool { return target == ErrNotZip || target == ErrNoH1 }

// errLargeDirectory means that the central directory exceeds maxDirectoryBytes.
var errLargeDirectory = errors.New("its directory is too large")

// MaxZipBytes is the maximum size in bytes of a package or of the zip of a module. The largest public packages have
// about 200 MiB.
const MaxZipBytes = 4 << 30

const (
	// maxDirectoryBytes is the maximum number of bytes that are read to find the entries of a
	// zip. They are the central directory, which is stored in memory.
	maxDirectoryBytes = 16 << 20
	maxEntries        = maxDirectoryBytes / 46 // each entry takes at least 46 bytes of the directory
	maxUnpackedBytes  = 8 << 30                // the largest providers unpack to less than 1 GiB
)

// ZipFiles describes the files in a zip.
type ZipFiles struct {
	Entries  int   // the number of files
	Unpacked int64 // the size of the files in bytes
	H1       Hash  // the h1: hash of the files
}

// H1s holds the h1: hashes that clients compute for one zip. Clients write the hash of the unpacked
// folder into lock files. "terraform providers mirror" writes the hash of the zip's entries. The two
// differ if the zip has entries for folders, several entries with one name, or names such as ./NAME. Clients accept both.
type H1s struct{ folder, zip, agreed Hash }

// Has reports whether h is one of the hashes.
func (s H1s) Has(h Hash) bool { return !h.IsZero() && (h == s.folder || h == s.zip) }

// Agreed returns the hash that every client computes, or the zero hash if clients could compute
// different hashes. Its value is the result of [H1].
func (s H1s) Agreed() Hash { return s.agreed }

// String returns the hashes for a message.
func (s H1s) String() string { return strings.Trim(fmt.Sprint(s.All()), "[]") }

// All returns the hashes without duplicates. It is empty for a zip without an h1: hash.
func (s H1s) All() []Hash {
	return slices.DeleteFunc(slices.Compact([]Hash{s.folder, s.zip}), Hash.IsZero)
}

// HashContent returns the h1: hashes of the zip in the first size bytes of r.
//
// The error wraps ErrNotZip if the bytes are not a zip, or if an entry cannot be unpacked. It wraps
// only ErrNoH1 if clients could refuse the zip. The reasons are names with .., entries that
// are no regular files, entries that overlap, and a directory or an unpacked size beyond the limits.
// HashContent stops when ctx ends. It returns errors of r and ctx unchanged.
func HashContent(ctx context.Context, r io.ReaderAt, size int64) (H1s, error) {
	c, err := readContent(ctx, r, size)
	if err != nil {
		return H1s{}, err
	}
	out := H1s{folder: c.hashFiles(), zip: c.hashEntries()}
	if c.ambiguous("") == nil {
		out.agreed = out.zip
	}
	return out, nil
}

// H1 returns the h1: hash of the zip in the first size bytes of r. It is the hash that clients
// compute for the unpacked folder.
//
// The error is that of [HashContent]. It also wraps ErrNoH1 if clients could compute different
// hashes. The reasons are directory entries, duplicate names, links, and names with a backslash.
func H1(ctx context.Context, r io.ReaderAt, size int64) (Hash, error) {
	c, err := readContent(ctx, r, size)
	if err == nil {
		err = c.ambiguous("")
	}
	if err != nil {
		return Hash{}, err
	}
	return c.hashFiles(), nil
}

// HashFiles is like [H1], but ignores directory entries. The h1: hash of a folder covers only
// its files, so HashFiles returns the hash of the unpacked folder. Clients of providers hash the
// zip itself, which is why H1 refuses directory entries.
func HashFiles(ctx context.Context, r io.ReaderAt, size int64) (ZipFiles, error) {
	c, err := readContent(ctx, r, size)
	if err == nil {
		err = c.ambiguous(isDirectory)
	}
	if err != nil {
		return ZipFiles{}, err
	}
	return ZipFiles{len(c.files), c.unpacked, c.hashFiles()}, nil
}

// content is the content of a zip.
type content struct {
	files    []string                     // the distinct names of the unpacked files
	entries  []string                     // the names of all entries
	unpacked int64                        // the size of the files in bytes
	sums     map[string][sha256.Size]byte // by the names of entries
	respelt  map[string]string            // the names of entries that unpack to files with other names, by the names of those files
	doubts   []doubt                      // the first entry for each reason why clients could compute different hashes
	source   *sourceReader
	zipped   []*zip.File // the entries to read: of several with one name, the last one
}

// doubt is an entry about which clients could differ.
type doubt struct{ entry, reason string }

const (
	isDirectory = "is a directory"
	isLink      = "is a link"
	isTwice     = "is there twice"
	isUnsafe    = "has a name that cannot be unpacked safely"
	isRespelt   = "has another name than its unpacked file"
)

// add adds an entry to c.entries, and to c.files unless it is a folder.
func (c *content) add(f *zip.File) error {
	reason, hashable := examine(f)
	if !hashable {
		return noH1(f.Name, reason)
	}
	c.entries = append(c.entries, f.Name)
	if reason != isDirectory && c.addFile(f) {
		reason = isTwice
	}
	c.sums[f.Name] = [sha256.Size]byte{}
	c.doubt(f, reason)
	if reason == isDirectory && !fs.ValidPath(strings.TrimSuffix(f.Name, "/")) {
		c.doubt(f, isRespelt) // HashFiles accepts folders
	}
	return nil
}

// doubt notes the first entry for a reason, unless the reason is "".
func (c *content) doubt(f *zip.File, reason string) {
	if reason != "" && !slices.ContainsFunc(c.doubts, func(d doubt) bool { return d.reason == reason }) {
		c.doubts = append(c.doubts, doubt{f.Name, reason})
	}
}

// addFile adds the unpacked file of an entry to c.files. It reports whether an earlier entry has the same file.
func (c *content) addFile(f *zip.File) (again bool) {
	name := unpackedName(f)
	_, same := c.sums[name]
	_, respelt := c.respelt[name]
	if delete(c.respelt, name); name != f.Name {
		c.respelt[name] = f.Name
	}
	if same || respelt {
		return true
	}
	c.files = append(c.files, name)
	return false
}

// ambiguous returns an error that wraps ErrNoH1 if clients could compute different hashes. It ignores the reason
// given as except.
func (c *content) ambiguous(except string) error {
	for _, d := range c.doubts {
		if d.reason != except {
			return noH1(d.entry, d.reason)
		}
	}
	return nil
}

func noH1(entry, reason string) error {
	return fmt.Errorf("%w: entry %.80q %s", ErrNoH1, entry, reason)
}

// hashEntries returns the h1: hash of all entries, and hashFiles returns the h1: hash of the unpacked files. They are
// the results of [dirhash.Hash1], but no entry is read again.
func (c *content) hashEntries() Hash {
	return hash1(c.entries, func(name string) [sha256.Size]byte { return c.sums[name] })
}

func (c *content) hashFiles() Hash {
	return hash1(c.files, func(name string) [sha256.Size]byte {
		if entry, ok := c.respelt[name]; ok {
			return c.sums[entry]
		}
		return c.sums[name]
	})
}

func hash1(names []string, sum func(name string) [sha256.Size]byte) Hash {
	all := sha256.New()
	for _, name := range slices.Sorted(slices.Values(names)) {
		fmt.Fprintf(all, "%x  %s\n", sum(name), name)
	}
	return Hash{"h1:" + base64.StdEncoding.EncodeToString(all.Sum(nil))}
}

// readContent reads a zip. Of several entries with one name, it reads the last one, as clients do.
func readContent(ctx context.Context, r io.ReaderAt, size int64) (*content, error) {
	c, err := openContent(ctx, r, size)
	if err == nil {
		err = c.read(sumEntry)
	}
	return c, err
}

// openContent reads the directory of a zip.
func openContent(ctx context.Context, r io.ReaderAt, size int64) (*content, error) {
	source := newSourceReader(ctx, r, size)
	z, err := source.open(size)
	if err != nil {
		return nil, err
	}
	c := &content{sums: make(map[string][sha256.Size]byte, len(z.File)), respelt: map[string]string{}, source: source}
	last := make(map[string]*zip.File, len(z.File))
	var unpacked, packed uint64
	for _, f := range z.File {
		if err := c.add(f); err != nil {
			return nil, err
		}
		// The sum is checked after each entry, so it cannot overflow. No entry is read beyond its
		// stated size.
		if unpacked += f.UncompressedSize64; unpacked > maxUnpackedBytes || f.UncompressedSize64 > maxUnpackedBytes {
			return nil, fmt.Errorf("%w: it unpacks to more than %d bytes", ErrNoH1, int64(maxUnpackedBytes))
		}
		// Without this bound, many entries could share the same long stream.
		if packed += f.CompressedSize64; packed > uint64(size) || f.CompressedSize64 > uint64(size) {
			return nil, fmt.Errorf("%w: its entries overlap", ErrNoH1)
		}
		last[f.Name] = f
	}
	c.unpacked = int64(unpacked)
	for _, f := range z.File {
		if last[f.Name] == f {
			c.zipped = append(c.zipped, f)
		}
	}
	return c, nil
}

// read reads the entries with the function sum, which returns the SHA-256 of an entry's content.
func (c *content) read(sum func(*zip.File) ([sha256.Size]byte, error)) (err error) {
	for _, f := range c.zipped {
		if c.sums[f.Name], err = sum(f); err != nil {
			break
		}
	}
	var write *writeError
	switch {
	case c.source.failed != nil:
		return c.source.failed
	case errors.As(err, &write):
		return write.error
	case err != nil:
		return &notZipError{fmt.Errorf("an entry does not unpack: %w", err)}
	}
	return nil
}

func sumEntry(f *zip.File) (sum [sha256.Size]byte, err error) {
	body, err := f.Open()
	if err != nil {
		return sum, err
	}
	defer body.Close()
	h := sha256.New()
	// A buffer of the usual size for each small file would cost more than their hashes.
	_, err = io.CopyBuffer(h, body, make([]byte, 1+min(32<<10, f.UncompressedSize64)))
	return [sha256.Size]byte(h.Sum(nil)), err
}

// sumOf returns the SHA-256 of all that in yields, and copies it to w unless w is nil.
func sumOf(in io.Reader, w io.Writer) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	if w != nil {
		in = io.TeeReader(in, w)
	}
	_, err = io.Copy(h, in)
	return [sha256.Size]byte(h.Sum(nil)), err
}

// isFolder reports whether every client unpacks an entry as a folder inside its own folder.
func isFolder(f *zip.File) bool {
	name, slash := strings.CutSuffix(f.Name, "/")
	return slash && f.Mode().Type() == fs.ModeDir && f.UncompressedSize64 == 0 && isInside(f) && !strings.Contains(name, "\\")
}

// ReadZipDirectory reads the directory of the zip in the first size bytes of r, with a bound on its
// memory. The names and modes of the entries are not checked. The error wraps ErrNotZip or ErrNoH1, or
// is that of r or ctx. Once ctx is done, reading an entry returns the error of ctx.
func ReadZipDirectory(ctx context.Context, r io.ReaderAt, size int64) (*zip.Reader, error) {
	return newSourceReader(ctx, r, size).open(size)
}

// CheckZip returns nil if the first size bytes of r end with the directory of a zip, and
// otherwise an error that wraps ErrNotZip. It reads at most the directory. It returns errors
// of r and ctx unchanged.
func CheckZip(ctx context.Context, r io.ReaderAt, size int64) error {
	_, err := newSourceReader(ctx, r, size).open(size)
	if errors.Is(err, errLargeDirectory) {
		return nil
	}
	return err
}

// examine returns the reason why clients could refuse an entry, or compute different hashes of its zip. The reason is
// "" if clients could do neither. hashable reports whether clients unpack the entry: a folder as a folder, and a link
// as a file with the link's target.
func examine(f *zip.File) (reason string, hashable bool) {
	switch mode := f.Mode(); {
	case mode.IsDir() || strings.HasSuffix(f.Name, "/"):
		return isDirectory, isFolder(f)
	case !isInside(f) || unpackedName(f) == "":
		return isUnsafe, false
	case mode&fs.ModeSymlink != 0:
		return isLink, true
	case !mode.IsRegular():
		return "is no regular file", false
	case strings.Contains(f.Name, "\\"):
		return isUnsafe, true
	case unpackedName(f) != f.Name:
		return isRespelt, true
	}
	return "", true
}

// isInside reports whether clients unpack an entry inside their folder. They refuse names with "..".
func isInside(f *zip.File) bool {
	return utf8.ValidString(f.Name) && !slices.Contains(strings.Split(f.Name, "/"), "..") && !strings.Contains(f.Name, "\n")
}

// sourceReader reads the bytes of a zip, and records its first error.
type sourceReader struct {
	r      io.ReaderAt
	alive  func() error // returns an error if reading must stop
	limit  int64        // how many more bytes may be read; negative means no limit
	zip64  bool         // a ZIP64 end record was read
	says   uint64       // the number of entries that the ZIP64 end record states
	failed error        // the first error of r or alive, other than [io.EOF]
}

func newSourceReader(ctx context.Context, r io.ReaderAt, size int64) *sourceReader {
	return &sourceReader{r: io.NewSectionReader(r, 0, size), alive: ctx.Err, limit: -1}
}

// open reads the directory of a zip of size bytes.
func (s *sourceReader) open(size int64) (*zip.Reader, error) {
	s.limit = maxDirectoryBytes
	z, err := zip.NewReader(s, size)
	s.limit = -1
	switch {
	case s.failed != nil:
		return nil, s.failed
	case errors.Is(err, errLargeDirectory):
		return nil, fmt.Errorf("%w: %w", ErrNoH1, err)
	case err != nil && !errors.Is(err, zip.ErrInsecurePath): // H1 checks names itself
		return nil, &notZipError{err}
	case s.zip64 && s.says != uint64(len(z.File)): // the library compares only 16 bits
		return nil, &notZipError{fmt.Errorf("it says that it has %d entries, and has %d", s.says, len(z.File))}
	}
	return z, nil
}

// checkEnd returns an error if p is a ZIP64 end record with more than maxEntries entries, because
// the library allocates memory for all entries before it reads them. p was read at the offset
// off. The library reads the whole record with a single call.
func (s *sourceReader) checkEnd(p []byte, off int64) error {
	const length = 56 // of the record without extensions
	if len(p) != length || string(p[:4]) != "PK\x06\x06" {
		return nil
	}
	s.zip64, s.says = true, binary.LittleEndian.Uint64(p[32:])
	if s.says <= maxEntries {
		return nil
	}
	// If no directory precedes the record, the bytes are not a zip.
	size := binary.LittleEndian.Uint64(p[40:])
	if size > uint64(off) {
		return zip.ErrFormat
	}
	first := make([]byte, 4)
	if _, err := s.ReadAt(first, off-int64(size)); err != nil {
		return err
	}
	if string(first) != "PK\x01\x02" {
		return zip.ErrFormat
	}
	return errLargeDirectory
}

// ReadAt implements [io.ReaderAt]. A read beyond the limit is an error, never a truncation.
func (s *sourceReader) ReadAt(p []byte, off int64) (int, error) {
	opening := s.limit >= 0
	if opening {
		if int64(len(p)) > s.limit {
			return 0, errLargeDirectory
		}
		s.limit -= int64(len(p))
	}
	n, err := 0, s.alive()
	if err == nil {
		n, err = s.r.ReadAt(p, off)
	}
	if err != nil && err != io.EOF && s.failed == nil {
		s.failed = err
	}
	if err == nil && opening {
		err = s.checkEnd(p, off)
	}
	return n, err
}
