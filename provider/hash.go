package provider

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/mod/sumdb/dirhash"
)

// Hash is a package hash as lock files and mirrors write it: "zh:" and the
// SHA-256 of the zip in hexadecimal, or "h1:" and, in base64, the hash over the
// unpacked package that [H1] computes. The zero value is no hash.
type Hash struct{ s string }

// ParseHash reads a hash of a scheme that clients know.
func ParseHash(s string) (Hash, error) {
	scheme, value, _ := strings.Cut(s, ":")
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
	return Hash{}, fmt.Errorf("invalid package hash %q: want zh: and 64 hexadecimal digits, or h1: and 44 characters of base64", s)
}

// ZipHash returns the zh: hash of a package with the given SHA-256.
func ZipHash(sum [sha256.Size]byte) Hash { return Hash{"zh:" + hex.EncodeToString(sum[:])} }

// String returns the hash with its scheme, "" for none.
func (h Hash) String() string { return h.s }

// IsZero reports whether h is no hash.
func (h Hash) IsZero() bool { return h.s == "" }

// IsZip reports whether h is of the scheme zh.
func (h Hash) IsZip() bool { return strings.HasPrefix(h.s, "zh:") }

// MarshalText implements [encoding.TextMarshaler].
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.s), nil }

// ErrNoH1 is what [H1] returns for a zip on which clients would not agree.
var ErrNoH1 = errors.New("no h1 hash")

// ErrNotZip means that what [H1] was given does not read as a zip at all. It comes
// with ErrNoH1.
var ErrNotZip = errors.New("not a zip")

const (
	// maxDirectoryBytes bounds what is read of a zip before its entries are
	// known: its central directory, which is held in memory.
	maxDirectoryBytes = 16 << 20
	// maxUnpackedBytes bounds what a zip may unpack to while it is hashed. The
	// largest providers unpack to under 1 GiB.
	maxUnpackedBytes = 8 << 30
)

// H1 returns the h1: hash of the zip of size bytes in r, as clients compute it
// over the unpacked folder, and ErrNoH1 with a reason where they could come to
// different answers or refuse the zip: directory entries, duplicate names,
// links, names outside the folder, a zip that does not read, a directory or an
// unpacked size beyond what any provider has.
func H1(r io.ReaderAt, size int64) (Hash, error) {
	limited := &limitedReaderAt{r: r, left: maxDirectoryBytes}
	z, err := zip.NewReader(limited, size)
	if err != nil {
		return Hash{}, fmt.Errorf("%w: %w: %v", ErrNoH1, ErrNotZip, err)
	}
	limited.left = -1
	files := make(map[string]*zip.File, len(z.File))
	names := make([]string, 0, len(z.File))
	var unpacked uint64
	for _, f := range z.File {
		if reason := unhashable(f); reason != "" {
			return Hash{}, fmt.Errorf("%w: entry %q %s", ErrNoH1, f.Name, reason)
		}
		if files[f.Name] != nil {
			return Hash{}, fmt.Errorf("%w: entry %q is there twice", ErrNoH1, f.Name)
		}
		// Added one by one: each is read below no further than it says here.
		if unpacked += f.UncompressedSize64; unpacked > maxUnpackedBytes || f.UncompressedSize64 > maxUnpackedBytes {
			return Hash{}, fmt.Errorf("%w: it unpacks to more than %d bytes", ErrNoH1, int64(maxUnpackedBytes))
		}
		files[f.Name] = f
		names = append(names, f.Name)
	}
	h, err := dirhash.Hash1(names, func(name string) (io.ReadCloser, error) { return files[name].Open() })
	if err != nil {
		return Hash{}, fmt.Errorf("%w: %v", ErrNoH1, err)
	}
	return Hash{h}, nil
}

// unhashable says what about an entry makes the hash of the unpacked folder
// differ from that of the zip, or the zip not unpack; "" for nothing.
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

// limitedReaderAt fails, rather than truncates, once more than left bytes were
// read through it; a negative left is no limit.
type limitedReaderAt struct {
	r    io.ReaderAt
	left int64
}

func (l *limitedReaderAt) ReadAt(p []byte, off int64) (int, error) {
	if l.left >= 0 {
		if int64(len(p)) > l.left {
			return 0, errors.New("its directory is too large")
		}
		l.left -= int64(len(p))
	}
	return l.r.ReadAt(p, off)
}
