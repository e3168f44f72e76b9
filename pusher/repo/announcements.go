package repo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
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

// readAnnouncement reads one announcement. It also reads announcements of earlier releases of
// ocibridge. Those releases announced each platform with a tag that names the platform's
// manifest, and the evidence with a tag that names the evidence.
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
	out := &Announced{Tag: t, Manifest: found.Index, Packages: found.Packages, Evidence: found.Evidence, At: found.At, done: found.Done}
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
