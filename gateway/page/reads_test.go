package page

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/provider"
)

// TestReadsForAnOrder shows how many entries a view of the newest first reads: at most orderReads, each once in orderTTL, and also
// those whose reads fail. A registry that does not answer delays a view only briefly, and two views read no more than one.
func TestReadsForAnOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		var hangs, fails atomic.Bool
		c, err := catalog.New(catalog.Options{Repository: func(ctx context.Context, _ subject.Address) (catalog.Store, error) {
			asked.Add(1)
			if hangs.Load() {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			if fails.Load() {
				return nil, fmt.Errorf("the registry is down")
			}
			return nil, catalog.ErrNotServed
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		o := Options{Options: gateway.Options{Catalog: c}}
		for i := range 150 {
			o.Configured = append(o.Configured, provider.MustParseAddress(fmt.Sprintf("registry.acme.example/acme/p%d", i)))
		}
		p := New(o).(*page)
		view := func(what string, reads int32, reading bool, takes time.Duration) {
			t.Helper()
			asked.Store(0)
			began := time.Now()
			order, more := p.newestFirst(t.Context(), p.directory.known(t.Context()), nil)
			took := time.Since(began)
			if n := asked.Load(); n != reads || more != reading || took != takes || len(order.providers.undated) != 150 {
				t.Errorf("%s: %d reads in %s, reading %v, %d without a date; want %d in %s, %v", what, n, took, more, len(order.providers.undated), reads, takes, reading)
			}
		}
		hangs.Store(true)
		began := time.Now()
		view("a registry that hangs", 3*summaryReads, true, overviewPatience)
		view("meanwhile", 0, true, 0)
		time.Sleep(metadataTimeout - time.Since(began) + overviewPatience)
		synctest.Wait()
		if !p.orders.reading.TryLock() {
			t.Fatal("the reads go on")
		}
		p.orders.reading.Unlock()
		time.Sleep(time.Minute)

		hangs.Store(false)
		fails.Store(true)
		view("reads that fail", orderReads, true, 0)
		time.Sleep(time.Minute)
		fails.Store(false)
		view("the first", orderReads, true, 0)
		view("the rest", 50, false, 0)
		view("everything is read", 0, false, 0)
		time.Sleep(orderTTL - time.Second)
		view("a while later", 0, false, 0)
		time.Sleep(time.Minute)
		view("outdated", orderReads, false, 0)
		view("the other outdated", 50, false, 0)
		view("all are new", 0, false, 0)
	})
}
