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
	"path"
	"strings"

	"golang.org/x/mod/sumdb/dirhash"
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

// notZipError means that bytes are not a zip. The field why holds the reason.
type notZipError struct{ why error }

func (e *notZipError) Error() string { return fmt.Sprintf("%v: %v", ErrNotZip, e.why) }

// Is reports whether target is ErrNotZip or ErrNoH1.
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
	// maxEntries is the maximum number of entries that a zip may claim to have. Each entry
	// takes at least 46 bytes of the directory.
	maxEntries = maxDirectoryBytes / 46
	// maxUnpackedBytes is the maximum unpacked size in bytes of a zip that is hashed. The
	// largest providers unpack to less than 1 GiB.
	maxUnpackedBytes = 8 << 30
)

// ZipFiles describes the files in a zip.
type ZipFiles struct {
	Entries  int   // the number of files
	Unpacked int64 // the size of the files in bytes
	H1       Hash  // the h1: hash of the files
}

// H1 returns the h1: hash of the zip in the first size bytes of r. It is the hash that clients
// compute for the unpacked folder.
//
// The error wraps ErrNotZip if the bytes are not a zip, or if an entry cannot be unpacked.
// It wraps only ErrNoH1 if clients could compute different hashes or refuse the zip. The
// reasons are directory entries, duplicate names, links, names outside the folder, entries that
// overlap, and a directory or an unpacked size beyond the limits. H1 stops when ctx ends. It returns errors
// of r and ctx unchanged.
func H1(ctx context.Context, r io.ReaderAt, size int64) (Hash, error) {
	files, err := hashFiles(ctx, r, size, false)
	return files.H1, err
}

// HashFiles is like [H1], but ignores directory entries. The h1: hash of a folder covers only
// its files, so HashFiles returns the hash of the unpacked folder. Clients of providers hash the
// zip itself, which is why H1 refuses directory entries.
func HashFiles(ctx context.Context, r io.ReaderAt, size int64) (ZipFiles, error) {
	return hashFiles(ctx, r, size, true)
}

// hashFiles returns the h1: hash of the files in a zip. folders allows directory entries.
func hashFiles(ctx context.Context, r io.ReaderAt, size int64, folders bool) (ZipFiles, error) {
	source := newSourceReader(ctx, r, size)
	z, err := source.open(size)
	if err != nil {
		return ZipFiles{}, err
	}
	files := make(map[string]*zip.File, len(z.File))
	names := make([]string, 0, len(z.File))
	var unpacked, packed uint64
	for _, f := range z.File {
		if folders && isFolder(f) {
			continue
		}
		if reason := unhashable(f); reason != "" {
			return ZipFiles{}, fmt.Errorf("%w: entry %.80q %s", ErrNoH1, f.Name, reason)
		}
		if files[f.Name] != nil {
			return ZipFiles{}, fmt.Errorf("%w: entry %.80q is there twice", ErrNoH1, f.Name)
		}
		// The sum is checked after each entry, so it cannot overflow. The code below does not
		// read an entry beyond its stated size.
		if unpacked += f.UncompressedSize64; unpacked > maxUnpackedBytes || f.UncompressedSize64 > maxUnpackedBytes {
			return ZipFiles{}, fmt.Errorf("%w: it unpacks to more than %d bytes", ErrNoH1, int64(maxUnpackedBytes))
		}
		// Without this bound, many entries could share the same long stream.
		if packed += f.CompressedSize64; packed > uint64(size) || f.CompressedSize64 > uint64(size) {
			return ZipFiles{}, fmt.Errorf("%w: its entries overlap", ErrNoH1)
		}
		files[f.Name] = f
		names = append(names, f.Name)
	}
	h, err := dirhash.Hash1(names, func(name string) (io.ReadCloser, error) { return files[name].Open() })
	switch {
	case source.failed != nil:
		return ZipFiles{}, source.failed
	case err != nil:
		return ZipFiles{}, &notZipError{fmt.Errorf("an entry does not unpack: %w", err)}
	}
	return ZipFiles{len(names), int64(unpacked), Hash{h}}, nil
}

// isFolder reports whether every client unpacks an entry as a folder inside its own folder.
func isFolder(f *zip.File) bool {
	name, slash := strings.CutSuffix(f.Name, "/")
	return slash && f.Mode().Type() == fs.ModeDir && f.UncompressedSize64 == 0 && fs.ValidPath(name) && !strings.ContainsAny(name, "\\\n")
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

// unhashable returns the reason why clients could refuse an entry, or could compute different
// hashes of its zip. It returns "" if there is no such reason.
func unhashable(f *zip.File) string {
	switch mode := f.Mode(); {
	case mode.IsDir() || strings.HasSuffix(f.Name, "/"):
		return "is a directory"
	case mode&fs.ModeSymlink != 0:
		return "is a link"
	case !mode.IsRegular():
		return "is no regular file"
	case !fs.ValidPath(f.Name) || path.IsAbs(f.Name) || strings.ContainsAny(f.Name, "\\\n"):
		return "has a name that cannot be unpacked safely"
	}
	return ""
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

// checkEnd returns an error if p is a ZIP64 end record with more than maxEntries entries. The
// bytes p were read at the offset off. The check is needed because the library allocates
// memory for all entries before it reads the first entry. The library reads the whole record
// with a single call, so p never contains only a part of it.
func (s *sourceReader) checkEnd(p []byte, off int64) error {
	const length = 56 // of the record without extensions
	if len(p) != length || string(p[:4]) != "PK\x06\x06" {
		return nil
	}
	s.zip64, s.says = true, binary.LittleEndian.Uint64(p[32:])
	if s.says <= maxEntries {
		return nil
	}
	// If no directory precedes the record, the bytes are not a zip, and the number of entries
	// does not matter.
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
