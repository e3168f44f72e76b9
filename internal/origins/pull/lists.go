package pull

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/fresh"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/neterr"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
)

const (
	// maxLists and maxListBytes are the maximum number and the maximum size in bytes of the lists in memory.
	maxLists     = 2048
	maxListBytes = 24 << 20
	// absentTTL is how long a list without versions is current.
	absentTTL = time.Minute
)

// list holds the versions of a provider or a module that its origin offers. It is immutable.
type list struct {
	offers []catalog.Offer // the versions that the scope allows, oldest first
	// warnings are the origin's warnings to users.
	warnings []string
	// seen maps each version to the time when it was first seen. The zero time means that the origin offered the
	// version at the first request for the provider. The map is nil if there is no cooldown.
	seen map[provider.Version]time.Time
	at   time.Time // when the origin gave the list
	// spellings maps a module's version to the forms in which the origin lists it, unless the canonical form is the only one.
	spellings map[provider.Version][]string

	bytes int64 // roughly the memory of the list; weigh sets it
}

// offer returns the offer of a version.
func (l *list) offer(v provider.Version) (catalog.Offer, bool) {
	i, ok := slices.BinarySearchFunc(l.offers, v, func(o catalog.Offer, v provider.Version) int { return o.Version.Compare(v) })
	if !ok {
		return catalog.Offer{}, false
	}
	return l.offers[i], true
}

// listingOf returns a listing that contains only the given offer. The methods of [origin.Source] take a listing.
func listingOf(o catalog.Offer) *origin.Listing {
	return &origin.Listing{
		Versions:  []provider.Version{o.Version},
		Platforms: map[provider.Version][]provider.Platform{o.Version: o.Platforms},
		Protocols: map[provider.Version][]string{o.Version: o.Protocols},
	}
}

// errNoOffers means that the origin offers no versions of a provider.
var errNoOffers = errors.New("the origin offers nothing")

type listAnswer = fresh.Answer[*list]

// newLists returns the cache of lists.
func (p *Puller) newLists() *fresh.Cache[subject.Address, *list] {
	return fresh.New(fresh.Options[subject.Address, *list]{
		Key: pathOf, Fetch: p.refreshList, Load: p.loadList, Follow: telemetry.Follow, Log: p.o.Log,
		Size: func(_ subject.Address, l *list, err error) int64 {
			if l == nil {
				return errorSize(err)
			}
			return l.bytes
		},
		Timeout: metadataTimeout, FailureTTL: outageTTL, Early: true, MaxBytes: maxListBytes, MaxEntries: maxLists,
	})
}

// pathOf returns the path of a provider or a module. The paths of the two kinds differ.
func pathOf(a subject.Address) string { return subject.TraitsOf(a).Prefix + a.Path() }

// newListAnswer returns the cache's answer for a list. A list without offers is never served stale.
func (p *Puller) newListAnswer(l *list) listAnswer {
	if len(l.offers) == 0 {
		return listAnswer{Value: l, Err: errNoOffers, At: l.at, TTL: min(absentTTL, p.o.ListTTL)}
	}
	return listAnswer{Value: l, At: l.at, TTL: p.o.ListTTL, StaleFor: max(p.o.StaleIfError, p.o.ListTTL)}
}

// list returns the origin's current list of a provider or a module. While the origin fails, it returns the last list.
func (p *Puller) list(ctx context.Context, a subject.Address) (*list, error) {
	return listOf(p.lists.Get(ctx, a))
}

// askAgain requests the list even if the last list is current, unless the origin has failed within outageTTL.
func (p *Puller) askAgain(ctx context.Context, a subject.Address) (*list, error) {
	return listOf(p.lists.Ask(ctx, a))
}

func listOf(a *listAnswer, err error) (*list, error) {
	if err != nil {
		return nil, outage(err)
	}
	return a.Value, nil
}

// weigh sets l.bytes. It must be called before other goroutines use the list.
func (l *list) weigh() {
	l.bytes = 512
	for v := range l.seen {
		l.bytes += seenBytes + textBytes(v)
	}
	for _, w := range l.warnings {
		l.bytes += 32 + int64(len(w))
	}
	for v, spellings := range l.spellings {
		l.bytes += seenBytes + textBytes(v)
		for _, s := range spellings {
			l.bytes += 32 + int64(len(s))
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

// These are upper bounds for the memory in bytes of the parts of a list, without the texts in these parts.
const (
	seenBytes     = 200 // an entry of list.seen
	offerBytes    = 240
	protocolBytes = 48
	platformBytes = 56 // with the allocations of two short texts
)

// textBytes returns the memory in bytes of a version's pre-release and build metadata. Most versions have
// neither, and are stored as numbers alone.
func textBytes(v provider.Version) int64 {
	if text := v.String(); strings.ContainsAny(text, "-+") {
		return 16 + int64(len(text))
	}
	return 0
}

// same reports whether two slices are the same part of the same array.
func same(a, b []provider.Platform) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// outage returns an error that wraps err and [catalog.ErrSource], or nil if err is nil.
func outage(err error) error {
	if err == nil || errors.Is(err, catalog.ErrSource) {
		return err
	}
	return fmt.Errorf("%w: %w", catalog.ErrSource, err)
}

// refreshList implements [fresh.Options].Fetch for lists. It requests a list from the origin.
func (p *Puller) refreshList(ctx context.Context, a subject.Address, last *listAnswer) (listAnswer, error) {
	spanned, end := telemetry.Start(ctx, "origin versions", subject.Attr(a))
	var before *list
	if last != nil {
		before = last.Value
	}
	l, err := p.fetchList(spanned, a, before)
	level := slog.LevelWarn
	if neterr.NoSuchHost(err) {
		level = slog.LevelInfo // this is normal for a hostname that is only a name in the registry; in other cases, the client gets the error
	}
	err = brief(err)
	end(err)
	if err != nil {
		p.o.Log.Log(ctx, level, "the origin is unavailable: serving its last list of versions, if any", subject.Attr(a), "err", err, "hint", hint.Of(err))
		return listAnswer{}, flatten(err)
	}
	answer := p.newListAnswer(l)
	answer.Save = func(latest *listAnswer) { p.keepList(a, latest.Value) }
	return answer, nil
}

var errClosed = errors.New("the gateway is shutting down")

// fetchList requests a list from the origin. The list of a provider or a module that the origin does not know is empty.
func (p *Puller) fetchList(ctx context.Context, a subject.Address, before *list) (*list, error) {
	out := &list{at: time.Now()}
	versions, offer, err := p.askForList(ctx, a, out)
	switch {
	case errors.Is(err, origin.ErrProviderNotFound), errors.Is(err, origin.ErrModuleNotFound), errors.Is(err, origin.ErrNoModules):
		if before != nil {
			out.seen = before.seen // versions that come back later keep their age
		}
		out.weigh()
		return out, nil
	case err != nil:
		return nil, outage(err)
	}
	out.seen = p.firstSeen(versions, before, out.at)
	for _, v := range versions {
		if !p.allows(v, out) {
			delete(out.spellings, v)
			continue
		}
		o, err := offer(v)
		if err != nil {
			return nil, outage(err)
		}
		out.offers = append(out.offers, o)
	}
	out.weigh()
	return out, nil
}

// askForList requests the versions of a provider or a module from its origin. The function offer describes one of them. It also
// sets what a list has apart from its offers.
func (p *Puller) askForList(ctx context.Context, a subject.Address, l *list) (versions []provider.Version, offer func(provider.Version) (catalog.Offer, error), err error) {
	if m, ok := a.(module.Address); ok {
		return p.askForModuleList(ctx, m, l)
	}
	return p.askForProviderList(ctx, a.(provider.Address), l)
}

func (p *Puller) askForProviderList(ctx context.Context, a provider.Address, l *list) ([]provider.Version, func(provider.Version) (catalog.Offer, error), error) {
	listing, err := p.o.Origin.Versions(ctx, a)
	if err != nil {
		return nil, nil, err
	}
	p.warned(ctx, a, listing.Warnings)
	l.warnings = listing.OriginWarnings
	var last []provider.Platform
	return listing.Versions, func(v provider.Version) (catalog.Offer, error) {
		platforms, err := p.o.Origin.Platforms(ctx, a, listing, v)
		if err != nil {
			return catalog.Offer{}, err
		}
		platforms = slices.Clone(platforms)
		provider.SortPlatforms(platforms)
		if slices.Equal(platforms, last) {
			platforms = last // most versions have the same platforms, so they share one slice
		}
		last = platforms
		return catalog.Offer{Version: v, Protocols: listing.Protocols[v], Platforms: platforms, Signed: p.signed(a)}, nil
	}, nil
}

// warned logs the flaws of an origin's list.
func (p *Puller) warned(ctx context.Context, a subject.Address, warnings []string) {
	for _, w := range warnings {
		p.o.Log.DebugContext(ctx, "the origin warns", subject.Attr(a), "warning", w)
	}
}

// signed returns the value of [catalog.Offer].Signed.
func (p *Puller) signed(a subject.Address) bool {
	of, ok := a.(provider.Address)
	if !ok {
		return false
	}
	policy := p.o.Policy(of)
	return !policy.AllowUnsigned || policy.Pins()
}

// allows reports whether the scope allows a version of the given list, and the version's cooldown has ended.
func (p *Puller) allows(v provider.Version, l *list) bool {
	if _, err := ociaddr.VersionTag(v); err != nil || !p.o.Scope.Versions.IsZero() && !p.o.Scope.Versions.Has(v) {
		return false
	}
	since := l.seen[v]
	return since.IsZero() || l.at.Sub(since) >= p.o.Scope.Cooldown
}

// firstSeen returns the time when each version was first seen, or nil if there is no cooldown.
func (p *Puller) firstSeen(versions []provider.Version, before *list, now time.Time) map[provider.Version]time.Time {
	if p.o.Scope.Cooldown == 0 {
		return nil
	}
	seen := map[provider.Version]time.Time{}
	for _, v := range versions {
		if before == nil || before.seen == nil {
			seen[v] = time.Time{} // the origin offered the version when the provider was first requested
		} else if since, known := before.seen[v]; known {
			seen[v] = since
		} else {
			seen[v] = now
		}
	}
	return seen
}
