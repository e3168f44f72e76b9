package repo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// The protocol of announcements. TestAnnouncementsModel checks it in every interleaving.
//
//  1. A push of some platforms announces itself before it reads the index that it will
//     overwrite.
//  2. In each round, the push lists the announcements, reads them, and then reads the index.
//     It writes the union of the index and the announced packages. The last round finds that
//     the index already contains the union.
//  3. The push marks its announcement as done, and reads all announcements once more. If no
//     other announcement is open, the push deletes the announcements that the index
//     contains. Otherwise it leaves them to the push whose announcement is open. There is one
//     exception. A push that saw no other announcement in its last round first deletes its
//     own announcement, and then reads the other announcements. If the delete fails, the push
//     marks its announcement as done instead.
//
// A push writes or deletes only on the basis of what it read within the last minute. A push
// that takes long renews its announcement. A push without an announcement announces itself
// when it finds an open announcement of another push. An announcement is deleted by its
// digest, so a newer announcement under the same tag stays.
const (
	// crashAge is the age at which a push counts as crashed if its announcement is not done.
	crashAge = time.Hour
	// RenewAge is the age at which a push renews its own announcement.
	RenewAge = crashAge / 2
	// MaxReadAge is the maximum age of the data on whose basis a push writes or deletes. A
	// push reads older data again.
	MaxReadAge = time.Minute
	// maxAnnouncements is the maximum number of announcement tags of one version.
	maxAnnouncements = 200
)

// Announced is an announcement in the registry.
type Announced struct {
	Tag      ociaddr.Tag
	Manifest ocispec.Descriptor
	// before is the manifest that the tag named until the announcement was marked as done.
	// It is nil if the announcement is not done, or if an earlier release of ocibridge wrote
	// it.
	before   *ocispec.Descriptor
	Packages []artifact.Package
	Evidence *ocispec.Descriptor // said to be signed, but not verified yet; nil: none
	At       time.Time           // zero if an earlier release of ocibridge wrote it
	done     bool
	moved    bool // the tag names a placeholder, which is deleted together with the tag
}

// open reports whether the push that announced itself might still write the version's index.
func (a Announced) open(now time.Time) bool { return !a.done && !a.Old(now) }

// Old reports whether the announcement is so old that its push has certainly ended.
func (a Announced) Old(now time.Time) bool { return now.Sub(a.At).Abs() >= crashAge }

// In reports whether an index has all announced packages and signed evidence.
func (a Announced) In(index *artifact.Version) bool {
	return (a.Evidence == nil || index.Evidence != nil && (index.Evidence.Digest == a.Evidence.Digest || saysSigned(*index.Evidence))) &&
		!slices.ContainsFunc(a.Packages, func(p artifact.Package) bool { return !HasPackage(index.Packages, p) })
}

// adds reports whether the announcement adds anything to an index. This is the case if the
// index lacks an announced platform, or if it lacks signed evidence and the announcement has
// signed evidence.
func (a Announced) adds(index *artifact.Version) bool {
	return !Announced{Evidence: a.Evidence}.In(index) || slices.ContainsFunc(a.Packages, func(p artifact.Package) bool { return Find(index.Packages, p.Platform) == nil })
}

// saysSigned reports whether the index entry of evidence says that the evidence is signed.
func saysSigned(evidence ocispec.Descriptor) bool {
	return maps.Equal(evidence.Annotations, artifact.DescribeEvidence(evidence, trust.Signed).Annotations)
}

// AnyOpen reports whether the push of any announcement might still write the version's index.
func AnyOpen(all []Announced, now time.Time) bool {
	return slices.ContainsFunc(all, func(a Announced) bool { return a.open(now) })
}

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

// IsPartOf reports whether t is an announcement tag of the version v.
func IsPartOf(t ociaddr.Tag, v provider.Version) bool {
	of, ok := t.PartOf()
	return ok && of == v
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

// DeleteAny deletes a manifest, if it exists.
func DeleteAny(ctx context.Context, store Store, manifest ocispec.Descriptor) error {
	if err := store.Delete(ctx, manifest); !IsNotFound(err) {
		return err
	}
	return nil
}

// DeleteWithTag deletes a manifest that only one tag names. Some registries require that
// the tag is removed first.
func DeleteWithTag(ctx context.Context, store Store, manifest ocispec.Descriptor, tag ociaddr.Tag) error {
	err := DeleteAny(ctx, store, manifest)
	if err == nil {
		return nil
	}
	named, rerr := artifact.Resolve(ctx, store, string(tag))
	if rerr != nil || named.Digest != manifest.Digest { // the tag names a newer announcement, which Untag would remove
		return err
	}
	if store.Untag(ctx, string(tag)) != nil {
		return err
	}
	return DeleteAny(ctx, store, manifest)
}

// RemoveOldTag removes a tag, but keeps the manifest that the tag names. If the registry
// deletes only by digest, RemoveOldTag moves the tag to a placeholder, and deletes the
// placeholder.
func RemoveOldTag(ctx context.Context, store Store, tag ociaddr.Tag) error {
	err := store.Untag(ctx, string(tag))
	if err == nil || IsNotFound(err) {
		return nil
	}
	if !errors.Is(err, errdef.ErrUnsupported) {
		return err
	}
	instead, err := artifact.Placeholder(ociaddr.NewAnnouncementID())
	if err != nil {
		return err
	}
	if err := store.PushReference(ctx, instead.Descriptor, bytes.NewReader(instead.Data), string(tag)); err != nil {
		return err
	}
	return store.Delete(ctx, instead.Descriptor)
}
