package provider

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/dirhash"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
)

type entry struct {
	name, content string
	mode          fs.FileMode
}

func makeZip(t *testing.T, entries ...entry) *bytes.Reader {
	t.Helper()
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		if e.mode != 0 {
			h.SetMode(e.mode)
		}
		w, err := z.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		w.Write([]byte(e.content))
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(buf.Bytes())
}

// TestH1IsTheUnpackedFolders shows that H1 returns the hash that clients compute for
// the unpacked folder.
func TestH1IsTheUnpackedFolders(t *testing.T) {
	files := []entry{{"terraform-provider-null_v3.2.4", "binary", 0o755}, {"LICENSE.txt", "text", 0}, {"docs/index.md", "# null", 0}}
	dir := t.TempDir()
	for _, f := range files {
		name := filepath.Join(dir, filepath.FromSlash(f.name))
		os.MkdirAll(filepath.Dir(name), 0o755)
		if err := os.WriteFile(name, []byte(f.content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := dirhash.HashDir(dir, "", dirhash.Hash1)
	if err != nil {
		t.Fatal(err)
	}
	z := makeZip(t, files...)
	got, err := H1(t.Context(), z, z.Size())
	if err != nil || got.String() != want {
		t.Errorf("H1 = %s, %v; the unpacked folder has %s", got, err, want)
	}
	if _, err := ParseHash(got.String()); err != nil {
		t.Error(err)
	}
}

func TestNoH1WhereClientsDisagree(t *testing.T) {
	for name, entries := range map[string][]entry{
		"directory entry":   {{"docs/", "", fs.ModeDir | 0o755}, {"docs/a", "x", 0}},
		"duplicate name":    {{"a", "x", 0}, {"a", "y", 0}},
		"link":              {{"a", "/etc/passwd", fs.ModeSymlink | 0o777}},
		"device":            {{"a", "", fs.ModeDevice | 0o600}},
		"absolute name":     {{"/a", "x", 0}},
		"name outside":      {{"../a", "x", 0}},
		"name with ..":      {{"a/../b", "x", 0}},
		"backslash":         {{`a\b`, "x", 0}},
		"newline in a name": {{"a\nb", "x", 0}},
	} {
		t.Run(name, func(t *testing.T) {
			z := makeZip(t, entries...)
			if h, err := H1(t.Context(), z, z.Size()); !errors.Is(err, ErrNoH1) {
				t.Errorf("H1 = %s, %v", h, err)
			}
		})
	}
	notZip := strings.NewReader("this is no zip")
	if h, err := H1(t.Context(), notZip, notZip.Size()); !errors.Is(err, ErrNoH1) {
		t.Errorf("H1 of text = %s, %v", h, err)
	}
}

// TestHashContent shows which h1: hashes are right for each shape of zip. A client unpacks the entries in
// order, and a link as a file with the link's target. Its lock file gets the hash of that folder, and
// "terraform providers mirror" writes the hash of all entries.
func TestHashContent(t *testing.T) {
	folder := func(files map[string]string) (out string) {
		dir := t.TempDir()
		for name, content := range files {
			name = filepath.Join(dir, filepath.FromSlash(name))
			os.MkdirAll(filepath.Dir(name), 0o755)
			if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		out, err := dirhash.HashDir(dir, "", dirhash.Hash1)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for name, tc := range map[string]struct {
		entries []entry
		files   map[string]string // nil if clients could refuse the zip
		agreed  bool
	}{
		"files":           {[]entry{{"docs/a", "x", 0}}, map[string]string{"docs/a": "x"}, true},
		"folders":         {[]entry{{"docs/", "", fs.ModeDir | 0o755}, {"docs/a", "x", 0}, {"e/", "", fs.ModeDir | 0o755}}, map[string]string{"docs/a": "x"}, false},
		"two of one name": {[]entry{{"a", "x", 0}, {"a", "y", 0}}, map[string]string{"a": "y"}, false},
		"a folder twice":  {[]entry{{"d/", "", fs.ModeDir | 0o755}, {"d/", "", fs.ModeDir | 0o755}, {"d/a", "x", 0}}, map[string]string{"d/a": "x"}, false},
		"link":            {[]entry{{"a", "target", fs.ModeSymlink | 0o777}}, map[string]string{"a": "target"}, false},
		"backslash":       {[]entry{{`a\b`, "x", 0}}, map[string]string{`a\b`: "x"}, false},
		"in the folder .": {[]entry{{"./", "", fs.ModeDir | 0o755}, {"./d/", "", fs.ModeDir | 0o755}, {"./d/a", "x", 0}, {"./b", "y", 0}}, map[string]string{"d/a": "x", "b": "y"}, false},
		"slash before":    {[]entry{{"/a", "x", 0}, {"b", "y", 0}}, map[string]string{"a": "x", "b": "y"}, false},
		"two slashes":     {[]entry{{"d//a", "x", 0}}, map[string]string{"d/a": "x"}, false},
		"a, then ./a":     {[]entry{{"a", "x", 0}, {"./a", "y", 0}}, map[string]string{"a": "y"}, false},
		"./a, then a":     {[]entry{{"./a", "x", 0}, {"a", "y", 0}}, map[string]string{"a": "y"}, false},
		"./a twice":       {[]entry{{"./a", "x", 0}, {"./a", "y", 0}}, map[string]string{"a": "y"}, false},
		"device":          {[]entry{{"a", "", fs.ModeDevice | 0o600}}, nil, false},
		"name outside":    {[]entry{{"../a", "x", 0}}, nil, false},
		"name with ..":    {[]entry{{"d/../a", "x", 0}}, nil, false},
		"folder outside":  {[]entry{{"../d/", "", fs.ModeDir | 0o755}}, nil, false},
		"folder above":    {[]entry{{"d/../", "", fs.ModeDir | 0o755}}, nil, false},
		"name of nothing": {[]entry{{".", "x", 0}}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			z := makeZip(t, tc.entries...)
			got, err := HashContent(t.Context(), z, z.Size())
			if tc.files == nil {
				if !errors.Is(err, ErrNoH1) || len(got.All()) != 0 {
					t.Errorf("%v, %v", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "a.zip")
			data, _ := io.ReadAll(io.NewSectionReader(z, 0, z.Size()))
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
			zip, err := dirhash.HashZip(file, dirhash.Hash1)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{folder(tc.files), zip} {
				if h, err := ParseHash(want); err != nil || !got.Has(h) {
					t.Errorf("%v, want %s, %v", got, want, err)
				}
			}
			if other, _ := ParseHash(folder(map[string]string{"a": "z"})); got.Has(other) || got.Has(Hash{}) {
				t.Errorf("%v has a strange hash", got)
			}
			if agreed := got.Agreed(); agreed.IsZero() == tc.agreed || tc.agreed && agreed.String() != zip {
				t.Errorf("agreed on %q", agreed)
			}
		})
	}
}

// TestNotZip shows that H1 returns ErrNotZip for bytes that no client can unpack, but
// not for zips without an h1: hash. It also shows that CheckZip examines only the
// directory.
func TestNotZip(t *testing.T) {
	text := entry{"a", strings.Repeat("text", 1000), 0}
	whole := makeZip(t, text)
	bytesOf := func(r *bytes.Reader) []byte {
		data := make([]byte, r.Size())
		r.ReadAt(data, 0)
		return data
	}
	damaged := bytesOf(whole)
	damaged[40] ^= 0xff // in the entry's content
	for name, tc := range map[string]struct {
		data      []byte
		directory bool // the bytes end with the directory of a zip
		zip       bool
	}{
		"empty":           {nil, false, false},
		"text":            {[]byte("this is no zip"), false, false},
		"cut off":         {bytesOf(whole)[:whole.Size()-1], false, false},
		"damaged entry":   {damaged, true, false},
		"more than it is": {bytesOf(bomb(t, 1, 10)), true, false},
		"less than it is": {bytesOf(bomb(t, 1, 1<<21)), true, false},
		"whole":           {bytesOf(whole), true, true},
		"folder":          {bytesOf(makeZip(t, entry{"docs/", "", fs.ModeDir | 0o755}, text)), true, true},
		"duplicate":       {bytesOf(makeZip(t, text, text)), true, true},
		"link":            {bytesOf(makeZip(t, entry{"a", "/etc/passwd", fs.ModeSymlink | 0o777})), true, true},
		"bomb":            {bytesOf(bomb(t, 10_000, 1<<20)), true, true},
		"a million files": {bytesOf(bomb(t, 1_000_000, 1)), true, true},
	} {
		size := int64(len(tc.data))
		if err := CheckZip(t.Context(), bytes.NewReader(tc.data), size); errors.Is(err, ErrNotZip) == tc.directory || err == nil != tc.directory {
			t.Errorf("%s: CheckZip: %v", name, err)
		}
		_, err := H1(t.Context(), bytes.NewReader(tc.data), size)
		if errors.Is(err, ErrNotZip) == tc.zip || !tc.zip && !errors.Is(err, ErrNoH1) {
			t.Errorf("%s: H1: %v", name, err)
		}
	}
}

// spoilt is a zip whose directory can be read. A read of the first entry returns err.
type spoilt struct {
	*bytes.Reader
	err error
}

func (s spoilt) ReadAt(p []byte, off int64) (int, error) {
	if off < 30 {
		return 0, s.err
	}
	return s.Reader.ReadAt(p, off)
}

// TestH1ReturnsReadErrors shows that H1 and CheckZip return a read error unchanged,
// because a read error says nothing about the zip.
func TestH1ReturnsReadErrors(t *testing.T) {
	z, broken := makeZip(t, entry{"a", strings.Repeat("text", 5000), 0}), errors.New("input/output error")
	if _, err := H1(t.Context(), spoilt{z, broken}, z.Size()); err != broken {
		t.Errorf("%v", err)
	}
	if err := CheckZip(t.Context(), spoilt{bytes.NewReader(nil), broken}, 20); err != broken {
		t.Errorf("the directory: %v", err)
	}
}

// TestH1EndsWithItsContext shows that H1 stops reading when its context is cancelled.
func TestH1EndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	content := make([]byte, 16<<20)
	rand.NewChaCha8([32]byte{}).Read(content)
	z := makeZip(t, entry{"a", string(content), 0})
	r := &counted{ReaderAt: z, after: 1 << 20, then: cancel}
	if _, err := H1(ctx, r, z.Size()); !errors.Is(err, context.Canceled) || errors.Is(err, ErrNoH1) {
		t.Errorf("%v", err)
	}
	if r.bytes > 2<<20 {
		t.Errorf("%d bytes were read", r.bytes)
	}
}

func TestH1RefusesHugeDirectory(t *testing.T) {
	testkit.LeaveToAll(t)
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	long := strings.Repeat("n", 60000)
	for i := range 300 {
		z.Create(long + string(rune('a'+i%26)) + strings.Repeat("x", i))
	}
	z.Close()
	r := bytes.NewReader(buf.Bytes())
	if h, err := H1(t.Context(), r, r.Size()); !errors.Is(err, ErrNoH1) {
		t.Errorf("H1 = %s, %v", h, err)
	}
}

func TestParseHash(t *testing.T) {
	zh := ZipHash([32]byte{1, 2, 3})
	if h, err := ParseHash(zh.String()); err != nil || h != zh || !h.IsZip() {
		t.Errorf("%s parses to %s, %v", zh, h, err)
	}
	for _, s := range []string{"", "zh:", "zh:00", "zh:" + strings.Repeat("A", 64), "h1:abc", "h1:" + strings.Repeat("!", 44), "h2:abc", strings.Repeat("0", 64)} {
		if h, err := ParseHash(s); err == nil {
			t.Errorf("ParseHash(%q) = %s", s, h)
		}
	}
}
