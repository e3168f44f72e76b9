package page

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// TestDirectory shows that requests share one request for the registry's list, and wait only briefly for
// it. They get the old list while a new list is pending, and after the registry has failed.
func TestDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := catalog.New(catalog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		a := provider.MustParseAddress("registry.acme.example/acme/widget")
		var asked atomic.Int32
		var takes atomic.Int64
		var fails atomic.Bool
		d := newDirectory(Options{Options: gateway.Options{Catalog: c}, Configured: []subject.Address{a}, List: func(context.Context) Names {
			asked.Add(1)
			time.Sleep(time.Duration(takes.Load()))
			if fails.Load() {
				return Names{}
			}
			return Names{All: []subject.Address{a, module.MustParseAddress("registry.acme.example/acme/other/aws")}, Complete: true}
		}})
		see := func(want listed, asks int32) {
			t.Helper()
			got := d.known(t.Context())
			if len(got.entries) != len(want.entries) || got.complete != want.complete || got.pending != want.pending || !slices.Contains(got.entries, entry{a}) {
				t.Errorf("known: %+v, want %+v", got, want)
			}
			if n := asked.Load(); n != asks {
				t.Errorf("asked %d times, want %d", n, asks)
			}
		}
		one, two := make([]entry, 1), make([]entry, 2)

		takes.Store(int64(5 * time.Second))
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if k := d.known(t.Context()); !k.pending || len(k.entries) != 1 {
					t.Errorf("before the list: %+v", k)
				}
			})
		}
		all.Wait()
		see(listed{entries: one, pending: true}, 1)
		time.Sleep(5 * time.Second)
		see(listed{entries: two, complete: true}, 1)

		// A list is current for 20 times as long as the registry took to return it. Here, this is 100
		// seconds. Afterwards, requests get the old list until a new list arrives.
		time.Sleep(31 * time.Second)
		see(listed{entries: two, complete: true}, 1)
		time.Sleep(70 * time.Second)
		fails.Store(true)
		before := time.Now()
		see(listed{entries: two, complete: true}, 2)
		if waited := time.Since(before); waited != agedPatience {
			t.Errorf("waited %s", waited)
		}
		time.Sleep(6 * time.Second)
		see(listed{entries: two}, 2)
		synctest.Wait()
	})
}

func TestHumanBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 bytes", 999: "999 bytes", 1000: "1.0 kB", 999_949: "999.9 kB", 999_950: "1.0 MB", 6_543_210: "6.5 MB", 123_456_789_012: "123.5 GB", 1<<63 - 1: "9.2 EB",
	} {
		if got := humanBytes(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
