package provider

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
)

// counted counts the bytes that are read from a zip.
type counted struct {
	io.ReaderAt
	bytes int64
	after int64
	then  func() // called at the end of each read if bytes exceeds after; may be nil
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(p, off)
	c.bytes += int64(n)
	if c.then != nil && c.bytes > c.after {
		c.then()
	}
	return n, err
}

// bomb returns a zip with the given number of entries. All entries share one content, which
// is a MiB of zeros in compressed form. The header of each entry claims says as the size of
// the unpacked content.
func bomb(t *testing.T, entries int, says uint64) *bytes.Reader {
	t.Helper()
	var out bytes.Buffer
	out.WriteString("PK\x03\x04" + strings.Repeat("\x00", 26)) // a local header, which the library reads only for its length
	w, err := flate.NewWriter(&out, flate.BestCompression)
	if err == nil {
		_, err = io.CopyN(w, zeros{}, 1<<20)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	compressed := out.Len() - 30
	sum := crc32.ChecksumIEEE(make([]byte, 1<<20))
	var directory bytes.Buffer
	for i := range entries {
		name := fmt.Sprintf("f%d", i)
		h := make([]byte, 46)
		copy(h, "PK\x01\x02")
		binary.LittleEndian.PutUint16(h[6:], 45)
		binary.LittleEndian.PutUint16(h[10:], zip.Deflate)
		binary.LittleEndian.PutUint32(h[16:], sum)
		binary.LittleEndian.PutUint32(h[20:], uint32(compressed))
		binary.LittleEndian.PutUint16(h[28:], uint16(len(name)))
		extra := []byte(nil)
		binary.LittleEndian.PutUint32(h[24:], uint32(says))
		if says > 0xfffffffe {
			binary.LittleEndian.PutUint32(h[24:], 0xffffffff)
			extra = binary.LittleEndian.AppendUint64([]byte{1, 0, 8, 0}, says)
			binary.LittleEndian.PutUint16(h[30:], uint16(len(extra)))
		}
		directory.Write(h)
		directory.WriteString(name)
		directory.Write(extra)
	}
	at := out.Len()
	size := directory.Len()
	out.Write(directory.Bytes())
	out.Write(zip64End(at, size, uint64(entries)))
	return bytes.NewReader(out.Bytes())
}

// zip64End returns the end of a zip whose directory has the given offset and size, and which
// claims to have the given number of entries.
func zip64End(at, size int, entries uint64) []byte {
	// The ZIP64 form of the end record can state any number of entries.
	end := append([]byte("PK\x06\x06"), make([]byte, 52)...)
	binary.LittleEndian.PutUint64(end[4:], 44)
	binary.LittleEndian.PutUint64(end[24:], entries)
	binary.LittleEndian.PutUint64(end[32:], entries)
	binary.LittleEndian.PutUint64(end[40:], uint64(size))
	binary.LittleEndian.PutUint64(end[48:], uint64(at))
	locator := append([]byte("PK\x06\x07"), make([]byte, 16)...)
	binary.LittleEndian.PutUint64(locator[8:], uint64(at+size))
	binary.LittleEndian.PutUint32(locator[16:], 1)
	last := append([]byte("PK\x05\x06"), make([]byte, 18)...)
	for i := 8; i < 20; i++ {
		last[i] = 0xff
	}
	return slices.Concat(end, locator, last)
}

// padded is a file of zeros that ends with the given bytes.
type padded struct {
	size int64
	end  []byte
}

func (f padded) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	if at := f.size - int64(len(f.end)); off+int64(len(p)) > at {
		copy(p[max(0, at-off):], f.end[max(0, off-at):])
	}
	if off+int64(len(p)) > f.size {
		return int(f.size - off), io.EOF
	}
	return len(p), nil
}

// TestZipsThatSayTooMuch shows that a zip whose end record claims a wrong number of entries
// is refused at little cost.
func TestZipsThatSayTooMuch(t *testing.T) {
	const size = 1 << 29
	at := size - len(zip64End(0, 0, 0))
	zeros := func(directory int, entries uint64) padded {
		return padded{size, zip64End(at-directory, directory, entries)}
	}
	one := bomb(t, 1, 1<<20)
	two := make([]byte, one.Size())
	one.ReadAt(two, 0)
	end := len(two) - len(zip64End(0, 0, 0))
	binary.LittleEndian.PutUint64(two[end+32:], 1+1<<16)
	for name, tc := range map[string]struct {
		file io.ReaderAt
		size int64
	}{
		"65536 and none":              {zeros(0, 1<<16), size},
		"16 million and none":         {zeros(0, 1<<16*250), size},
		"all bytes a directory":       {zeros(at, 1<<16*170), size},
		"a directory that is outside": {zeros(0, 1<<63), size},
		"65537 and one":               {bytes.NewReader(two), int64(len(two))},
	} {
		t.Run(name, func(t *testing.T) {
			for what, check := range map[string]func() error{
				"CheckZip": func() error { return CheckZip(t.Context(), tc.file, tc.size) },
				"H1":       func() error { _, err := H1(t.Context(), tc.file, tc.size); return err },
				"files":    func() error { _, err := HashFiles(t.Context(), tc.file, tc.size); return err },
			} {
				cost.Check(t, 1<<10, true, func() error {
					err := check()
					if !errors.Is(err, ErrNotZip) {
						t.Errorf("%s: %v", what, err)
					}
					return err
				})
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestH1OfBombs shows that zips that unpack to a billion times their size, or to a million
// files, have no h1 hash. H1 and HashFiles refuse such a zip after they have read the directory,
// or as much of the directory as the limit allows.
func TestH1OfBombs(t *testing.T) {
	testkit.LeaveToAll(t)
	// A zip with true sizes shows that H1 can read the zips that bomb returns.
	honest := bomb(t, 1, 1<<20)
	if h, err := H1(t.Context(), honest, honest.Size()); err != nil || h.IsZero() {
		t.Fatalf("an entry that says what it is: %s, %v", h, err)
	}
	for name, tc := range map[string]struct {
		zip  *bytes.Reader
		says string
		read int64
	}{
		"one entry of 2^50 bytes":           {bomb(t, 1, 1<<50), "unpacks to more than", 100 << 10},
		"entries that overflow their sum":   {bomb(t, 3, 1<<63), "unpacks to more than", 100 << 10},
		"two entries of 5 GiB":              {bomb(t, 2, 5<<30), "unpacks to more than", 100 << 10},
		"ten thousand entries of one piece": {bomb(t, 10_000, 1<<20), "entries overlap", 4 << 20},
		"entries of no content":             {bomb(t, 10_000, 0), "entries overlap", 4 << 20},
		"a million entries":                 {bomb(t, 1_000_000, 1), "directory is too large", maxDirectoryBytes},
		"entries with a large directory":    {bomb(t, 350_000, 1), "directory is too large", maxDirectoryBytes},
		"more in an entry than it says":     {bomb(t, 1, 10), "", 200 << 10},
		"less in an entry than it says":     {bomb(t, 1, 1<<21), "", 200 << 10},
	} {
		for what, read := range map[string]func(io.ReaderAt) error{
			"H1":        func(r io.ReaderAt) error { _, err := H1(t.Context(), r, tc.zip.Size()); return err },
			"HashFiles": func(r io.ReaderAt) error { _, err := HashFiles(t.Context(), r, tc.zip.Size()); return err },
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				r := &counted{ReaderAt: tc.zip}
				err := read(r)
				runtime.ReadMemStats(&after)
				if !errors.Is(err, ErrNoH1) || !strings.Contains(err.Error(), tc.says) {
					t.Error(err)
				}
				if r.bytes > tc.read {
					t.Errorf("%d bytes of it were read", r.bytes)
				}
				if used := after.TotalAlloc - before.TotalAlloc; used > 256<<20 {
					t.Errorf("it took %d MiB", used>>20)
				}
			})
		}
	}
}
