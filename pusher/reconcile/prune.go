package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/base/refusals"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// ErrPruneLimit means that a prune would remove more versions than the limit, or the last
// version of a provider or a module.
var ErrPruneLimit = errors.New("too much to prune")

// pruneStep returns the step for a version that no block requests.
func (p *planner) pruneStep(ctx context.Context, v provider.Version) (*Step, error) {
	found, err := p.read(ctx, v)
	if err != nil {
		return nil, err // a version that cannot be read is not pruned
	}
	step := p.stored(v, found)
	step.Action = pusher.ActionPrune
	return step, nil
}

// checkPrune refuses to prune more versions than the limit. It also refuses to prune the
// last version of a provider or a module, unless [Options.PruneLimit] is set.
func (s *Syncer) checkPrune(plan *Plan, steps []Step) error {
	limit := s.o.PruneLimit
	if limit == 0 {
		limit = DefaultPruneLimit
	}
	if len(steps) > limit {
		return hint.Wrap(fmt.Errorf("%w: %d versions, more than %d; none was pruned", ErrPruneLimit, len(steps), limit),
			"look at the plan; if it is what you want, --prune-limit %d allows it", len(steps))
	}
	if s.o.PruneLimit > 0 {
		return nil
	}
	for _, state := range plan.states {
		left := slices.ContainsFunc(plan.Steps, func(q Step) bool {
			return q.Subject == state.subject && q.Action != pusher.ActionPrune && q.Action != pusher.ActionWait
		})
		if !left && slices.ContainsFunc(steps, func(q Step) bool { return q.Subject == state.subject }) {
			return hint.Wrap(fmt.Errorf("%w: no version of %s would be left; nothing was pruned", ErrPruneLimit, state.subject),
				"look at its %s block; if it is what you want, --prune-limit %d allows it", state.subject.Kind(), len(steps))
		}
	}
	return nil
}

// CheckPrune returns the error with which [Syncer.Apply] would refuse to prune, or nil. It
// assumes that the rest of the plan succeeds.
func (s *Syncer) CheckPrune(plan *Plan) error {
	return s.checkPrune(plan, plan.pruneSteps(plan.Failures))
}

// pruneSteps returns the steps that prune versions of providers and modules without failures.
func (p *Plan) pruneSteps(failures []Failure) []Step {
	var out []Step
	for _, step := range p.Steps {
		if step.Action == pusher.ActionPrune && !anyFailed(failures, step.Subject) {
			out = append(out, step)
		}
	}
	return out
}

// anyFailed reports whether anything about a provider or a module failed.
func anyFailed(failures []Failure, a subject.Address) bool {
	return slices.ContainsFunc(failures, func(f Failure) bool { return f.Subject == a })
}

// prune removes the versions that the plan prunes. It skips providers and modules with failures. If a module of a plan with
// closures was not stored, it skips all modules: clients get other versions than planned, and these call other modules.
func (s *Syncer) prune(ctx context.Context, plan *Plan, out *Outcome) error {
	steps := plan.pruneSteps(out.Failures)
	ofModule := func(a subject.Address) bool { return a != nil && a.Kind() == subject.Module }
	if plan.closed && slices.ContainsFunc(out.Failures[len(plan.Failures):], func(f Failure) bool { return ofModule(f.Subject) }) {
		all := len(steps)
		if steps = slices.DeleteFunc(steps, func(q Step) bool { return ofModule(q.Subject) }); len(steps) < all {
			out.warn(keptModules)
		}
	}
	if err := s.checkPrune(plan, steps); err != nil {
		return err
	}
	for _, state := range plan.states {
		if !s.o.Prune || state.keep || anyFailed(out.Failures, state.subject) {
			continue
		}
		mine := slices.DeleteFunc(slices.Clone(steps), func(q Step) bool { return q.Subject != state.subject })
		clock := outgoing.NewClock(s.o.Push.Now)
		ctx := outgoing.WithClock(ctx, clock)
		if err := s.newPruner(state, out, clock).run(ctx, mine); err != nil {
			if ctx.Err() != nil {
				return err
			}
			out.Failures = append(out.Failures, Failure{Subject: state.subject, Err: err})
		}
	}
	return nil
}

// pruner removes versions from one repository. It first removes their tags, then the indexes
// that no tag names, and then the manifests that no index names. An interrupted prune can
// leave manifests without a tag, but never a tag without its manifests. Clients do not
// install manifests without a tag.
type pruner struct {
	*Syncer
	state    *repositoryState
	out      *Outcome
	tiedTags map[ociaddr.Tag]bool // tags that the registry removes only together with their manifest
	clock    *outgoing.Clock      // the registry's clock
	recent   repo.RecentTags
	explicit map[provider.Version]bool // versions that a user named; their replaced indexes are deleted even if they have referrers
	gone     map[provider.Version]bool // versions whose tags were removed, or will be deleted together with their index
	swept    []*artifact.Version       // versions whose indexes were deleted
}

// errBeingPushed means that a push of the version may still be running.
var errBeingPushed = errors.New("it is being pushed, or a push of it was ended less than an hour ago")

func (s *Syncer) newPruner(state *repositoryState, out *Outcome, clock *outgoing.Clock) *pruner {
	return &pruner{Syncer: s, state: state, out: out, clock: clock, tiedTags: map[ociaddr.Tag]bool{}, gone: map[provider.Version]bool{}, explicit: map[provider.Version]bool{}}
}

func (p *pruner) run(ctx context.Context, steps []Step) error {
	unlock, err := p.state.dest.LockFor(ctx, "prune of %s", p.state.subject)
	if err != nil {
		return err
	}
	defer unlock()
	var gone []untagged
	var failure error
	for _, step := range steps {
		indexes, err := p.untag(ctx, step)
		if errors.Is(err, errBeingPushed) {
			p.out.warn("%v: it is left, and the next prune removes it", err)
			continue
		}
		if repo.IsHeld(err) {
			p.fail(step, err)
			continue
		}
		if err != nil {
			failure = err
			break
		}
		gone = append(gone, indexes...)
	}
	if len(gone) == 0 {
		return errors.Join(failure, p.sweepNamed(ctx))
	}
	return errors.Join(failure, p.sweep(ctx, gone)) // even after a failure, because no later prune finds the untagged indexes
}

// untagged is a version whose tags were removed, or will be deleted together with its index.
type untagged struct {
	step    Step
	version *artifact.Version
	tied    bool // the registry deletes the tags only together with the index
}

// untag removes a version's tags. It returns what they named, and nothing if the version no longer
// exists.
func (p *pruner) untag(ctx context.Context, step Step) ([]untagged, error) {
	if !subject.TraitsOf(step.Subject).Packages {
		return p.untagZips(ctx, step)
	}
	u, err := p.untagVersion(ctx, step)
	if u == nil {
		return nil, err
	}
	return []untagged{*u}, err
}

// untagVersion removes the tags of a provider's version. It returns nil if the version no longer exists. The
// error wraps errBeingPushed if one of the version's announcements is open.
func (p *pruner) untagVersion(ctx context.Context, step Step) (*untagged, error) {
	found, err := artifact.ReadTagged(ctx, p.cached(p.state), step.Subject, step.Version, repo.TagOf(step.Version))
	if errors.Is(err, errdef.ErrNotFound) {
		return nil, nil // another sync has pruned the version
	}
	if err != nil {
		return nil, p.registryError("read "+string(repo.TagOf(step.Version))+" in", err)
	}
	if found.Index.Digest != step.index.Digest {
		return nil, hint.New(fmt.Sprintf("%s:%s has changed since the plan was made; it is left", p.state.dest.Repository, repo.TagOf(step.Version)), "run it again")
	}
	u := &untagged{step: step, version: found}
	// The version's own tag is removed last. While that tag exists, the next sync finds what
	// is left to remove.
	if err := p.removeAnnouncements(ctx, step.Version, anyAnnouncement); err != nil {
		return nil, err
	}
	tag, err := ociaddr.VersionTag(step.Version)
	if err != nil {
		return nil, err
	}
	err = p.state.dest.Store.Untag(ctx, string(tag))
	switch u.tied = errors.Is(err, errdef.ErrUnsupported); {
	case u.tied:
		p.tiedTags[tag] = true
	case err == nil, errors.Is(err, errdef.ErrNotFound):
		p.out.Pruned = append(p.out.Pruned, step)
	default:
		return nil, p.deleteError("remove the tag "+string(tag)+" from", err)
	}
	p.gone[step.Version] = true
	return u, nil
}

// removeAnnouncements removes those announcements of a version that the parameter which selects.
// It also removes announcement tags that name no valid announcement. If one of the announcements
// is open, it removes nothing, and the error wraps errBeingPushed.
func (p *pruner) removeAnnouncements(ctx context.Context, v provider.Version, which func(repo.Announced) bool) error {
	a, ok := p.state.subject.(provider.Address)
	if !ok {
		return nil // pushes of modules announce nothing
	}
	tags, err := p.recent.List(ctx, p.state.dest.Store, p.o.Push.Now) // the plan's list may lack the tags of new pushes
	if err != nil {
		return p.registryError("list tags of", err)
	}
	all, err := repo.ReadAnnouncements(ctx, p.state.dest.Store, a, v, tags)
	if err != nil {
		return p.registryError("read announcements in", err)
	}
	if repo.AnyOpen(all, p.clock.Now()) {
		return fmt.Errorf("%s:%s: %w", p.state.dest.Repository, repo.TagOf(v), errBeingPushed)
	}
	for _, t := range tags {
		if !repo.IsPartOf(t, v) {
			continue
		}
		i := slices.IndexFunc(all, func(a repo.Announced) bool { return a.Tag == t })
		switch {
		case i < 0:
			err = repo.RemoveOldTag(ctx, p.state.dest.Store, t)
		case which(all[i]):
			err = repo.RemoveAnnouncement(ctx, p.state.dest.Store, all[i])
		}
		if err != nil {
			return p.deleteError("remove the tag "+string(t)+" from", err)
		}
	}
	return nil
}

// fail records that a version was not pruned.
func (p *pruner) fail(step Step, err error) {
	delete(p.gone, step.Version)
	p.out.Failures = append(p.out.Failures, Failure{Subject: step.Subject, Version: step.Version, Err: err})
}

// deleteError returns a [RegistryError] about a deletion. It adds a hint unless package auth
// has a better hint.
func (p *pruner) deleteError(op string, err error) error {
	out := p.registryError(op, err)
	switch {
	case refusals.MissingRight(err) != "", refusals.ReadOnly(err), refusals.Immutable(err):
		return out
	case repo.IsHeld(err):
		return hint.Wrap(out, "a rule about the tag, or another manifest that names this one, keeps it in the registry: remove that reason and run it again")
	}
	if p.state.dest.Repository.Registry == "ghcr.io" {
		return hint.Wrap(out, "GHCR's registry deletes nothing: delete the version on GitHub, among the versions of the package")
	}
	return hint.Wrap(out, "the registry must allow deletes, and the credential must have that right")
}

// warnLeftovers warns of manifests that stay without a tag. err is the reason why the pruner
// does not know which manifests the remaining tags name.
func (p *pruner) warnLeftovers(err error) {
	p.out.warn("%s: manifests of the removed versions are left, without a tag: %v", p.state.dest.Repository, err)
}

// warnLeft warns of one manifest that stays without a tag.
func (p *pruner) warnLeft(desc ocispec.Descriptor, err error) {
	p.out.warn("%s@%s is left, without a tag: %v", p.state.dest.Repository, desc.Digest, err)
}

func (p *pruner) registryError(op string, err error) error {
	return &repo.RegistryError{Op: op, Repository: p.state.dest.Repository, Err: err}
}

// cleanUp removes leftover announcements from a repository. No push needs these announcements
// any more. If cleanUp cannot remove them, the sync succeeds nevertheless.
func (s *Syncer) cleanUp(ctx context.Context, state *repositoryState, out *Outcome) error {
	a, ok := state.subject.(provider.Address)
	if !ok || len(repo.AnnouncedVersions(state.tags)) == 0 {
		return nil
	}
	unlock, err := state.dest.LockFor(ctx, "sync of %s", state.subject)
	if err != nil {
		return err
	}
	defer unlock()
	clock := outgoing.NewClock(s.o.Push.Now)
	ctx = outgoing.WithClock(repo.MayPush(ctx, state.dest.Repository), clock)
	c := &repo.Cleaner{Provider: a, Store: state.dest.Store, Clock: clock, Now: s.o.Push.Now} // it lists the tags again after the pushes of the sync
	tags, err := c.Recent.List(ctx, c.Store, c.Now)
	for _, v := range repo.AnnouncedVersions(tags) {
		if _, err = c.Clean(ctx, v); err != nil {
			break
		}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil, repo.CannotDelete(err) && !s.o.Prune: // a sync without --prune needs no right to delete
		return nil
	}
	out.warn("%s: tags that begin with ocibridge-part are left: %v", state.dest.Repository, err)
	return nil
}
