package pullthrough

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/telemetry"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
)

const (
	// maxLists and maxListBytes bound what is in memory of providers' lists.
	maxLists     = 2048
	maxListBytes = 24 << 20
	// absentTTL is how long an origin's word is taken that it has no such provider.
	absentTTL = time.Minute
	// patience is how long a client waits for an origin where the last list could
	// stand in.
	patience = 2 * time.Second
)

// list is what an origin offers of a provider. It does not change.
type list struct {
	// listing is nil where the list is from disk: it stands in for index.json, and
	// nothing can be fetched by it.
	listing *origin.Listing
	offers  []catalog.Offer // those that the scope allows, oldest first
	// warnings are the origin's own, which clients show to their users.
	warnings []string
	// seen is since when versions are known; zero: since the provider is. Nil
	// without a cooldown.
	seen map[provider.Version]time.Time
	at   time.Time // when the origin said so

	bytes int64 // about what it takes in memory, as weigh has counted
}

// offer returns what is offered of a version.
func (l *list) offer(v provider.Version) (catalog.Offer, bool) {
	i, ok := slices.BinarySearchFunc(l.offers, v, func(o catalog.Offer, v provider.Version) int { return o.Version.Compare(v) })
	if !ok {
		return catalog.Offer{}, false
	}
	return l.offers[i], true
}

// lists are those of all providers that were asked for of late.
type lists struct {
	mu      sync.Mutex
	entries map[provider.Address]*listEntry
}

type listEntry struct {
	load sync.Once // from disk

	mu      sync.Mutex // guards the following
	used    time.Time
	list    *list // nil: nothing is known
	failure failure
	call    *call[*list]
}

// entry returns that of a provider. What was not used for longest makes room.
func (ls *lists) entry(a provider.Address) *listEntry {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	e := ls.entries[a]
	if e == nil {
		if len(ls.entries) >= maxLists {
			ls.evict(maxLists*7/8, maxListBytes)
		}
		e = &listEntry{}
		ls.entries[a] = e
	}
	e.mu.Lock()
	e.used = time.Now()
	e.mu.Unlock()
	return e
}

// forget drops the list of a provider.
func (ls *lists) forget(a provider.Address) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.entries, a)
}

// grown forgets what is too much, now that there is another list.
func (ls *lists) grown() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.evict(maxLists, maxListBytes)
}

// evict forgets what was not used for longest, until no more is left than so many
// lists and bytes. It is called with mu held.
func (ls *lists) evict(count int, size int64) {
	type usage struct {
		address provider.Address
		used    time.Time
		size    int64
	}
	var all []usage
	now := time.Now()
	for a, e := range ls.entries {
		e.mu.Lock()
		if !e.failure.holds(now) {
			e.failure = failure{}
		}
		u := usage{a, e.used, e.size(a)}
		e.mu.Unlock()
		all = append(all, u)
		size -= u.size
	}
	if len(all) <= count && size >= 0 {
		return
	}
	slices.SortFunc(all, func(a, b usage) int { return a.used.Compare(b.used) })
	for _, u := range all[:len(all)-1] { // the last one is wanted just now
		if len(ls.entries) <= count && size >= 0 {
			return
		}
		delete(ls.entries, u.address)
		size += u.size
	}
}

// size is about what the entry of a provider takes in memory, in bytes. It is called
// with mu held.
func (e *listEntry) size(a provider.Address) int64 {
	return 256 + int64(len(a.Path())) + e.list.size() + e.failure.size()
}

// size is about what a list takes in memory, in bytes.
func (l *list) size() int64 {
	if l == nil {
		return 0
	}
	return l.bytes
}

// weigh counts what a list takes, before anybody else has it.
func (l *list) weigh() {
	l.bytes = 512
	for v := range l.seen {
		l.bytes += seenBytes + textBytes(v)
	}
	if l.listing != nil {
		l.bytes += l.listing.Bytes() // with warnings
	} else {
		for _, w := range l.warnings {
			l.bytes += 32 + int64(len(w))
		}
	}
	for i, o := range l.offers {
		l.bytes += offerBytes + textBytes(o.Version) + protocolBytes*int64(len(o.Protocols))
		if i > 0 && same(o.Platforms, l.offers[i-1].Platforms) {
			continue
		}
		for _, platform := range o.Platforms {
			l.bytes += platformBytes + int64(len(platform.OS)+len(platform.Arch))
		}
	}
}

// What the parts of a list take in memory at most, beside their texts.
const (
	seenBytes     = 200 // an entry of list.seen
	offerBytes    = 240
	protocolBytes = 48
	platformBytes = 48
)

// textBytes is what the text of a version takes: most have none beside their numbers.
func textBytes(v provider.Version) int64 {
	if text := v.String(); strings.ContainsAny(text, "-+") {
		return 16 + int64(len(text))
	}
	return 0
}

// same reports whether two slices are one.
func same(a, b []provider.Platform) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// trouble marks an error as an origin's.
func trouble(err error) error {
	if err == nil || errors.Is(err, catalog.ErrSource) {
		return err
	}
	return fmt.Errorf("%w: %w", catalog.ErrSource, err)
}

// list returns what the origin offers of a provider: what it said of late, or what
// it says now, or what it said before where it is in trouble.
func (p *Puller) list(ctx context.Context, a provider.Address) (*list, error) {
	e := p.lists.entry(a)
	e.load.Do(func() { p.loadList(a, e) })
	now := time.Now()
	e.mu.Lock()
	known, failed := e.list, e.failure
	var c *call[*list]
	switch age := p.age(known, now); {
	case failed.holds(now):
	case age >= p.ttl(known):
		c = p.ask(ctx, a, e)
	case age >= p.ttl(known)*3/4:
		p.ask(context.Background(), a, e) // for whoever comes next
	}
	e.mu.Unlock()
	standIn := known
	if p.age(known, now) >= p.lasts(known) {
		standIn = nil
	}
	switch {
	case c != nil:
		return p.await(ctx, c, standIn)
	case standIn != nil:
		return standIn, nil
	}
	return nil, failed.err
}

// await waits for an answer: for long only if nothing can stand in for it.
func (p *Puller) await(ctx context.Context, c *call[*list], standIn *list) (*list, error) {
	if standIn != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	l, err := c.wait(ctx)
	if err != nil && standIn != nil {
		return standIn, nil
	}
	return l, err
}

// fetchable returns a list by which versions can be fetched.
func (p *Puller) fetchable(ctx context.Context, a provider.Address) (*list, error) {
	l, err := p.list(ctx, a)
	if err != nil || l.listing != nil {
		return l, err
	}
	return p.anew(ctx, a)
}

// anew asks the origin for its list now, unless it has just failed to answer.
func (p *Puller) anew(ctx context.Context, a provider.Address) (*list, error) {
	e := p.lists.entry(a)
	e.mu.Lock()
	if failed := e.failure; failed.holds(time.Now()) {
		e.mu.Unlock()
		return nil, failed.err
	}
	c := p.ask(ctx, a, e)
	e.mu.Unlock()
	return c.wait(ctx)
}

// currentList reports whether a list is the origin's word of now. What another one lacks
// is not absent for that.
func (p *Puller) currentList(l *list) bool { return p.age(l, time.Now()) < p.ttl(l) }

const forever = 1 << 62

func (p *Puller) age(l *list, now time.Time) time.Duration {
	if l == nil {
		return forever
	}
	return max(0, now.Sub(l.at))
}

// ttl is how long a list is current.
func (p *Puller) ttl(l *list) time.Duration {
	switch {
	case l == nil || l.listing == nil && len(l.offers) > 0:
		return 0 // from disk
	case len(l.offers) == 0:
		return min(absentTTL, p.o.ListTTL)
	}
	return p.o.ListTTL
}

// lasts is how long a list stands in while the origin is in trouble. That there is
// nothing is said on its current word alone.
func (p *Puller) lasts(l *list) time.Duration {
	if l == nil || len(l.offers) == 0 {
		return p.ttl(l)
	}
	return max(p.o.StaleIfError, p.ttl(l))
}

// ask asks the origin for its list, for a request, unless that is under way. It is
// called with e.mu held.
func (p *Puller) ask(request context.Context, a provider.Address, e *listEntry) *call[*list] {
	if e.call != nil {
		return e.call
	}
	c := &call[*list]{done: make(chan struct{})}
	before := e.list
	fly := func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(telemetry.Follow(ctx, request), metadataTimeout)
		defer cancel()
		spanned, end := telemetry.Start(ctx, "origin versions", slog.String("provider", a.String()))
		l, err := p.fetchList(spanned, a, before)
		err = brief(err)
		end(err)
		e.mu.Lock()
		e.call, e.failure = nil, failure{}
		if err != nil {
			e.failure = failFor(err, troubleLasts)
		} else {
			e.list = l
		}
		e.mu.Unlock()
		p.lists.grown()
		c.value, c.err = l, err
		close(c.done)
		if err != nil {
			p.o.Log.WarnContext(ctx, "the origin is in trouble: what it offers is not known now", "provider", a.String(), "err", err, "hint", hint.Of(err))
			return
		}
		p.keepList(a, l)
	}
	if !p.task(fly) {
		c.err = trouble(errClosed)
		close(c.done)
		return c
	}
	e.call = c
	return c
}

var errClosed = errors.New("the gateway is shutting down")

// fetchList asks the origin. A provider that it does not know is a list without
// offers.
func (p *Puller) fetchList(ctx context.Context, a provider.Address, before *list) (*list, error) {
	out := &list{at: time.Now()}
	listing, err := p.o.Origin.Versions(ctx, a)
	switch {
	case errors.Is(err, origin.ErrProviderNotFound):
		if before != nil {
			out.seen = before.seen // what comes back later is no older for that, nor younger
		}
		out.weigh()
		return out, nil
	case err != nil:
		return nil, trouble(err)
	}
	for _, w := range listing.Warnings {
		p.o.Log.DebugContext(ctx, "the origin warns", "provider", a.String(), "warning", w)
	}
	out.seen = p.firstSeen(listing, before, out.at)
	policy := p.o.Policy(a)
	var last []provider.Platform
	var offered []provider.Version
	for _, v := range listing.Versions {
		if !p.allows(v, out) {
			continue
		}
		platforms, err := p.o.Origin.Platforms(ctx, a, listing, v)
		if err != nil {
			return nil, trouble(err)
		}
		platforms = slices.Clone(platforms)
		provider.SortPlatforms(platforms)
		if slices.Equal(platforms, last) {
			platforms = last // most versions have the same
		}
		last = platforms
		offered = append(offered, v)
		out.offers = append(out.offers, catalog.Offer{
			Version: v, Protocols: listing.Protocols(v), Platforms: platforms, Signed: !policy.AllowUnsigned || policy.Pins(),
		})
	}
	out.listing = listing.Only(offered)
	out.warnings = listing.OriginWarnings
	out.weigh()
	return out, nil
}

// allows reports whether the scope allows a version.
func (p *Puller) allows(v provider.Version, l *list) bool {
	if _, err := ociaddr.VersionTag(v); err != nil || !p.o.Scope.Versions.IsZero() && !p.o.Scope.Versions.Has(v) {
		return false
	}
	since := l.seen[v]
	return since.IsZero() || l.at.Sub(since) >= p.o.Scope.Cooldown
}

// firstSeen returns since when versions are known; nil where nothing goes by it.
func (p *Puller) firstSeen(listing *origin.Listing, before *list, now time.Time) map[provider.Version]time.Time {
	if p.o.Scope.Cooldown == 0 {
		return nil
	}
	seen := map[provider.Version]time.Time{}
	for _, v := range listing.Versions {
		if before == nil || before.seen == nil {
			seen[v] = time.Time{} // it was there before we were
			continue
		}
		since, known := before.seen[v]
		if !known {
			since = now
		}
		seen[v] = since
	}
	return seen
}
