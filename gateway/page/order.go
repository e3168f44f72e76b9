package page

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/internal/base/panics"
)

const (
	orderReads = 100 // the maximum number of entries that one view of the newest first reads
	// orderTTL is how long the order uses what was read about an entry, if the registry does not tell when it changed. Otherwise a
	// push that no client has noticed would never be seen.
	orderTTL = 10 * time.Minute
)

// orders holds the last order of the directory, and reads what an order lacks.
type orders struct {
	last    atomic.Pointer[order]
	reads   atomic.Int64 // counts the reads of summaries for an order
	reading sync.Mutex   // held while a view reads, so that many views do not read more at a time than one
}

// order is the known names, the last change first.
type order struct {
	providers, modules ranked
	unread             []entry // the entries whose last change is unknown because nothing was read about them, in no particular order
	old                []entry // the entries that were read before their last change, or longer than orderTTL ago, oldest first

	of    *index
	reads int64 // of orders, when the order began to be made
}

// ranked are the entries of one kind.
type ranked struct {
	dated   []entry // the last change first
	undated []entry // by name; the time of their last change is unknown
}

// lastChange returns when the versions of an entry last changed, as far as that is known without reading anything, or the zero
// time: the registry's own time, or else when the gateway saw a version or a repository appear, or else when the newest version
// was published. added is when the gateway saw a version appear.
func (i *index) lastChange(e entry, s summary, added time.Time) time.Time {
	if at := i.changed[e]; !at.IsZero() {
		return at
	}
	seen := added
	for _, at := range []time.Time{s.added, i.appeared[e]} {
		if at.After(seen) {
			seen = at
		}
	}
	if seen.IsZero() && s.Newest != nil {
		return s.Newest.Date()
	}
	return seen
}

// orderOf returns the order of an index from what is known now.
func (p *page) orderOf(k *index) *order {
	reads := p.orders.reads.Load()
	if o := p.orders.last.Load(); o != nil && o.of == k && o.reads == reads {
		return o
	}
	o := &order{of: k, reads: reads}
	now, added := time.Now(), p.Catalog.Added()
	type read struct {
		entry
		at time.Time
	}
	var old []read
	rank := func(all []entry) (r ranked) {
		type dated struct {
			entry
			at time.Time
		}
		var sorted []dated
		for _, e := range all {
			var s summary
			last := p.summaries.Last(e)
			if last != nil {
				s = last.Value
			}
			at := k.lastChange(e, s, added[e.Address])
			if at.IsZero() {
				r.undated = append(r.undated, e)
			} else {
				sorted = append(sorted, dated{e, at})
			}
			switch {
			case last == nil || s.lacksAnswers():
				if at.IsZero() {
					o.unread = append(o.unread, e)
				}
			case at.After(last.At) && !at.After(now): // a time in the future comes from a wrong clock
				old = append(old, read{entry: e}) // the first to be read: what its row says is outdated
			case now.Sub(last.At) >= orderTTL && k.changed[e].IsZero():
				old = append(old, read{e, last.At})
			}
		}
		slices.SortStableFunc(sorted, func(a, b dated) int { return b.at.Compare(a.at) })
		for _, d := range sorted {
			r.dated = append(r.dated, d.entry)
		}
		return r
	}
	o.providers, o.modules = rank(k.providers), rank(k.modules)
	// Each view begins elsewhere, so that entries whose reads fail do not keep others from being read.
	rand.Shuffle(len(o.unread), func(i, j int) { o.unread[i], o.unread[j] = o.unread[j], o.unread[i] })
	slices.SortFunc(old, func(a, b read) int { return a.at.Compare(b.at) })
	for _, r := range old {
		o.old = append(o.old, r.entry)
	}
	p.orders.last.Store(o)
	return o
}

// newestFirst returns the order of an index. It first reads what the order lacks about at most orderReads entries that the client
// may read, and waits for that for overviewPatience. reading reports whether unread entries are left, of which the next view has more.
func (p *page) newestFirst(ctx context.Context, k *index, who *access.Client) (o *order, reading bool) {
	o = p.orderOf(k)
	unread := p.readable(who, o.unread)
	due := slices.Concat(unread, p.readable(who, o.old))
	due = due[:min(len(due), orderReads)]
	if len(due) == 0 {
		return o, false
	}
	done := p.readSummaries(ctx, due)
	return p.orderOf(k), len(unread) > 0 && !done || len(unread) > orderReads
}

// readSummaries reads the summaries of entries, never from an origin. The reads continue after overviewPatience, or when the
// client leaves, but end after metadataTimeout. The result is false if they have not ended yet, or if another view is reading.
func (p *page) readSummaries(ctx context.Context, all []entry) (done bool) {
	if !p.orders.reading.TryLock() {
		return false
	}
	patience, stop := context.WithTimeout(ctx, overviewPatience)
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer p.orders.reading.Unlock()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), metadataTimeout)
		defer cancel()
		panics.Catch(ctx, p.Log, func() error {
			var group panics.Group
			group.SetLimit(summaryReads)
			for _, e := range all {
				if ctx.Err() != nil {
					break
				}
				group.Go(func() error {
					p.summaries.Ask(ctx, e) // an error leaves the entry as it is
					p.orders.reads.Add(1)
					return nil
				})
			}
			return group.Wait()
		})
	}()
	select {
	case <-ended:
		return true
	case <-patience.Done():
		return false
	}
}
