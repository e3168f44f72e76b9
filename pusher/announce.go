package pusher

import (
	"context"
	"errors"
	"slices"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/trust"
)

// ownAnnouncement is that of a push.
type ownAnnouncement struct {
	id       string
	tag      ociaddr.Tag
	content  artifact.Version
	at       time.Time          // by the local clock
	said     time.Time          // by the registry's clock, when it was last not done
	manifest ocispec.Descriptor // that the tag names
}

// announced returns the announcement as other pushes read it.
func (o *ownAnnouncement) announced() announced {
	return announced{tag: o.tag, manifest: o.manifest, packages: o.content.Packages, evidence: o.content.Evidence}
}

// left is what other pushes of the version have announced.
type left struct {
	all      []announced
	packages []artifact.Package  // those of the newest announcement first
	evidence *ocispec.Descriptor // signed; nil for none
	open     bool                // one of them may still write the version's index
	own      bool                // the push's own announcement is there
}

// announcements returns what other pushes have announced.
func (w *push) announcements(ctx context.Context) (left, error) {
	var out left
	tags, err := w.tags(ctx)
	if err != nil {
		return out, err
	}
	if w.own != nil {
		if out.own = slices.Contains(tags, w.own.tag); !out.own { // the list may be behind
			_, err := artifact.Resolve(ctx, w.dest.Store, string(w.own.tag))
			if out.own = err == nil; err != nil && !isNotFound(err) {
				return out, w.registryError("read "+string(w.own.tag)+" in", err)
			}
		}
		tags = slices.DeleteFunc(tags, func(t ociaddr.Tag) bool { return t == w.own.tag })
	}
	if out.all, err = readAnnouncements(ctx, w.dest.Store, w.release.Provider(), w.release.Version(), tags); err != nil {
		return out, w.registryError("read announcements in", err)
	}
	out.open = anyOpen(out.all, w.clock.Now())
	slices.SortStableFunc(out.all, func(a, b announced) int { return b.at.Compare(a.at) })
	for _, a := range out.all {
		out.packages = append(out.packages, a.packages...)
		if a.evidence != nil && out.evidence == nil {
			if out.evidence, err = w.signedEvidence(ctx, *a.evidence); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// signedEvidence returns the evidence given, nil if it is not signed.
func (w *push) signedEvidence(ctx context.Context, desc ocispec.Descriptor) (*ocispec.Descriptor, error) {
	switch g, err := w.grade(ctx, desc); {
	case err != nil:
		return nil, err
	case g != gradeSigned:
		return nil, nil
	}
	desc = artifact.DescribeEvidence(desc, trust.Signed)
	return &desc, nil
}

// announces reports whether the push has to announce itself before it writes: it brings
// some of the version's platforms, and others may be pushed at the same time. Where
// announcements cannot be removed, only jobs that push by platform leave them.
func (w *push) announces(ctx context.Context) (bool, error) {
	if !w.release.Partial || !listsMore(w.release.Claims, w.offered()) && w.release.Claims.SHA256SUMS != nil {
		return false, nil
	}
	if w.release.ByPlatform {
		return true, nil
	}
	return w.canRemove(ctx)
}

// offered are the release's packages, as far as their platforms go.
func (w *push) offered() (out []artifact.Package) {
	for _, p := range w.release.Packages {
		out = append(out, artifact.Package{Platform: p.Platform})
	}
	return out
}

// canRemove finds out whether announcements can be removed: by one that a push left, or
// else by a manifest that means nothing.
func (w *push) canRemove(ctx context.Context) (bool, error) {
	if isDockerHub(w.dest.Repository.Registry) || w.dest.Store.Remote() == nil { // a bundle only grows
		return false, nil
	}
	end, err := w.takeTurn(ctx, w.dest.Repository) // one push finds out for all
	if err != nil {
		return false, err
	}
	defer end()
	if known, ok := w.removable.Load(w.dest.Repository); ok {
		return known.(bool), nil
	}
	tried, can, err := w.removeLeft(ctx)
	if err == nil && !tried {
		can, err = w.removeProbe(ctx)
	}
	if err != nil {
		return false, ctx.Err() // trouble: no removal worked, and the next push tries again
	}
	w.removable.Store(w.dest.Repository, can)
	return can, nil
}

// isDockerHub reports whether a registry is Docker Hub. It deletes manifests by digest,
// but neither tags nor manifests that have one: no announcement could be removed.
func isDockerHub(r ociaddr.Registry) bool {
	switch r {
	case "docker.io", "index.docker.io", "registry-1.docker.io":
		return true
	}
	return false
}

// removeLeft removes an announcement of any version when no push needs it. Where a
// rule about tags holds it, no other could be removed, either: each push would leave one.
func (w *push) removeLeft(ctx context.Context) (tried, can bool, err error) {
	c := &cleaner{w.release.Provider(), w.dest.Store, w.clock, w.o.Now, w.recent}
	tags, err := c.recent.list(ctx, w.dest.Store, w.o.Now)
	if err != nil {
		return false, false, w.registryError("list tags of", err)
	}
	for _, v := range announcing(tags) {
		if !slices.ContainsFunc(tags, isTagOf(v)) {
			continue // a push may need what was announced before anything was tagged
		}
		removed, err := c.clean(ctx, v)
		var refused *cannotRemove
		switch {
		case errors.As(err, &refused) && mayNotDelete(err):
			return true, false, nil
		case ctx.Err() != nil:
			return false, false, context.Cause(ctx)
		case err != nil:
			continue // the probe tells
		case removed > 0:
			return true, true, nil
		}
	}
	return false, false, nil
}

// removeProbe finds out whether this login can delete a manifest that has no tag.
func (w *push) removeProbe(ctx context.Context) (bool, error) {
	probe, err := artifact.Placeholder("")
	if err != nil {
		return false, err
	}
	err = w.sendBlob(ctx, "push config to", artifact.Config())
	if err == nil {
		err = w.put(ctx, probe.Descriptor, probe.Data, "")
		if refuses(status(err)) {
			return true, nil // GitLab takes no such manifest. The first announcement shows whether it goes
		}
	}
	if err == nil {
		err = w.dest.Store.Delete(ctx, probe.Descriptor)
	}
	switch {
	case err == nil, isNotFound(err): // another push has deleted it
		return true, nil
	case mayNotDelete(err):
		return false, nil
	}
	return false, err
}

// announce tells other pushes what this one has stored. A push that has announced
// itself does so again, under the same tag.
func (w *push) announce(ctx context.Context, packages []artifact.Package, evidence *ocispec.Descriptor) error {
	signed := evidence
	if w.sums.Verdict() != trust.Signed {
		signed = nil
	}
	if w.own != nil {
		if signed != nil {
			w.own.content.Evidence = signed
		}
		return w.tagAnnouncement(ctx, false)
	}
	own := &ownAnnouncement{id: ociaddr.NewAnnouncementID()}
	var err error
	if own.tag, err = ociaddr.AnnouncementTag(w.release.Version(), own.id); err != nil {
		return err
	}
	own.content = artifact.Version{Provider: w.release.Provider(), Version: w.release.Version(), Protocols: w.release.Protocols, Packages: packages, Evidence: signed}
	w.own = own
	return w.tagAnnouncement(ctx, false)
}

// tagAnnouncement writes the push's announcement, or writes it anew and deletes the
// manifest that its tag named before.
func (w *push) tagAnnouncement(ctx context.Context, done bool) error {
	at := w.o.Now()
	if !done {
		w.own.said = w.clock.Now() // who finds it done can tell what it was before
	}
	blob, err := artifact.EncodeAnnouncement(artifact.Announcement{Version: w.own.content, ID: w.own.id, At: w.own.said, Done: done})
	if err != nil {
		return err
	}
	err = w.sendTag(ctx, "tag "+string(w.own.tag)+" in", blob.Descriptor, blob.Data, string(w.own.tag))
	if err != nil && w.own.manifest.Digest == "" {
		w.own.manifest = blob.Descriptor // it may be there all the same
	}
	if err != nil {
		return err
	}
	before := w.own.manifest
	w.own.at, w.own.manifest = at, blob.Descriptor
	if before.Digest != "" && before.Digest != blob.Descriptor.Digest {
		w.noteDelete(w.dest.Store.Delete(ctx, before))
	}
	return nil
}

// mustRenew reports whether the push's announcement will soon count as a crash, or is
// gone because it already has.
func (w *push) mustRenew(others left) bool {
	return w.own != nil && (!others.own || w.o.Now().Sub(w.own.at) > renewAge)
}

// finish removes the announcements that nobody needs any more. It comes after a round
// that found in the index all that this push and the others announced. What it cannot
// remove stays for the next push.
func (w *push) finish(ctx context.Context, others left, index *artifact.Version, readAt time.Time) {
	w.removeOf(ctx, others, readAt, func(a announced) bool {
		return a.old(w.clock.Now()) && !a.in(index) // the union has refused it
	})
	if w.own == nil {
		w.clean(ctx, others, index, readAt)
		return
	}
	if len(others.all) > 0 || !w.withdraw(ctx) {
		if err := w.tagAnnouncement(ctx, true); err != nil && !errors.Is(err, ErrImmutable) {
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
	if w.own != nil && w.own.announced().in(index) && w.isFresh(readAt) {
		w.withdraw(ctx)
	}
}

// clean removes the announcements of others that an index has, unless one is open. The
// index was read after them.
func (w *push) clean(ctx context.Context, others left, index *artifact.Version, readAt time.Time) {
	if !others.open {
		w.removeOf(ctx, others, readAt, func(a announced) bool { return a.in(index) })
	}
}

func (w *push) removeOf(ctx context.Context, others left, readAt time.Time, which func(announced) bool) {
	for _, a := range others.all {
		if which(a) && w.isFresh(readAt) {
			w.remove(ctx, a)
		}
	}
}

// remove reports whether an announcement is gone.
func (w *push) remove(ctx context.Context, a announced) bool {
	err := removeAnnouncement(ctx, w.dest.Store, a)
	w.noteDelete(err)
	return err == nil
}

// noteDelete notes by the outcome of a delete that manifests cannot be deleted.
func (w *push) noteDelete(err error) {
	if err != nil && !isNotFound(err) && mayNotDelete(err) {
		w.removable.Store(w.dest.Repository, false)
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

// isFresh reports whether something may be written or deleted on what was read then.
func (w *push) isFresh(readAt time.Time) bool { return w.o.Now().Sub(readAt) <= staleAge }
