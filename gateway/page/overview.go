package page

import (
	"context"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/module"
)

const (
	// overviewReads is how many providers and modules a list reads concurrently, and overviewPatience is how long the page waits
	// for them. The reads continue in the background, so the next request finds their results in the cache.
	overviewReads    = 8
	overviewPatience = time.Second
)

// overviewView is a provider or module in a list. Only the address is set if the registry has no versions, or did not answer in
// time.
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

// overviews returns a list with the newest stored versions. For each provider and module, it reads the list of
// versions and one version, from the cache or the registry, and never from an origin.
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
		row = p.moduleRow(ctx, m, newest)
	} else {
		row = p.row(ctx, view, list, newest)
	}
	o.Newest, o.Versions = &row, len(list.All())
}
