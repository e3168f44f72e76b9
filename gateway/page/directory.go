package page

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/fresh"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

const (
	listTimeout  = time.Minute            // how long a registry may take to list its repositories
	listPatience = 2 * time.Second        // how long a request waits for the first list, before the page shows the known names
	agedPatience = 250 * time.Millisecond // how long a request waits if there is an older list
	// listRest is the minimum pause between two lists, as a multiple of the duration of the previous one. It reduces the
	// load on registries with many repositories, or whose list needs a request for each repository.
	listRest  = 20
	maxListed = 20_000 // the maximum number of providers and modules in a list; the rest is dropped
)

// directory knows the names of providers and modules. They come from the configuration, from the requests of clients
// and, if the registry has a catalog, from the catalog.
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

// known returns the known names, sorted and without duplicates. If the registry's list is missing or too old, known
// requests a new list and waits briefly. Concurrent callers share one request.
func (d *directory) known(ctx context.Context) listed {
	out := d.listed(ctx)
	all := slices.Concat(out.entries, d.configured, entriesOf(d.catalog.Known()))
	slices.SortFunc(all, byName)
	out.entries = slices.Compact(all)
	return out
}

// listed returns the registry's list. If it has not arrived in time, the result is empty, and pending is true.
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

// requestList requests the registry's list. If that fails, it returns the entries of the last list.
func requestList(ctx context.Context, list func(context.Context) Names, last *fresh.Answer[listed]) (l listed) {
	names := list(ctx)
	l.entries, l.complete = entriesOf(names.All), names.Complete
	if len(l.entries) > maxListed {
		l.entries, l.complete = l.entries[:maxListed], false
	}
	if len(l.entries) == 0 && !l.complete && last != nil {
		l.entries = last.Value.entries
	}
	l.entries = slices.SortedFunc(slices.Values(l.entries), byName) // known sorts all entries faster if this part is already sorted
	return l
}

// entry is a provider or a module on a page.
type entry struct{ subject.Address }

// What returns the word for the entry's kind.
func (e entry) What() string { return string(e.Kind()) }

// name returns the type of a provider, or the name of a module.
func (e entry) name() string { return e.Parts()[2] }

// Short returns the address after the namespace: TYPE or NAME/SYSTEM.
func (e entry) Short() string {
	parts := e.Parts()
	return strings.TrimSuffix(parts[2]+"/"+parts[3], "/")
}

// Page returns the path of the entry's page, relative to the root.
func (e entry) Page() string { return e.versionPage(provider.Version{}) }

// versionPage returns the path of a version's page, or of the entry's page if v is zero.
func (e entry) versionPage(v provider.Version) string {
	path := subject.TraitsOf(e.Address).Page + "/" + e.Path()
	if !v.IsZero() {
		path += "/" + url.PathEscape(v.String())
	}
	return path
}

// byName orders entries by the parts of their addresses.
func byName(a, b entry) int {
	first, second := a.Parts(), b.Parts()
	return slices.Compare(first[:], second[:])
}

// readable returns the entries that the client may read. It overwrites the given slice.
func readable(who *access.Client, all []entry) []entry {
	return slices.DeleteFunc(all, func(e entry) bool { return !who.MayRead(e.Address) })
}

// entriesOf returns the entries of addresses.
func entriesOf[A subject.Address](all []A) []entry {
	out := make([]entry, len(all))
	for i, a := range all {
		out[i].Address = a
	}
	return out
}

const (
	overviewReads    = 8           // how many providers and modules a list reads concurrently
	overviewPatience = time.Second // how long the page waits for these reads; they continue, for the next request
)

// overviewView is a provider or module in a list. Only the address is set if the registry has no versions, or did not
// answer in time.
type overviewView struct {
	entry
	Newest   *rowView // the newest stored version
	Versions int      // the number of stored versions, including denied versions
}

// listView is a list of providers and modules.
type listView struct {
	Base  string
	Found []overviewView
}

// newList returns a list without details.
func newList(r *http.Request, all []entry) listView {
	out := listView{base(r), make([]overviewView, len(all))}
	for i, e := range all {
		out.Found[i].entry = e
	}
	return out
}

// overviews returns a list with the newest stored versions. For each provider and module, it reads the list of versions
// and one version, never from an origin.
func (p *page) overviews(r *http.Request, all []entry) listView {
	out := newList(r, all)
	ctx, cancel := context.WithTimeout(r.Context(), overviewPatience)
	defer cancel()
	view := p.Catalog.Registry()
	var group errgroup.Group
	group.SetLimit(overviewReads)
	for i := range out.Found {
		group.Go(func() error {
			p.overview(ctx, view, &out.Found[i])
			return nil
		})
	}
	group.Wait()
	return out
}

func (p *page) overview(ctx context.Context, view catalog.View, o *overviewView) {
	list, err := view.Versions(ctx, o.Address)
	if err != nil {
		return
	}
	newest := newestOf(list.Versions)
	if newest.IsZero() {
		return
	}
	var row rowView
	if m, ok := o.Address.(module.Address); ok {
		row = p.moduleRow(ctx, view, list, m, newest)
	} else {
		row = p.row(ctx, view, list, newest)
	}
	o.Newest, o.Versions = &row, len(list.All())
}
