package manifestcache

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

func describe(data string) ocispec.Descriptor {
	return ocispec.Descriptor{Digest: digest.FromString(data), Size: int64(len(data))}
}

func get(t *testing.T, d *Dir, desc ocispec.Descriptor) (string, bool) {
	t.Helper()
	body, ok := d.Get(desc)
	if !ok {
		return "", false
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data), true
}

func TestKeeps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "not", "there", "yet")
	d := Open(path)
	desc := describe("{}")
	if _, ok := d.Get(desc); ok {
		t.Fatal("an empty cache has a manifest")
	}
	d.Put(desc, []byte("{}"))
	if got, ok := get(t, Open(path), desc); !ok || got != "{}" {
		t.Fatalf("got %q, %t", got, ok)
	}
	if entries, err := os.ReadDir(path); err != nil || len(entries) != 1 {
		t.Errorf("files: %v, %v", entries, err)
	}
}

func TestAlteredIsNotThere(t *testing.T) {
	d := Open(t.TempDir())
	desc := describe("{}")
	d.Put(desc, []byte("{}"))
	name, _ := d.name(desc)
	for _, data := range []string{"[]", "{", "{}}", ""} {
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, ok := get(t, d, desc); ok {
			t.Errorf("%q is served as %s", got, desc.Digest)
		}
	}
	for _, bad := range []digest.Digest{"", "sha256:../../etc/passwd", "md5:00"} {
		if _, ok := d.Get(ocispec.Descriptor{Digest: bad, Size: 2}); ok {
			t.Errorf("something has the digest %q", bad)
		}
	}
}

// TestLargeManifestsAreNotKept: the number of files bounds the folder as none of them
// is large.
func TestLargeManifestsAreNotKept(t *testing.T) {
	path := t.TempDir()
	d := Open(path)
	for n, kept := range map[int]bool{maxBytes: true, maxBytes + 1: false} {
		data := strings.Repeat("x", n)
		d.Put(describe(data), []byte(data))
		if _, ok := get(t, d, describe(data)); ok != kept {
			t.Errorf("a manifest of %d bytes is kept: %t", n, ok)
		}
	}
	if entries, err := os.ReadDir(path); err != nil || len(entries) != 1 {
		t.Errorf("files: %v, %v", entries, err)
	}
}

func TestTrim(t *testing.T) {
	path := t.TempDir()
	d := Open(path)
	for i := range 10 {
		data := fmt.Sprintf(`{"n":%d}`, i)
		d.Put(describe(data), []byte(data))
		name, _ := d.name(describe(data))
		at := time.Now().Add(-time.Duration(10-i) * time.Hour)
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	d.trim(10)
	d.trim(8)
	for i := range 10 {
		data := fmt.Sprintf(`{"n":%d}`, i)
		if _, ok := d.Get(describe(data)); ok != (i >= 4) {
			t.Errorf("manifest %d of 10, the oldest first: there = %t", i, ok)
		}
	}
}
