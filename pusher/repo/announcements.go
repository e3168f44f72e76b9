package repo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// ReadAnnouncements reads the announcements of a version. It looks for them only under the
// given tags. It skips a tag that names no valid announcement.
func ReadAnnouncements(ctx context.Context, store artifact.ReferenceFetcher, a provider.Address, v provider.Version, tags []ociaddr.Tag) ([]Announced, error) {
	tags = slices.DeleteFunc(slices.Clone(tags), func(t ociaddr.Tag) bool { return !IsPartOf(t, v) })
	if len(tags) > maxAnnouncements {
		return nil, hint.New(fmt.Sprintf("%s %s: %d tags ocibridge-part.*, more than %d", a, v, len(tags), maxAnnouncements), "remove them with the registry's own tools, and push the version again")
	}
	slices.Sort(tags)
	var out []Announced
	for _, t := range tags {
		one, err := readAnnouncement(ctx, store, a, v, t)
		switch {
		case IsUnusable(err):
		case err != nil:
			return nil, fmt.Errorf("tag %s: %w", t, err)
		default:
			out = append(out, *one)
		}
	}
	return out, nil
}

// readAnnouncement reads one announcement. Earlier releases of ocibridge announced each platform with a tag that
// names its manifest, and the evidence with a tag that names the evidence.
func readAnnouncement(ctx context.Context, store artifact.ReferenceFetcher, a provider.Address, v provider.Version, t ociaddr.Tag) (*Announced, error) {
	if _, own := t.Announcement(); !own {
		desc, moved, err := artifact.ReadPlaceholder(ctx, store, string(t))
		if err != nil {
			return nil, err
		}
		if moved {
			return &Announced{Tag: t, Manifest: desc, done: true, moved: true}, nil
		}
	}
	if _, platform, ok := t.Partial(); ok {
		p, err := artifact.ReadPackage(ctx, store, string(t), a, v, platform)
		if err != nil {
			return nil, err
		}
		return &Announced{Tag: t, Manifest: p.Manifest, Packages: []artifact.Package{*p}, done: true}, nil
	}
	if _, ok := t.PartialEvidence(); ok {
		desc, err := artifact.Resolve(ctx, store, string(t))
		if err != nil {
			return nil, err
		}
		return &Announced{Tag: t, Manifest: desc, Evidence: &desc, done: true}, nil
	}
	found, err := artifact.ReadAnnouncement(ctx, store, string(t), a, v)
	if err != nil {
		return nil, err
	}
	if !strings.HasSuffix(string(t), "."+found.ID) {
		return nil, fmt.Errorf("%w: the announcement belongs to another tag", artifact.ErrNotProvider)
	}
	out := &Announced{Tag: t, Manifest: found.Index, Packages: found.Packages, Evidence: found.Evidence, Docs: found.Docs, At: found.At, done: found.Done}
	if found.Done {
		found.Done = false
		if blob, err := artifact.EncodeAnnouncement(*found); err == nil {
			out.before = &blob.Descriptor
		}
	}
	return out, nil
}

// RemoveAnnouncement removes an announcement, if it still exists.
func RemoveAnnouncement(ctx context.Context, store Store, a Announced) error {
	if _, own := a.Tag.Announcement(); !own && !a.moved {
		return RemoveOldTag(ctx, store, a.Tag)
	}
	// The manifest contains the announcement's ID, so no other tag names it. If the tag
	// names a newer manifest by now, the tag stays.
	if err := DeleteWithTag(ctx, store, a.Manifest, a.Tag); err != nil {
		return err
	}
	if a.before == nil {
		return nil
	}
	return DeleteAny(ctx, store, *a.before)
}

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

// Cleaner removes announcements that no push needs any more from a provider's repository.
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

// List returns the repository's tags. The returned list is at most MaxReadAge old.
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

// Clean removes the announcements of a version that the index already contains, and old announcements that would
// add nothing to the index. If the version has no index, it removes all old announcements. It removes nothing if
// any announcement of the version is open. It returns the number of announcements that it removed.
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
