package page

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/provider"
)

const (
	// listTimeout is how long a registry may take to list its repositories.
	listTimeout = time.Minute
	// listPatience is how long a request waits for the first list, and agedPatience how long it waits if there
	// is an older one. Then the page shows what is known.
	listPatience = 2 * time.Second
	agedPatience = 250 * time.Millisecond
	// listRest is the pause between two lists, as a multiple of the time that the last one took. It spares
	// registries with many repositories, and those that are asked about each repository.
	listRest = 20
	// maxListed bounds how many providers of a list are kept.
	maxListed = 20_000
)

// directory knows the names of providers: those that the configuration names, those that clients requested, and
// those in the registry's catalog, if it has one.
type directory struct {
	configured []provider.Address
	catalog    *catalog.Catalog
	list       func(context.Context) ([]provider.Address, bool)
	ttl        time.Duration

	mu     sync.Mutex
	last   listed
	asking chan struct{} // closed when the registry has answered; nil: no request is running
}

// listed is the registry's last list.
type listed struct {
	providers []provider.Address
	complete  bool
	at        time.Time // when it last answered, even with an error; zero: never
	took      time.Duration
}

// known is the list of known providers.
type known struct {
	providers []provider.Address // unsorted, without duplicates
	complete  bool               // the registry has no others
	pending   bool               // the registry's list has not arrived yet
}

func newDirectory(o Options) *directory {
	return &directory{configured: o.Configured, catalog: o.Catalog, list: o.List, ttl: cmp.Or(o.ListTTL, 30*time.Second)}
}

// known returns the known names. It asks the registry for its list, one request at a time. The request
// continues if no client waits for it any more; callers wait only briefly.
func (d *directory) known(ctx context.Context) known {
	last, pending := d.listed(ctx)
	out := known{complete: last.complete, pending: pending}
	seen := map[provider.Address]bool{}
	for _, a := range slices.Concat(last.providers, d.configured, d.catalog.Known()) {
		if !seen[a] {
			seen[a] = true
			out.providers = append(out.providers, a)
		}
	}
	return out
}

func (d *directory) listed(ctx context.Context) (last listed, pending bool) {
	if d.list == nil {
		return listed{}, false
	}
	d.mu.Lock()
	if !d.last.at.IsZero() && time.Since(d.last.at) < max(d.ttl, listRest*d.last.took) {
		defer d.mu.Unlock()
		return d.last, false
	}
	if d.asking == nil {
		d.asking = make(chan struct{})
		go d.ask(context.Background(), d.asking)
	}
	asking, wait := d.asking, listPatience
	if !d.last.at.IsZero() {
		wait = agedPatience
	}
	d.mu.Unlock()
	patience := time.NewTimer(wait)
	defer patience.Stop()
	select {
	case <-asking:
	case <-patience.C:
	case <-ctx.Done():
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last, d.last.at.IsZero()
}

// ask asks the registry for its list. A failure keeps the previous list.
func (d *directory) ask(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	began := time.Now()
	found, complete := d.list(ctx)
	took := time.Since(began)
	if len(found) > maxListed {
		found, complete = found[:maxListed], false
	}
	found = slices.SortedFunc(slices.Values(found), byName) // sorted lists are fast to sort again together with others
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(found) > 0 || complete {
		d.last.providers = found
	}
	d.last.complete, d.last.at, d.last.took = complete, time.Now(), took
	d.asking = nil
	close(done)
}
