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
	// listPatience is how long somebody waits for the first list, and agedPatience
	// where there is an older one; then they see what there is.
	listPatience = 2 * time.Second
	agedPatience = 250 * time.Millisecond
	// listRest is how many times as long as its last list took a registry is left alone:
	// one that has much, or where each repository is to be asked whose it is.
	listRest = 20
	// maxListed bounds how many providers of a list are remembered.
	maxListed = 20_000
)

// directory knows the names of providers: those that the configuration names, those
// that clients asked for, and those that the registry lists, if it does.
type directory struct {
	configured []provider.Address
	catalog    *catalog.Catalog
	list       func(context.Context) ([]provider.Address, bool)
	ttl        time.Duration

	mu     sync.Mutex
	last   listed
	asking chan struct{} // closed when the registry has answered; nil: nobody asks
}

// listed is what the registry last listed.
type listed struct {
	providers []provider.Address
	complete  bool
	at        time.Time // when it last answered, be it that it cannot; zero: not yet
	took      time.Duration
}

// known is what is known of the names of providers.
type known struct {
	providers []provider.Address // in no order, each once
	complete  bool               // there are no others in the registry
	pending   bool               // its list has not come yet
}

func newDirectory(o Options) *directory {
	return &directory{configured: o.Configured, catalog: o.Catalog, list: o.List, ttl: cmp.Or(o.ListTTL, 30*time.Second)}
}

// known returns the names that are known. The registry is asked for its list once at
// a time, goes on answering when nobody waits any more, and is waited for briefly.
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

// ask asks the registry. What it listed before outlives a failure.
func (d *directory) ask(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	began := time.Now()
	found, complete := d.list(ctx)
	took := time.Since(began)
	if len(found) > maxListed {
		found, complete = found[:maxListed], false
	}
	found = slices.SortedFunc(slices.Values(found), byName) // to sort them again with others takes little
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(found) > 0 || complete {
		d.last.providers = found
	}
	d.last.complete, d.last.at, d.last.took = complete, time.Now(), took
	d.asking = nil
	close(done)
}
