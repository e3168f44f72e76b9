package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

const helpImmutableRemoval = "a rule of the registry keeps this tag as it is: let the tag be moved and run it again, or keep the platform"

// Apply carries out a plan. A failure does not stop the work on other versions. Apply returns an error only if ctx is done.
func (r *Remover) Apply(ctx context.Context, plan *RemovePlan) (*RemoveOutcome, error) {
	out := &RemoveOutcome{Failures: slices.Clone(plan.Failures)}
	for _, state := range plan.states {
		did := &Outcome{}
		clock := outgoing.NewClock(r.syncer.o.Push.Now)
		a := &removalRun{pruner: r.syncer.newPruner(state, did, clock), withReferrers: r.referrers}
		for _, removal := range plan.Removals {
			if removal.Subject == state.subject {
				a.removals = append(a.removals, removal)
			}
		}
		err := a.run(outgoing.WithClock(ctx, clock))
		if err != nil && ctx.Err() == nil {
			did.Failures = append(did.Failures, Failure{Subject: state.subject, Err: err})
		}
		out.Removed = append(out.Removed, a.removed()...)
		out.Warnings = append(out.Warnings, did.Warnings...)
		out.Failures = append(out.Failures, did.Failures...)
		out.Freeable += did.Freeable
		if ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
	}
	for _, removal := range plan.Removals {
		if removal.zips == nil {
			continue
		}
		if err := r.applyZip(ctx, removal, out); ctx.Err() != nil {
			return out, context.Cause(ctx)
		} else if err != nil {
			out.Failures = append(out.Failures, Failure{Subject: removal.Subject, Version: removal.Version, Err: err})
		}
	}
	if w := repo.SummaryWarning(r.syncer.session.Summarize(ctx)); w != "" {
		out.Warnings = append(out.Warnings, w)
	}
	return out, nil
}

// removalRun removes versions from the repository of one provider.
type removalRun struct {
	*pruner
	removals      []*Removal
	withReferrers bool
	replaced      []artifact.Replaced // the indexes that removals of platforms have replaced
	reduced       []*Removal          // the removals of platforms that succeeded
}

// run removes the tags, then the referrers, and then the manifests that no tag names.
func (a *removalRun) run(ctx context.Context) error {
	unlock, err := a.state.dest.LockFor(ctx, "removal from %s", a.state.subject)
	if err != nil {
		return err
	}
	defer unlock()
	a.note(ctx)
	var gone []untagged
	var failure error
	for _, removal := range a.removals {
		a.explicit[removal.Version] = true
		indexes, err := a.removeTag(ctx, removal)
		if errors.Is(err, errBeingPushed) {
			err = hint.Wrap(err, "wait until the push has ended, or for an hour if it has crashed, and run it again")
		}
		gone = append(gone, indexes...)
		if err == nil && !a.tiedTags[repo.TagOf(removal.Version)] {
			err = a.removeReferrers(ctx, a.withReferrers, removal.Referrers) // now, so that another removal still finds them if this one is interrupted
		}
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			a.out.Failures = append(a.out.Failures, Failure{Subject: removal.Subject, Version: removal.Version, Err: err})
		}
	}
	if len(a.reduced) > 0 {
		if named, err := a.named(ctx, nil); err != nil {
			a.warnLeftovers(err)
		} else if _, err := a.deleteNoted(ctx, a.replaced, named); err != nil {
			failure = err
		}
	}
	if len(gone) == 0 {
		return errors.Join(failure, a.sweepNamed(ctx))
	}
	failure = errors.Join(failure, a.sweep(ctx, gone))
	for _, removal := range a.removed() {
		if a.tiedTags[repo.TagOf(removal.Version)] { // until here, the registry could still refuse the removal
			failure = errors.Join(failure, a.removeReferrers(ctx, a.withReferrers, removal.Referrers))
		}
	}
	return failure
}

// note records in the repository's state which indexes lose their tag, so that another removal
// finds them if this one is interrupted.
func (a *removalRun) note(ctx context.Context) {
	var change repo.StateChange
	for _, removal := range a.removals {
		if removal.found != nil {
			change.Replaced = append(change.Replaced, artifact.Replaced{Manifest: repo.Plain(removal.found.Index), Version: removal.Version})
		}
	}
	err := a.session.Writer(a.state.dest).UpdateState(ctx, a.state.subject, change, a.out.warn)
	if err == nil {
		a.state.tags = append(a.state.tags, ociaddr.StateTag)
	} else if ctx.Err() == nil {
		a.out.warn("%s: if this removal is interrupted, a later removal will not find the manifests that it leaves: %v", a.state.dest.Repository, err)
	}
}

// removeTag removes the tag of a version or, for a removal of platforms, moves the tag to an
// index without the platforms. It returns the indexes that have no tag afterwards.
func (a *removalRun) removeTag(ctx context.Context, removal *Removal) (gone []untagged, err error) {
	step := Step{Step: pusher.Step{Subject: a.state.subject, Version: removal.Version, Platforms: removal.Platforms, Size: removal.Size}}
	switch {
	case len(removal.Left) > 0:
		return nil, a.removePlatforms(ctx, removal)
	case removal.found == nil:
		if err = a.removeAnnouncements(ctx, removal.Version, anyAnnouncement); err == nil {
			a.out.Pruned = append(a.out.Pruned, step)
			a.gone[removal.Version] = true
		}
	default:
		step.index = removal.found.Index
		var u *untagged
		u, err = a.untagVersion(ctx, step)
		switch {
		case u != nil:
			gone = append(gone, *u)
		case err == nil: // another removal was faster
			a.out.Pruned = append(a.out.Pruned, step)
		}
	}
	if err != nil {
		return nil, err
	}
	for _, v := range removal.noted {
		gone = append(gone, untagged{step: step, version: v})
	}
	return gone, nil
}

// removePlatforms removes platforms from a version, unless an earlier, interrupted removal
// has already removed them.
func (a *removalRun) removePlatforms(ctx context.Context, removal *Removal) error {
	if len(without(removal.Platforms, removal.found.Platforms())) < len(removal.Platforms) {
		if err := a.reduce(ctx, removal); err != nil {
			return err
		}
	}
	for _, v := range removal.noted {
		a.replaced = append(a.replaced, artifact.Replaced{Manifest: repo.Plain(v.Index), Version: removal.Version})
	}
	a.reduced = append(a.reduced, removal)
	return nil
}

// reduce moves the tag of a version to an index without the removed platforms.
func (a *removalRun) reduce(ctx context.Context, removal *Removal) error {
	repository, store, tag := a.state.dest.Repository, a.state.dest.Store, repo.TagOf(removal.Version)
	ctx = repo.MayPush(ctx, repository)
	outdated := func(an repo.Announced) bool {
		return an.In(removal.found) || slices.ContainsFunc(an.Packages, func(p artifact.Package) bool { return slices.Contains(removal.Platforms, p.Platform) })
	}
	if err := a.removeAnnouncements(ctx, removal.Version, outdated); err != nil {
		return err
	}
	next := *removal.found
	next.Packages = slices.DeleteFunc(slices.Clone(next.Packages), func(p artifact.Package) bool { return slices.Contains(removal.Platforms, p.Platform) })
	index, err := artifact.EncodeIndex(next)
	if err != nil {
		return err
	}
	w := a.session.Writer(a.state.dest)
	if err := w.SendBlob(ctx, "push index to", index); err != nil {
		return err
	}
	named, err := artifact.Resolve(ctx, store, string(tag))
	if err != nil {
		return a.registryError("read "+string(tag)+" in", err)
	}
	if named.Digest != removal.Digest {
		return hint.New(fmt.Sprintf("%s:%s has changed since the plan was made; it is left", repository, tag), "run it again")
	}
	if err := w.SendTag(ctx, "tag "+string(tag)+" in", index, string(tag), helpImmutableRemoval); err != nil {
		return err
	}
	after, err := repo.ReadVersion(ctx, store, repository, a.state.subject, removal.Version, tag)
	if err != nil {
		return err
	}
	if after.Index.Digest != index.Descriptor.Digest {
		return hint.New(fmt.Sprintf("%s:%s was pushed at the same time", repository, tag), "run it again once no push of the version runs")
	}
	a.session.NoteStored(a.state.subject, a.state.dest, removal.Version, after)
	a.replaced = append(a.replaced, artifact.Replaced{Manifest: repo.Plain(removal.found.Index), Version: removal.Version})
	return nil
}

func anyAnnouncement(repo.Announced) bool { return true }

// removed returns the removals that succeeded.
func (a *removalRun) removed() (out []*Removal) {
	pruned := map[provider.Version]bool{}
	for _, step := range a.out.Pruned {
		pruned[step.Version] = true
	}
	for _, removal := range a.removals {
		if pruned[removal.Version] || slices.Contains(a.reduced, removal) {
			out = append(out, removal)
		}
	}
	return out
}
