package pusher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// The protocol of announcements. TestAnnouncementsModel checks it in every interleaving.
//
//  1. A push of some platforms announces itself before it reads what it will overwrite.
//  2. In rounds, it lists the announcements, reads them, reads the index, and writes the
//     union of all. A round that finds the union in place is the last one.
//  3. It marks its announcement as done, and reads all of them once more. If no other is
//     open, it deletes those that the index contains. Otherwise it leaves them to the
//     push that is not done. A push that found no other announcement in its last round
//     deletes its own before it looks for others. A push whose own stays marks it as done.
//
// Whoever writes or deletes, does so on what it read within the last minute. A push
// that takes long announces itself anew. A push without an announcement joins when it
// finds an open one. An announcement is removed by its digest, so that a newer one under
// the same tag stays.
const (
	// crashAge is how old an announcement gets that is not done before its push counts as
	// crashed.
	crashAge = time.Hour
	// renewAge is how old a push lets its own announcement get.
	renewAge = crashAge / 2
	// staleAge is how old a reading may get on which something is written or deleted.
	staleAge = time.Minute
	// maxAnnouncements bounds the announcements of one version.
	maxAnnouncements = 200
)

// announced is an announcement as the registry has it.
type announced struct {
	tag      ociaddr.Tag
	manifest ocispec.Descriptor
	// before is what the tag named until the announcement was done; nil if it is not, or
	// if an earlier release of ocibridge wrote it.
	before   *ocispec.Descriptor
	packages []artifact.Package
	evidence *ocispec.Descriptor // said to be signed; nil for none
	at       time.Time           // zero for one by an earlier release of ocibridge
	done     bool
	moved    bool // the tag names a placeholder, which goes with it
}

// open reports whether the push that announced may still write the version's index.
func (a announced) open(now time.Time) bool { return !a.done && !a.old(now) }

// old reports whether the push has ended, done or not.
func (a announced) old(now time.Time) bool { return now.Sub(a.at).Abs() >= crashAge }

// in reports whether an index has all that was announced.
func (a announced) in(index *artifact.Version) bool {
	return (a.evidence == nil || index.Evidence != nil && (index.Evidence.Digest == a.evidence.Digest || saysSigned(*index.Evidence))) &&
		!slices.ContainsFunc(a.packages, func(p artifact.Package) bool {
			q := find(index.Packages, p.Platform)
			return q == nil || q.Digest != p.Digest
		})
}

// adds reports whether a platform or signed evidence was announced that an index lacks.
func (a announced) adds(index *artifact.Version) bool {
	return !announced{evidence: a.evidence}.in(index) || slices.ContainsFunc(a.packages, func(p artifact.Package) bool { return find(index.Packages, p.Platform) == nil })
}

// saysSigned reports whether an index entry says that evidence is signed.
func saysSigned(evidence ocispec.Descriptor) bool {
	return maps.Equal(evidence.Annotations, artifact.DescribeEvidence(evidence, trust.Signed).Annotations)
}

// anyOpen reports whether any of the pushes may still write the version's index.
func anyOpen(all []announced, now time.Time) bool {
	return slices.ContainsFunc(all, func(a announced) bool { return a.open(now) })
}

// readAnnouncements returns the announcements of a version among tags. It passes over
// what does not read as one.
func readAnnouncements(ctx context.Context, store artifact.ReferenceFetcher, a provider.Address, v provider.Version, tags []ociaddr.Tag) ([]announced, error) {
	tags = slices.DeleteFunc(slices.Clone(tags), func(t ociaddr.Tag) bool {
		of, ok := t.PartOf()
		return !ok || of != v
	})
	if len(tags) > maxAnnouncements {
		return nil, hint.New(fmt.Sprintf("%s %s: %d tags ocibridge-part.*, more than %d", a, v, len(tags), maxAnnouncements), "remove them with the registry's own tools, and push the version again")
	}
	slices.Sort(tags)
	var out []announced
	for _, t := range tags {
		one, err := readAnnouncement(ctx, store, a, v, t)
		switch {
		case isUnusable(err):
		case err != nil:
			return nil, fmt.Errorf("tag %s: %w", t, err)
		default:
			out = append(out, *one)
		}
	}
	return out, nil
}

// readAnnouncement reads one announcement, also in the form of earlier releases: a
// tag for the manifest of each platform, and one for the evidence.
func readAnnouncement(ctx context.Context, store artifact.ReferenceFetcher, a provider.Address, v provider.Version, t ociaddr.Tag) (*announced, error) {
	if _, own := t.Announcement(); !own {
		desc, moved, err := artifact.ReadPlaceholder(ctx, store, string(t))
		if err != nil {
			return nil, err
		}
		if moved {
			return &announced{tag: t, manifest: desc, done: true, moved: true}, nil
		}
	}
	if _, platform, ok := t.Partial(); ok {
		p, err := artifact.ReadPackage(ctx, store, string(t), a, v, platform)
		if err != nil {
			return nil, err
		}
		return &announced{tag: t, manifest: p.Manifest, packages: []artifact.Package{*p}, done: true}, nil
	}
	if _, ok := t.PartialEvidence(); ok {
		desc, err := artifact.Resolve(ctx, store, string(t))
		if err != nil {
			return nil, err
		}
		return &announced{tag: t, manifest: desc, evidence: &desc, done: true}, nil
	}
	found, err := artifact.ReadAnnouncement(ctx, store, string(t), a, v)
	if err != nil {
		return nil, err
	}
	if !strings.HasSuffix(string(t), "."+found.ID) {
		return nil, fmt.Errorf("%w: the announcement is that of another tag", artifact.ErrNotProvider)
	}
	out := &announced{tag: t, manifest: found.Index, packages: found.Packages, evidence: found.Evidence, at: found.At, done: found.Done}
	if found.Done {
		found.Done = false
		if blob, err := artifact.EncodeAnnouncement(*found); err == nil {
			out.before = &blob.Descriptor
		}
	}
	return out, nil
}

// removeAnnouncement removes an announcement. It is no error if it is gone.
func removeAnnouncement(ctx context.Context, store Store, a announced) error {
	if _, own := a.tag.Announcement(); !own && !a.moved {
		return removeOldTag(ctx, store, a.tag)
	}
	// Its manifest has its ID: the tag goes with it, unless it names a newer one by now.
	if err := deleteWithTag(ctx, store, a.manifest, a.tag); err != nil {
		return err
	}
	if a.before == nil {
		return nil
	}
	if err := store.Delete(ctx, *a.before); err != nil && !isNotFound(err) {
		return err
	}
	return nil
}

// deleteWithTag deletes a manifest that is under one tag only. Some registries want the
// tag to be removed first.
func deleteWithTag(ctx context.Context, store Store, manifest ocispec.Descriptor, tag ociaddr.Tag) error {
	err := store.Delete(ctx, manifest)
	if err == nil || isNotFound(err) {
		return nil
	}
	named, rerr := artifact.Resolve(ctx, store, string(tag))
	if rerr != nil || named.Digest != manifest.Digest { // removed by its tag, a newer one would go
		return err
	}
	if store.Untag(ctx, string(tag)) != nil {
		return err
	}
	if err := store.Delete(ctx, manifest); err != nil && !isNotFound(err) {
		return err
	}
	return nil
}

// removeOldTag removes a tag, and leaves the manifest that it names. A registry that
// deletes by digest alone gets the tag moved to a manifest that can go with it.
func removeOldTag(ctx context.Context, store Store, tag ociaddr.Tag) error {
	err := store.Untag(ctx, string(tag))
	if err == nil || isNotFound(err) {
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

// mayNotDelete reports whether an error means that manifests cannot be deleted, by this
// login or by anybody, rather than trouble.
func mayNotDelete(err error) bool {
	code := status(err)
	return errors.Is(err, errdef.ErrUnsupported) || errors.Is(err, auth.ErrBasicCredentialNotFound) || code >= 400 && code < 500 && code != http.StatusTooManyRequests
}
