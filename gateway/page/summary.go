package page

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/fresh"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

const (
	summaryTTL       = 5 * time.Second // the catalog, which answers after that, has its own TTL
	summaryPatience  = 50 * time.Millisecond
	summaryReads     = 8           // how many providers and modules a table reads concurrently
	overviewPatience = time.Second // how long the page waits for these reads; they continue, for the next request
	maxSummaries     = maxListed
	// recordPatience is how long a row waits for the record in its evidence. The read then continues, for the next request.
	recordPatience = 300 * time.Millisecond
)

// summary is what a table says about a provider or a module. The registry has no versions of it if Newest is nil.
type summary struct {
	Newest   *rowView // the newest stored version
	Versions int      // the number of stored versions, including denied versions

	added time.Time // when the gateway saw the registry's list gain a version; zero if it has not
}

// lacksAnswers reports whether the registry has not described the newest version in time.
func (s summary) lacksAnswers() bool { return s.Newest != nil && s.Newest.State == rowUnknown }

// newSummaries returns the cache of summaries. A summary is read from the catalog when a page first shows it.
func (p *page) newSummaries() *fresh.Cache[entry, summary] {
	ttl := min(summaryTTL, cmp.Or(p.ListTTL, summaryTTL))
	return fresh.New(fresh.Options[entry, summary]{
		Key: func(e entry) string { return e.Page() }, Timeout: metadataTimeout, Patience: summaryPatience, FailureTTL: ttl,
		MaxEntries: maxSummaries, Log: p.Log,
		Fetch: func(ctx context.Context, e entry, _ *fresh.Answer[summary]) (fresh.Answer[summary], error) {
			s, err := p.summarize(ctx, e)
			return fresh.Answer[summary]{Value: s, TTL: ttl, StaleFor: fresh.Forever}, err
		},
	})
}

// summarize reads the list of versions, the newest version and the record in its evidence, never from an origin. An error
// means that they are unknown.
func (p *page) summarize(ctx context.Context, e entry) (summary, error) {
	ctx, cancel := context.WithTimeout(ctx, overviewPatience*3/4) // the page still waits then
	defer cancel()
	view := p.Catalog.Registry()
	list, err := inHalf(ctx, func(ctx context.Context) (*catalog.Item, error) { return view.Versions(ctx, e.Address) })
	switch {
	case errors.Is(err, catalog.ErrAbsent), errors.Is(err, catalog.ErrNotServed):
		return summary{}, nil
	case err != nil:
		return summary{}, err
	}
	newest := newestOf(list.Versions)
	if newest.IsZero() {
		return summary{Versions: len(list.All()), added: list.Added()}, nil
	}
	var row rowView
	if m, ok := e.Address.(module.Address); ok {
		row = p.moduleRow(ctx, view, list, m, newest)
	} else {
		row = p.row(ctx, view, list, newest)
		p.addRecord(ctx, view, list.Address, &row)
	}
	return summary{&row, len(list.All()), list.Added()}, nil
}

// inHalf calls read with half of the time until the deadline of ctx. If the registry does not answer, read gets the last answer at the
// end of this time, and the caller has time for the answers that belong to it.
func inHalf[T any](ctx context.Context, read func(context.Context) (T, error)) (T, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	return read(ctx)
}

// addRecord adds what the push recorded about a stored version: the signer and the time of its publication.
func (p *page) addRecord(ctx context.Context, view catalog.View, a provider.Address, row *rowView) {
	if row.evidence == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, recordPatience)
	defer cancel()
	record, err := artifact.ReadRecord(ctx, view.Metadata(a), *row.evidence)
	if err != nil {
		return
	}
	row.Signer = record.Fingerprint
	row.Pinned = slices.Contains(p.Policy(a).Keys, record.Fingerprint)
	if at, err := time.Parse(time.RFC3339, record.PublishedAt); err == nil {
		row.Published = at
	}
}

// overviewView is a provider or module in a table.
type overviewView struct {
	entry
	summary
	known   bool      // the registry has answered
	Changed time.Time // when its versions last changed; zero if unknown, see index.lastChange
}

// groupView is the part of a table with one host and namespace.
type groupView struct {
	Name string // HOST/NAMESPACE, or "" in a table that is not grouped
	Rows []overviewView
}

// tableView is a table of providers, of modules, or of both.
type tableView struct {
	Base    string
	Modules bool // only modules, which have no platforms and no signers
	Mixed   bool // providers and modules
	// Incomplete means that the registry has not answered in time, and that no banner says so.
	Incomplete bool
	Groups     []groupView
	Pages      pager
}

// Empty reports whether the table has no rows.
func (t tableView) Empty() bool { return len(t.Groups) == 0 }

// Grouped reports whether the rows are in groups by host and namespace.
func (t tableView) Grouped() bool { return !t.Empty() && t.Groups[0].Name != "" }

// lacksAnswers reports whether cells are empty because the registry has not answered in time.
func (t tableView) lacksAnswers() bool {
	for _, group := range t.Groups {
		for _, row := range group.Rows {
			if !row.known || row.summary.lacksAnswers() {
				return true
			}
		}
	}
	return false
}

// newTable returns a table. The rows of a grouped one must be sorted by host and namespace.
func newTable(r *http.Request, rows []overviewView, grouped bool) tableView {
	out := tableView{Base: base(r)}
	for _, row := range rows {
		name := ""
		if grouped {
			name = displayHost(row.Hostname()) + "/" + row.Namespace()
		}
		if n := len(out.Groups); n == 0 || out.Groups[n-1].Name != name {
			out.Groups = append(out.Groups, groupView{Name: name})
		}
		last := &out.Groups[len(out.Groups)-1]
		last.Rows = append(last.Rows, row)
	}
	return out
}

// overviews describes entries. The cells of a row are empty if the registry has not answered in time.
func (p *page) overviews(ctx context.Context, k *index, all []entry) []overviewView {
	out := make([]overviewView, len(all))
	ctx, cancel := context.WithTimeout(ctx, overviewPatience)
	defer cancel()
	var group panics.Group
	group.SetLimit(summaryReads)
	now := time.Now()
	for i, e := range all {
		out[i].entry = e
		if a := p.summaries.Last(e); a.Current(now) {
			out[i].summary, out[i].known = a.Value, true
			continue
		}
		group.Go(func() error {
			if a, err := p.summaries.Get(ctx, e); err == nil {
				out[i].summary, out[i].known = a.Value, true
			}
			return nil
		})
	}
	group.Wait()
	for i := range out {
		o := &out[i]
		o.Changed = k.lastChange(o.entry, o.summary, time.Time{})
	}
	return out
}
