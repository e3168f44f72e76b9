package archives_test

import (
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
)

func TestCounters(t *testing.T) {
	const size = 100_000
	n := &telemetry.ArchiveCounters{}
	s := newScene(t)
	s.options.Counters, s.max = n, 2*size
	s.restart()
	for i, path := range []string{"/a", "/b", "/c"} {
		s.add(path, random(size, byte(i)))
	}
	s.add("/large", random(3*size, 9))
	want := func(when string, counters map[string]uint64) {
		t.Helper()
		s.idle()
		for name, c := range map[string]*atomic.Uint64{
			"hits": &n.Hits, "joins": &n.Joins, "misses": &n.Misses, "bypasses": &n.Bypasses, "evicted": &n.Evicted, "damaged": &n.Damaged, "broken off": &n.BrokenOff,
			"cached bytes": &n.Cached.Bytes, "fetched bytes": &n.Fetched.Bytes, "streamed bytes": &n.Streamed.Bytes,
		} {
			s.until("all is counted", func() bool { return c.Load() >= counters[name] }) // the counters change after the client has the archive
			if got := c.Load(); got != counters[name] {
				t.Errorf("%s: %d %s, want %d", when, got, name, counters[name])
			}
		}
	}
	s.want("/a", 1)
	want("fetched", map[string]uint64{"misses": 1, "fetched bytes": size})
	s.want("/a", 0)
	if a := s.get("/a", "Range", "bytes=0-99"); a.status != http.StatusPartialContent {
		t.Errorf("a range: %d", a.status)
	}
	s.do(http.MethodHead, "/a")
	want("cached", map[string]uint64{"misses": 1, "fetched bytes": size, "hits": 2, "cached bytes": size + 100})
	s.want("/large", 1)
	want("too large", map[string]uint64{"misses": 1, "fetched bytes": size, "hits": 2, "cached bytes": size + 100, "bypasses": 1, "streamed bytes": 3 * size})
	s.want("/b", 1)
	s.idle()
	s.want("/c", 1)
	want("evicted", map[string]uint64{"misses": 3, "fetched bytes": 3 * size, "hits": 2, "cached bytes": size + 100, "bypasses": 1, "streamed bytes": 3 * size, "evicted": 1})
	if got := s.cache.Size(); got != (archives.Size{Bytes: 2 * size, Limit: 2 * size}) || n.EvictedBytes.Load() != size {
		t.Errorf("size %+v, %d bytes evicted", got, n.EvictedBytes.Load())
	}
	if err := os.WriteFile(s.file("/c"), random(size, 7), 0o600); err != nil {
		t.Fatal(err)
	}
	s.age("/c")
	s.want("/c", 1)
	want("damaged", map[string]uint64{"misses": 4, "fetched bytes": 4 * size, "hits": 2, "cached bytes": size + 100, "bypasses": 1, "streamed bytes": 3 * size, "evicted": 1, "damaged": 1})
}

// TestJoinsAreCounted shows that the request that starts a fetch counts as a miss, and
// that each request that joins the fetch counts as a join.
func TestJoinsAreCounted(t *testing.T) {
	const clients = 10
	n := &telemetry.ArchiveCounters{}
	s := newScene(t)
	s.options.Counters = n
	s.restart()
	s.add("/a", random(1_000_000, 1))
	g := s.holdAt(500_000)
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			if a := s.get("/a"); a.status != http.StatusOK || a.err != nil {
				t.Errorf("%d, %v", a.status, a.err)
			}
		})
	}
	s.until("all wait", func() bool { return n.Misses.Load()+n.Joins.Load() == clients })
	close(g.open)
	all.Wait()
	s.until("all is counted", func() bool { return n.Fetched.Bytes.Load() >= clients*1_000_000 }) // the counters change after the client has the archive
	if n.Misses.Load() != 1 || n.Joins.Load() != clients-1 || n.Hits.Load() != 0 || n.Fetched.Bytes.Load() != clients*1_000_000 {
		t.Errorf("%d misses, %d joins, %d hits, %d bytes", n.Misses.Load(), n.Joins.Load(), n.Hits.Load(), n.Fetched.Bytes.Load())
	}
}
