package reconcile

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

func describe(data string) ocispec.Descriptor {
	return ocispec.Descriptor{Digest: digest.FromString(data), Size: int64(len(data))}
}

// filesIn counts the files in a folder.
func filesIn(t *testing.T, folder string) int {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestManifestCache shows that a cache creates its folder, and that another process can read the manifests in it.
func TestManifestCache(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "not", "there", "yet")
	c := openManifestCache(folder)
	desc := describe("{}")
	if _, ok := c.get(desc); ok {
		t.Fatal("an empty cache has a manifest")
	}
	c.put(desc, []byte("{}"))
	if got, ok := openManifestCache(folder).get(desc); !ok || string(got) != "{}" {
		t.Fatalf("got %q, %t", got, ok)
	}
	if n := filesIn(t, folder); n != 1 {
		t.Errorf("%d files", n)
	}
}

// TestAlteredManifestIsACacheMiss shows that a file with the wrong content is a cache miss, and so is an invalid
// digest.
func TestAlteredManifestIsACacheMiss(t *testing.T) {
	c := openManifestCache(t.TempDir())
	desc := describe("{}")
	c.put(desc, []byte("{}"))
	name, _ := c.filename(desc)
	for _, data := range []string{"[]", "{", "{}}", ""} {
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, ok := c.get(desc); ok {
			t.Errorf("the cache returns %q for the digest %s", got, desc.Digest)
		}
	}
	for _, bad := range []digest.Digest{"", "sha256:../../etc/passwd", "md5:00"} {
		if _, ok := c.get(ocispec.Descriptor{Digest: bad, Size: 2}); ok {
			t.Errorf("the cache returns something for the digest %q", bad)
		}
	}
}

// TestLargeManifestsAreNotCached shows that manifests larger than maxCachedBytes are not cached. A maximum number of
// files only limits the size of the folder if each file has a maximum size.
func TestLargeManifestsAreNotCached(t *testing.T) {
	folder := t.TempDir()
	c := openManifestCache(folder)
	for n, cached := range map[int]bool{maxCachedBytes: true, maxCachedBytes + 1: false} {
		data := strings.Repeat("x", n)
		c.put(describe(data), []byte(data))
		if _, ok := c.get(describe(data)); ok != cached {
			t.Errorf("a manifest of %d bytes is cached: %t", n, ok)
		}
	}
	if n := filesIn(t, folder); n != 1 {
		t.Errorf("%d files", n)
	}
}

// movedTag is a repository whose tag moves, and whose old manifest is deleted, after each HEAD.
type movedTag struct {
	repo.Store
	before, after string
}

func (s movedTag) Resolve(context.Context, string) (ocispec.Descriptor, error) {
	return manifest(s.before), nil
}

func (s movedTag) FetchReference(context.Context, string) (ocispec.Descriptor, io.ReadCloser, error) {
	return manifest(s.after), io.NopCloser(strings.NewReader(s.after)), nil
}

func (s movedTag) Fetch(context.Context, ocispec.Descriptor) (io.ReadCloser, error) {
	return nil, errdef.ErrNotFound
}

func manifest(data string) ocispec.Descriptor {
	desc := describe(data)
	desc.MediaType = ocispec.MediaTypeImageManifest
	return desc
}

// TestTagMovesBetweenHeadAndGet shows that the store reads a tag once more if the tag moves between the HEAD and the
// GET.
func TestTagMovesBetweenHeadAndGet(t *testing.T) {
	c := cachedStore{Store: movedTag{before: "{}", after: "[]"}, cache: openManifestCache(t.TempDir())}
	desc, body, err := c.FetchReference(t.Context(), "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(body); err != nil || string(data) != "[]" || desc.Digest != digest.FromString("[]") {
		t.Errorf("%q, %s, %v", data, desc.Digest, err)
	}
}

// TestManifestCacheEvicts shows that the cache evicts the least recently used manifests.
func TestManifestCacheEvicts(t *testing.T) {
	c := openManifestCache(t.TempDir())
	for i := range 10 {
		data := fmt.Sprintf(`{"n":%d}`, i)
		c.put(describe(data), []byte(data))
		name, _ := c.filename(describe(data))
		at := time.Now().Add(-time.Duration(10-i) * time.Hour)
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	privatefolder.Trim(c.folder, 10)
	privatefolder.Trim(c.folder, 8)
	for i := range 10 {
		data := fmt.Sprintf(`{"n":%d}`, i)
		if _, ok := c.get(describe(data)); ok != (i >= 4) {
			t.Errorf("manifest %d of 10, oldest first: cached = %t", i, ok)
		}
	}
}
