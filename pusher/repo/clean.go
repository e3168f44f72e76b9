package repo

import (
	"context"
	"errors"
	"slices"
	"time"

	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// AnnouncedVersions returns the versions that have announcements, oldest first.
func AnnouncedVersions(tags []ociaddr.Tag) []provider.Version {
	var out []provider.Version
	for _, t := range tags {
		if v, ok := t.PartOf(); ok && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	provider.SortVersions(out)
	return out
}

// Cleaner removes leftover announcements from a provider's repository. No push needs these
// announcements any more.
type Cleaner struct {
	Provider provider.Address
	Store    Store
	Clock    *outgoing.Clock // the registry's clock
	Now      func() time.Time
	Recent   RecentTags // empty: the tags are listed first
}

// RecentTags caches the list of a repository's tags for a minute.
type RecentTags struct {
	tags []ociaddr.Tag
	at   time.Time // when the request was sent; zero: never
}

// List returns the repository's tags. It lists the tags again if the cached list is older
// than MaxReadAge.
func (r *RecentTags) List(ctx context.Context, store artifact.TagLister, now func() time.Time) ([]ociaddr.Tag, error) {
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

func (r *RecentTags) isFresh(now time.Time) bool {
	return !r.at.IsZero() && now.Sub(r.at) <= MaxReadAge
}

// Clean removes those announcements of a version whose packages and evidence are in the
// version's index. It removes nothing if one of the version's announcements is open. It also
// removes old announcements that would add nothing to the index. If the version has no index,
// clean removes all old announcements. It returns the number of announcements that it
// removed.
func (c *Cleaner) Clean(ctx context.Context, v provider.Version) (removed int, err error) {
	tags, err := c.Recent.List(ctx, c.Store, c.Now)
	if err != nil {
		return 0, err
	}
	all, err := ReadAnnouncements(ctx, c.Store, c.Provider, v, tags)
	if err != nil || AnyOpen(all, c.Clock.Now()) {
		return 0, err
	}
	index, err := artifact.Read(ctx, c.Store, c.Provider, v)
	switch {
	case errors.Is(err, errdef.ErrNotFound) && !slices.Contains(ociaddr.Versions(tags), v):
		index = &artifact.Version{} // the push ended before it wrote an index
	case IsUnusable(err):
		return 0, nil
	case err != nil:
		return 0, err
	}
	for _, a := range all {
		if !c.Recent.isFresh(c.Now()) {
			return removed, nil
		}
		if a.In(index) || a.Old(c.Clock.Now()) && (len(index.Packages) == 0 || !a.adds(index)) {
			if err := RemoveAnnouncement(ctx, c.Store, a); err != nil {
				return removed, &RemoveError{err}
			}
			removed++
		}
	}
	return removed, nil
}

// RemoveError means that an announcement could not be removed.
type RemoveError struct{ error }

func (e *RemoveError) Unwrap() error { return e.error }
