package provider

import (
	"archive/zip"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/dirhash"
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

// TestH1IsTheUnpackedFolders compares with the hash that clients compute.
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
	got, err := H1(z, z.Size())
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
			if h, err := H1(z, z.Size()); !errors.Is(err, ErrNoH1) {
				t.Errorf("H1 = %s, %v", h, err)
			}
		})
	}
	notZip := strings.NewReader("this is no zip")
	if h, err := H1(notZip, notZip.Size()); !errors.Is(err, ErrNoH1) {
		t.Errorf("H1 of text = %s, %v", h, err)
	}
}

func TestH1RefusesHugeDirectory(t *testing.T) {
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	long := strings.Repeat("n", 60000)
	for i := range 300 {
		z.Create(long + string(rune('a'+i%26)) + strings.Repeat("x", i))
	}
	z.Close()
	r := bytes.NewReader(buf.Bytes())
	if h, err := H1(r, r.Size()); !errors.Is(err, ErrNoH1) {
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
