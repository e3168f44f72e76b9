package catalog_test

import (
	"context"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
)

func TestCounters(t *testing.T) {
	n := &telemetry.CatalogCounters{}
	inTime(t, func(o *catalog.Options) { o.Counters = n }, func(b *bench) {
		want := func(when string, hits, misses, stale, failures, refreshes uint64) {
			t.Helper()
			if n.Hits.Load() != hits || n.Misses.Load() != misses || n.Stale.Load() != stale || n.Failures.Load() != failures || n.Refreshes.Load() != refreshes {
				t.Errorf("%s: %d hits, %d misses, %d stale, %d failures, %d refreshes; want %d, %d, %d, %d, %d", when, n.Hits.Load(), n.Misses.Load(),
					n.Stale.Load(), n.Failures.Load(), n.Refreshes.Load(), hits, misses, stale, failures, refreshes)
			}
		}
		versions := func() { b.Versions(b.t.Context(), widget) }
		if b.CanServeStale() || b.Size() != (catalog.Size{}) {
			t.Errorf("before the first request: %v, %+v", b.CanServeStale(), b.Size())
		}
		versions()
		want("first", 0, 1, 0, 0, 0)
		if !b.CanServeStale() || b.Size().Entries != 1 || b.Size().Bytes < 100 {
			t.Errorf("after an answer: %v, %+v", b.CanServeStale(), b.Size())
		}
		versions()
		want("at once", 1, 1, 0, 0, 0)
		pass(25 * time.Second)
		versions()
		pass(time.Second)
		want("in its last quarter", 2, 1, 0, 0, 1)
		b.down(unreachable)
		pass(time.Minute)
		versions()
		want("while it is down", 2, 1, 1, 0, 1)
		pass(25 * time.Hour)
		if b.CanServeStale() {
			t.Error("yesterday's answer can be served stale")
		}
		versions()
		want("for long", 2, 1, 1, 1, 1)
	})
}

// TestCanServeStaleAfterARestart shows that CanServeStale returns true if the only good answers are
// on disk.
func TestCanServeStaleAfterARestart(t *testing.T) {
	onDisk(t, t.TempDir(), nil, func(k *kept) {
		k.restart()
		if k.CanServeStale() {
			t.Error("nothing is on disk")
		}
		k.want("[1.0.0]", true, "[1 get 1 list]")
		k.restart()
		pass(23 * time.Hour)
		if !k.CanServeStale() {
			t.Error("an answer on disk cannot be served stale")
		}
		pass(2 * time.Hour)
		if k.CanServeStale() {
			t.Error("yesterday's answer can be served stale")
		}
	})
}

// TestSaved shows which providers and modules are on disk after a restart: those that could be served, and no more than the limit.
func TestSaved(t *testing.T) {
	onDisk(t, t.TempDir(), nil, func(k *kept) {
		if got := k.Saved(k.t.Context(), 10); len(got) != 0 {
			t.Errorf("nothing is on disk: %v", got)
		}
		k.want("[1.0.0]", true, "[1 get 1 list]")
		k.restart()
		if got := k.Saved(k.t.Context(), 10); len(got) != 1 || got[0].String() != widget.String() {
			t.Errorf("%v", got)
		}
		ended, end := context.WithCancel(k.t.Context())
		end()
		if got := k.Saved(ended, 10); len(got) != 0 {
			t.Errorf("after the end: %v", got)
		}
		pass(25 * time.Hour)
		if got := k.Saved(k.t.Context(), 10); len(got) != 0 {
			t.Errorf("yesterday's: %v", got)
		}
	})
}
