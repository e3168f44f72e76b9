package archives_test

import (
	"path/filepath"
	"testing"

	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/internal/base/files"
)

// TestDefaultSize shows that the default size limit is a tenth of the disk, and at most 10 GiB.
// The folder may be missing. OpenCache uses the default size limit if it gets none.
func TestDefaultSize(t *testing.T) {
	s := newScene(t)
	missing := filepath.Join(s.dir, "missing", "folder")
	got, err := archives.DefaultSize(missing)
	if err != nil {
		t.Fatal(err)
	}
	free, err := files.Free(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	// Other programs write to the same disk.
	want := min(10<<30, free/10)
	if got < want/2 || got > want*2 || got > 10<<30 {
		t.Errorf("%d bytes, want about %d", got, want)
	}
	s.max = 0
	s.restart()
	if limit := s.cache.Size().Limit; limit < want/2 || limit > want*2 || limit > 10<<30 {
		t.Errorf("the limit is %d bytes, want about %d", limit, want)
	}
	s.add("/a", random(1000, 1))
	s.want("/a", 1)
	s.want("/a", 0)
}

// TestDefaultSizeStays shows that the default size limit does not depend on how full the cache
// is, and is at most 10 GiB.
func TestDefaultSizeStays(t *testing.T) {
	const disk = 50 << 30
	for held := int64(0); held <= 5<<30; held += 1 << 30 {
		if got := archives.SizeFor(disk-held, held); got != 5<<30 {
			t.Errorf("with %d bytes in the cache, it is %d bytes", held, got)
		}
	}
	if got := archives.SizeFor(1<<40, 0); got != 10<<30 {
		t.Errorf("on a large disk, it is %d bytes", got)
	}
}
