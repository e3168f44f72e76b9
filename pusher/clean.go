package pusher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/outgoing"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// cleanUp removes the announcements in a repository that no push needs any more. What
// cannot be removed is no failure of the sync.
func (s *Syncer) cleanUp(ctx context.Context, state *repositoryState, out *Outcome) error {
	if !slices.ContainsFunc(state.tags, isAnnouncement) {
		return nil
	}
	clock := outgoing.NewClock(s.o.Now)
	ctx = outgoing.WithClock(mayPush(ctx, state.dest.Repository), clock)
	warn := func(err error) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case mayNotDelete(err) && !s.o.Prune: // a sync needs no right to delete
			return nil
		}
		out.Warnings = append(out.Warnings, fmt.Sprintf("%s: tags that begin with ocibridge-part are left: %v", state.dest.Repository, err))
		return nil
	}
	c := &cleaner{state.provider, state.dest.Store, clock, s.o.Now, recentTags{}}
	tags, err := c.recent.list(ctx, state.dest.Store, s.o.Now) // anew: the sync has pushed
	if err != nil {
		return warn(err)
	}
	for _, v := range announcing(tags) {
		if _, err := c.clean(ctx, v); err != nil {
			return warn(err)
		}
	}
	return nil
}

// announcing returns the versions that have announcements, sorted.
func announcing(tags []ociaddr.Tag) []provider.Version {
	var out []provider.Version
	for _, t := range tags {
		if v, ok := t.PartOf(); ok && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	provider.SortVersions(out)
	return out
}

func isAnnouncement(t ociaddr.Tag) bool {
	_, ok := t.PartOf()
	return ok
}

// isTagOf reports whether a tag is that of a version.
func isTagOf(v provider.Version) func(ociaddr.Tag) bool {
	return func(t ociaddr.Tag) bool {
		is, ok := t.Version()
		return ok && is == v
	}
}

// cleaner removes announcements from a provider's repository when no push needs them.
type cleaner struct {
	provider provider.Address
	store    Store
	clock    *outgoing.Clock // the registry's
	now      func() time.Time
	recent   recentTags
}

// recentTags are the tags of a repository, listed within the last minute.
type recentTags struct {
	tags []ociaddr.Tag
	at   time.Time // before the request; zero: not listed yet
}

// list returns the tags, and lists them anew where they are too old.
func (r *recentTags) list(ctx context.Context, store artifact.TagLister, now func() time.Time) ([]ociaddr.Tag, error) {
	if r.isFresh(now()) {
		return r.tags, nil
	}
	at := now()
	tags, err := listTags(ctx, store)
	if err == nil {
		r.tags, r.at = tags, at
	}
	return tags, err
}

func (r *recentTags) isFresh(now time.Time) bool { return !r.at.IsZero() && now.Sub(r.at) <= staleAge }

// clean removes the announcements of a version that its index has, unless one is open. It
// also removes old ones that add nothing to it, as a push does. It returns how many
// announcements it removed.
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
	if errors.Is(err, errdef.ErrNotFound) && !slices.ContainsFunc(tags, isTagOf(v)) {
		index, err = &artifact.Version{}, nil // its push ended before it wrote one
	}
	if isUnusable(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for _, a := range all {
		if !c.recent.isFresh(c.now()) {
			return removed, nil
		}
		if a.in(index) || a.old(c.clock.Now()) && (len(index.Packages) == 0 || !a.adds(index)) {
			if err := removeAnnouncement(ctx, c.store, a); err != nil {
				return removed, &cannotRemove{err}
			}
			removed++
		}
	}
	return removed, nil
}

// cannotRemove is the failure to remove an announcement.
type cannotRemove struct{ error }

func (e *cannotRemove) Unwrap() error { return e.error }
