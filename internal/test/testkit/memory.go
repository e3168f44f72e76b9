package testkit

import (
	"os"

	"github.com/ocibridge/ocibridge/internal/base/files"
)

const (
	memory     = "/dev/shm" // the folder of Linux whose files are in memory
	leastSpace = 2 << 30    // in bytes; a container often has 64 MiB only
)

// MemoryDir is like tb.TempDir, but the folder is in memory if there is space, unless TMPDIR is set. It is meant for
// registries, which sync each of their files to disk: on a real disk, this takes most of the time of a test.
func MemoryDir(tb TB) string {
	tb.Helper()
	if free, err := files.Free(memory); os.Getenv("TMPDIR") != "" || err != nil || free < leastSpace {
		return tb.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "ocibridge-test-")
	if err != nil {
		return tb.TempDir()
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Fatalf("%v", err)
		}
	})
	return dir
}
