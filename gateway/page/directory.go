package page

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/fresh"
)

const (
	// listTimeout is how long a registry may take to list its repositories.
	listTimeout = time.Minute
	// listPatience is how long a request waits for the first list, and agedPatience how long it waits if there
	// is an older list. After that time, the page shows the names that are known.
	listPatience = 2 * time.Second
	agedPatience = 250 * time.Millisecond
	// listRest is the minimum pause between two lists, as a multiple of the duration of the previous one. It
	// reduces the load on registries with many repositories, and on registries whose list needs a request for
	// each repository.
	listRest = 20
	// maxListed is the maximum number of providers and modules in a list. The rest of a longer list is dropped.
	maxListed = 20_000
)

// directory knows the names of providers and modules. They come from the configuration, from the requests of clients and,
// if the registry has a catalog, from that catalog.
type directory struct {
	configured []entry
	catalog    *catalog.Catalog
	lists      *fresh.Cache[string, listed] // the registry's list, with "" as the only key; nil if the registry has no catalog
}

// listed is a list of providers and modules.
type listed struct {
	entries  []entry
	complete bool // the registry has no others
	pending  bool // the list of the registry has not arrived yet
}

func newDirectory(o Options) *directory {
	d := &directory{configured: entriesOf(o.Configured), catalog: o.Catalog}
	if o.List == nil {
		return d
	}
	d.lists = fresh.New(fresh.Options[string, listed]{
		Key:     func(name string) string { return name },
		Timeout: listTimeout, Patience: agedPatience,
		Fetch: func(ctx context.Context, _ string, last *fresh.Answer[listed]) (fresh.Answer[listed], error) {
			began := time.Now()
			l := requestList(ctx, o.List, last)
			ttl := max(cmp.Or(o.ListTTL, 30*time.Second), listRest*time.Since(began))
			return fresh.Answer[listed]{Value: l, TTL: ttl, StaleFor: fresh.Forever}, nil
		},
	})
	return d
}

// known returns the known names, sorted and without duplicates. If the registry's list is missing or too old,
// known requests a new list and waits briefly. Only one request for the list runs at a time. That request
// continues even if no client waits for it.
func (d *directory) known(ctx context.Context) listed {
	out := d.listed(ctx)
	all := slices.Concat(out.entries, d.configured, entriesOf(d.catalog.Known()))
	slices.SortFunc(all, byName)
	out.entries = slices.Compact(all)
	return out
}

// listed returns the registry's list. If the list has not arrived in time, the result is empty, and pending is
// true.
func (d *directory) listed(ctx context.Context) listed {
	if d.lists == nil {
		return listed{}
	}
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	a, err := d.lists.Get(ctx, "")
	if err != nil {
		return listed{pending: true}
	}
	return a.Value
}

// requestList requests the registry's list. If the request fails, requestList returns the entries of the last list.
func requestList(ctx context.Context, list func(context.Context) Names, last *fresh.Answer[listed]) (l listed) {
	names := list(ctx)
	l.entries, l.complete = slices.Concat(entriesOf(names.Providers), entriesOf(names.Modules)), names.Complete
	if len(l.entries) > maxListed {
		l.entries, l.complete = l.entries[:maxListed], false
	}
	if len(l.entries) == 0 && !l.complete && last != nil {
		l.entries = last.Value.entries
	}
	l.entries = slices.SortedFunc(slices.Values(l.entries), byName) // sorting a part makes it fast when known sorts all entries
	return l
}
