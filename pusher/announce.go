package pusher

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

// ownAnnouncement is the announcement of this push.
type ownAnnouncement struct {
	id        string
	tag       ociaddr.Tag
	version   artifact.Version   // the packages, the signed evidence and the documentation of this push
	writtenAt time.Time          // when the announcement was last written, by the local clock
	openAt    time.Time          // when it was last written as not done, by the registry's clock
	manifest  ocispec.Descriptor // the manifest that the tag names
}

// announced returns the push's own announcement in the form in which other pushes read it.
func (o *ownAnnouncement) announced() repo.Announced {
	return repo.Announced{Tag: o.tag, Manifest: o.manifest, Packages: o.version.Packages, Evidence: o.version.Evidence, Docs: o.version.Docs}
}

// otherPushes holds what other pushes of the version have announced.
type otherPushes struct {
	all       []repo.Announced
	packages  []artifact.Package  // the packages of all announcements, newest announcement first
	evidence  *ocispec.Descriptor // the newest signed evidence; nil: none
	docs      *ocispec.Descriptor // the newest documentation; nil: none
	open      bool                // one of the pushes might still write the version's index
	ownListed bool                // the registry has this push's own announcement
}

// announcements reads what other pushes have announced.
func (w *push) announcements(ctx context.Context) (otherPushes, error) {
	var out otherPushes
	tags, err := w.Tags(ctx)
	if err != nil {
		return out, err
	}
	if w.own != nil {
		if out.ownListed = slices.Contains(tags, w.own.tag); !out.ownListed { // the list might be stale
			_, err := artifact.Resolve(ctx, w.Dest.Store, string(w.own.tag))
			if out.ownListed = err == nil; err != nil && !repo.IsNotFound(err) {
				return out, w.Failed("read "+string(w.own.tag)+" in", err)
			}
		}
		tags = slices.DeleteFunc(tags, func(t ociaddr.Tag) bool { return t == w.own.tag })
	}
	if out.all, err = repo.ReadAnnouncements(ctx, w.Dest.Store, w.release.Provider(), w.release.Version(), tags); err != nil {
		return out, w.Failed("read announcements in", err)
	}
	out.open = repo.AnyOpen(out.all, w.clock.Now())
	slices.SortStableFunc(out.all, func(a, b repo.Announced) int { return b.At.Compare(a.At) })
	for _, a := range out.all {
		out.packages = append(out.packages, a.Packages...)
		out.docs = cmp.Or(out.docs, a.Docs)
		if out.evidence == nil {
			if out.evidence, err = w.signedEvidence(ctx, a.Evidence); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// signedEvidence describes evidence as signed. It returns nil if the evidence is not signed.
func (w *push) signedEvidence(ctx context.Context, desc *ocispec.Descriptor) (*ocispec.Descriptor, error) {
	p, err := w.readProof(ctx, desc)
	if err != nil || p.grade != gradeSigned {
		return nil, err
	}
	described := artifact.DescribeEvidence(*desc, trust.Signed)
	return &described, nil
}

// announces reports whether the push has to announce itself before it writes. Only a push of some platforms has
// to, because concurrent pushes might add other platforms. If the registry cannot remove announcements, a push
// announces itself only if several jobs are likely to push one platform each ([origin.Release.ByPublisher]).
func (w *push) announces(ctx context.Context) (bool, error) {
	offers := func(p provider.Platform) bool {
		return slices.ContainsFunc(w.release.Packages, func(pkg origin.Package) bool { return pkg.Platform == p })
	}
	if !w.release.Partial || w.release.Claims.SHA256SUMS != nil && !listsMore(w.release.Claims, offers) {
		return false, nil
	}
	if w.release.ByPublisher {
		return true, nil
	}
	return w.canRemove(ctx)
}

// announce writes the announcement of this push, or renews it under the same tag.
func (w *push) announce(ctx context.Context) error {
	if w.own == nil {
		err := w.offerEvidence(ctx)
		if err != nil {
			return err
		}
		if err := w.offerDocs(ctx); err != nil {
			return err
		}
		own := &ownAnnouncement{id: ociaddr.NewAnnouncementID()}
		if own.tag, err = ociaddr.AnnouncementTag(w.release.Version(), own.id); err != nil {
			return err
		}
		own.version = artifact.Version{Owner: w.release.Provider(), Version: w.release.Version(), Protocols: w.release.Protocols, Packages: w.packages, Docs: w.offeredDocs}
		if w.sums.Verdict() == trust.Signed {
			own.version.Evidence = w.offeredEvidence
		}
		w.own = own
	}
	return w.tagAnnouncement(ctx, false)
}

// tagAnnouncement writes the push's announcement, and deletes the manifest that the tag named before.
func (w *push) tagAnnouncement(ctx context.Context, done bool) error {
	at := w.o.Now()
	if !done {
		w.own.openAt = w.clock.Now() // the done announcement has the same time, so that readers can compute the manifest that the tag named before
	}
	blob, err := artifact.EncodeAnnouncement(artifact.Announcement{Version: w.own.version, ID: w.own.id, At: w.own.openAt, Done: done})
	if err != nil {
		return err
	}
	if err := w.SendTag(ctx, "tag "+string(w.own.tag)+" in", blob, string(w.own.tag), helpImmutable); err != nil {
		if w.own.manifest.Digest == "" {
			w.own.manifest = blob.Descriptor // the registry might have stored the manifest in spite of the error
		}
		return err
	}
	before := w.own.manifest
	w.own.writtenAt, w.own.manifest = at, blob.Descriptor
	if before.Digest != "" && before.Digest != blob.Descriptor.Digest {
		w.noteDelete(w.Dest.Store.Delete(ctx, before))
	}
	return nil
}

// mustRenew reports whether the push's announcement is gone, or will soon be so old that other pushes treat this push
// as crashed.
func (w *push) mustRenew(others otherPushes) bool {
	return w.own != nil && (!others.ownListed || w.o.Now().Sub(w.own.writtenAt) > repo.RenewAge)
}

// finish removes announcements that no push needs any more, after the round that found nothing to change. A later
// push removes those that finish cannot remove.
func (w *push) finish(ctx context.Context, others otherPushes, index *artifact.Version, readAt time.Time) {
	w.removeAll(ctx, others, readAt, func(a repo.Announced) bool {
		return a.Old(w.clock.Now()) && !a.In(index) // this announcement is not in the index, so the decision has rejected it
	})
	if w.own == nil {
		w.clean(ctx, others, index, readAt)
		return
	}
	if len(others.all) > 0 || !w.withdraw(ctx) {
		if err := w.tagAnnouncement(ctx, true); err != nil && !errors.Is(err, repo.ErrImmutable) {
			return
		}
	}
	readAt = w.o.Now()
	others, err := w.announcements(ctx)
	if err != nil || others.open || w.own == nil && len(others.all) == 0 {
		return
	}
	if index, err = w.current(ctx); err != nil || index == nil {
		return
	}
	w.clean(ctx, others, index, readAt)
	if w.own != nil && w.own.announced().In(index) && w.isFresh(readAt) {
		w.withdraw(ctx)
	}
}

// clean removes each announcement of another push whose packages and evidence are in the index. It
// removes none while any announcement is open. The caller must read the index after the
// announcements.
func (w *push) clean(ctx context.Context, others otherPushes, index *artifact.Version, readAt time.Time) {
	if !others.open {
		w.removeAll(ctx, others, readAt, func(a repo.Announced) bool { return a.In(index) })
	}
}

func (w *push) removeAll(ctx context.Context, others otherPushes, readAt time.Time, which func(repo.Announced) bool) {
	for _, a := range others.all {
		if which(a) && w.isFresh(readAt) {
			w.remove(ctx, a)
		}
	}
}

// remove removes an announcement, and reports whether it is gone.
func (w *push) remove(ctx context.Context, a repo.Announced) bool {
	err := repo.RemoveAnnouncement(ctx, w.Dest.Store, a)
	w.noteDelete(err)
	return err == nil
}

// noteDelete remembers that manifests cannot be deleted, if err, the error of a deletion, means this.
func (w *push) noteDelete(err error) {
	if err != nil && !repo.IsNotFound(err) && repo.CannotDelete(err) {
		w.removable.Store(w.Dest.Repository, false)
	}
}

// withdraw removes the push's own announcement, and reports whether it is gone.
func (w *push) withdraw(ctx context.Context) bool {
	if !w.remove(ctx, w.own.announced()) {
		return false
	}
	w.own = nil
	return true
}

// isFresh reports whether the data that the push read at readAt is recent enough to write or delete something.
func (w *push) isFresh(readAt time.Time) bool { return w.o.Now().Sub(readAt) <= repo.MaxReadAge }

// canRemove finds out whether the registry can remove announcements: it removes an announcement that an earlier
// push has left behind or, if there is none, a probe.
func (w *push) canRemove(ctx context.Context) (bool, error) {
	// Docker Hub deletes neither tags nor tagged manifests, and nothing can be deleted from a bundle.
	if w.Dest.Repository.Registry.Canonical() == ociaddr.DockerHub || w.Dest.Store.Remote() == nil {
		return false, nil
	}
	end, err := w.TakeTurn(ctx, w.Dest.Repository) // only one push finds out, and then all pushes of this Pusher know the result
	if err != nil {
		return false, err
	}
	defer end()
	if known, ok := w.removable.Load(w.Dest.Repository); ok {
		return known.(bool), nil
	}
	tried, can, err := w.removeLeftover(ctx)
	if err == nil && !tried {
		can, err = w.removeProbe(ctx)
	}
	if err != nil {
		return false, ctx.Err() // still unknown whether the registry can remove announcements; this push does not announce itself, and the next push tries again
	}
	w.removable.Store(w.Dest.Repository, can)
	return can, nil
}

// removeLeftover looks for a version with announcements that no push needs any more, and removes these
// announcements. tried reports whether there were any. can reports whether the registry allowed the removal.
// If a tag rule forbids one removal, it forbids all: each push would then leave an announcement behind.
func (w *push) removeLeftover(ctx context.Context) (tried, can bool, err error) {
	c := &repo.Cleaner{Provider: w.release.Provider(), Store: w.Dest.Store, Clock: w.clock, Now: w.o.Now, Recent: w.recent}
	tags, err := c.Recent.List(ctx, w.Dest.Store, w.o.Now)
	if err != nil {
		return false, false, w.Failed("list tags of", err)
	}
	for _, v := range repo.AnnouncedVersions(tags) {
		if !slices.Contains(ociaddr.Versions(tags), v) {
			continue // the version is not tagged yet, so a push might still need its announcement
		}
		removed, err := c.Clean(ctx, v)
		var refused *repo.RemoveError
		switch {
		case errors.As(err, &refused) && repo.CannotDelete(err):
			return true, false, nil
		case ctx.Err() != nil:
			return false, false, context.Cause(ctx)
		case err != nil:
			continue // removeProbe will find out
		case removed > 0:
			return true, true, nil
		}
	}
	return false, false, nil
}

// removeProbe stores and deletes a manifest without a tag, to find out whether this login can delete manifests.
func (w *push) removeProbe(ctx context.Context) (bool, error) {
	probe, err := artifact.Placeholder("")
	if err != nil {
		return false, err
	}
	err = w.SendBlob(ctx, "push config to", artifact.Config())
	if err == nil {
		err = w.Put(ctx, probe, "")
		if repo.RefusesContent(err) {
			return true, nil // GitLab refuses the probe. The first announcement will show whether announcements can be removed
		}
	}
	if err == nil {
		err = w.Dest.Store.Delete(ctx, probe.Descriptor)
	}
	switch {
	case err == nil, repo.IsNotFound(err): // another push has deleted it
		return true, nil
	case repo.CannotDelete(err):
		return false, nil
	}
	return false, err
}
