package pusher

import (
	"context"
	"errors"
	"slices"
	"time"

	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/outgoing"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// cleanUp removes leftover announcements from a repository. No push needs these announcements
// any more. If cleanUp cannot remove them, the sync succeeds nevertheless.
func (s *Syncer) cleanUp(ctx context.Context, state *repositoryState, out *Outcome) error {
	if len(announcedVersions(state.tags)) == 0 {
		return nil
	}
	unlock, err := state.dest.lock(ctx, "sync of %s", state.provider)
	if err != nil {
		return err
	}
	defer unlock()
	clock := outgoing.NewClock(s.o.Push.Now)
	ctx = outgoing.WithClock(mayPush(ctx, state.dest.Repository), clock)
	c := &cleaner{state.provider, state.dest.Store, clock, s.o.Push.Now, recentTags{}} // recentTags is empty, so that the cleaner lists the tags again after the pushes of the sync
	tags, err := c.recent.list(ctx, c.store, c.now)
	for _, v := range announcedVersions(tags) {
		if _, err = c.clean(ctx, v); err != nil {
			break
		}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil, cannotDelete(err) && !s.o.Prune: // a sync without --prune needs no right to delete
		return nil
	}
	out.warn("%s: tags that begin with ocibridge-part are left: %v", state.dest.Repository, err)
	return nil
}

// announcedVersions returns the versions that have announcements, oldest first.
func announcedVersions(tags []ociaddr.Tag) []provider.Version {
	var out []provider.Version
	for _, t := range tags {
		if v, ok := t.PartOf(); ok && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	provider.SortVersions(out)
	return out
}

// cleaner removes leftover announcements from a provider's repository. No push needs these
// announcements any more.
type cleaner struct {
	provider provider.Address
	store    Store
	clock    *outgoing.Clock // the registry's clock
	now      func() time.Time
	recent   recentTags
}

// recentTags caches the list of a repository's tags for a minute.
type recentTags struct {
	tags []ociaddr.Tag
	at   time.Time // when the request was sent; zero: never
}

// list returns the repository's tags. It lists the tags again if the cached list is older
// than maxReadAge.
func (r *recentTags) list(ctx context.Context, store artifact.TagLister, now func() time.Time) ([]ociaddr.Tag, error) {
	if r.isFresh(now()) {
		return r.tags, nil
	}
	at := now()
	tags, err := artifact.ListAnyTags(ctx, store)
	if err == nil {
		r.tags, r.at = tags, at
	}
	return tags, err
}

func (r *recentTags) isFresh(now time.Time) bool {
	return !r.at.IsZero() && now.Sub(r.at) <= maxReadAge
}

// clean removes those announcements of a version whose packages and evidence are in the
// version's index. It removes nothing if one of the version's announcements is open. It also
// removes old announcements that would add nothing to the index. If the version has no index,
// clean removes all old announcements. It returns the number of announcements that it
// removed.
func (c *cleaner) clean(ctx context.Context, v provider.Version) (removed int, err error) {
	tags, err := c.recent.list(ctx, c.store, c.now)
	if err != nil {
		return 0, err
	}
	all, err := readAnnouncements(ctx, c.store, c.provider, v, tags)
	if err != nil || anyOpen(all, c.clock.Now()) {
		return 0, err
	}
	index, err := artifact.Read(ctx, c.store, c.provider, v)
	switch {
	case errors.Is(err, errdef.ErrNotFound) && !slices.Contains(ociaddr.Versions(tags), v):
		index = &artifact.Version{} // the push ended before it wrote an index
	case isUnusable(err):
		return 0, nil
	case err != nil:
		return 0, err
	}
	for _, a := range all {
		if !c.recent.isFresh(c.now()) {
			return removed, nil
		}
		if a.in(index) || a.old(c.clock.Now()) && (len(index.Packages) == 0 || !a.adds(index)) {
			if err := removeAnnouncement(ctx, c.store, a); err != nil {
				return removed, &removeError{err}
			}
			removed++
		}
	}
	return removed, nil
}

// removeError means that an announcement could not be removed.
type removeError struct{ error }

func (e *removeError) Unwrap() error { return e.error }
