package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

// planRequests is the maximum number of versions of one provider that are planned
// concurrently.
const planRequests = 4

// planner plans the sync of one provider.
type planner struct {
	*Syncer
	want    Want
	state   *repositoryState
	listing *origin.Listing
	plan    *Plan
}

// planProvider plans the sync of one provider. If it fails, the returned plan contains only
// warnings.
func (s *Syncer) planProvider(ctx context.Context, w Want) (*Plan, error) {
	p := &planner{Syncer: s, want: w, plan: &Plan{}}
	var err error
	if p.state, err = s.repositoryState(ctx, w.Provider); err != nil {
		return p.plan, err
	}
	if p.listing, err = w.Source.Versions(ctx, w.Provider); err != nil {
		return p.plan, err
	}
	for _, text := range p.listing.Warnings {
		p.warn("%s: %s", w.Provider, text)
	}
	// Stored versions are candidates, too. If the source lists fewer versions than before,
	// the sync therefore does not prune the missing versions.
	pool := slices.Clone(p.listing.Versions)
	for v := range p.state.versions {
		if !slices.Contains(pool, v) {
			pool = append(pool, v)
		}
	}
	asked, err := w.selected(pool)
	if err != nil {
		return p.plan, err
	}
	waits, err := p.waits(ctx, asked)
	if err != nil {
		return p.plan, err
	}
	asked = slices.DeleteFunc(asked, func(v provider.Version) bool { _, waiting := waits[v]; return waiting })
	if err := p.addSteps(ctx, asked, waits); err != nil {
		return p.plan, err
	}
	p.state.keep = w.Keep
	p.plan.states = []*repositoryState{p.state}
	slices.SortStableFunc(p.plan.Steps, func(a, b Step) int { return b.Version.Compare(a.Version) })
	return p.plan, nil
}

// plannedVersion is the plan for one version. Both step and err are nil if the source has no
// package for the wanted platforms.
type plannedVersion struct {
	version provider.Version
	step    *Step
	err     error
}

// addSteps adds steps to the plan for the requested versions, the waiting versions and the
// versions to prune.
func (p *planner) addSteps(ctx context.Context, asked []provider.Version, waits map[provider.Version]time.Time) error {
	planned, err := p.latest(ctx, asked)
	if err != nil {
		return err
	}
	if len(asked) > 0 && len(waits) == 0 && !slices.ContainsFunc(planned, p.want.counts) {
		return p.noPlatform(ctx, asked[0])
	}
	var unasked []provider.Version
	for v := range p.state.versions {
		if !slices.ContainsFunc(planned, func(o plannedVersion) bool { return o.version == v }) {
			unasked = append(unasked, v)
		}
	}
	if !p.o.Prune || p.want.Keep {
		p.plan.Unasked = len(unasked)
		if p.want.Keep {
			p.plan.Kept = len(unasked)
		}
	} else {
		pruned, err := p.planEach(ctx, unasked, p.pruneStep)
		if err != nil {
			return err
		}
		planned = append(planned, pruned...)
	}
	for _, o := range planned {
		switch {
		case o.err != nil:
			p.plan.Failures = append(p.plan.Failures, Failure{Subject: p.want.Provider, Version: o.version, Err: o.err})
		case o.step != nil:
			p.plan.Steps = append(p.plan.Steps, *o.step)
		default:
			p.warn("%s %s: its source has no package for the platforms wanted", p.want.Provider, o.version)
		}
	}
	for v, until := range waits {
		p.plan.Steps = append(p.plan.Steps, Step{Step: pusher.Step{Provider: p.want.Provider, Version: v, Action: pusher.ActionWait, Size: -1, Until: until}, dest: p.state.dest})
	}
	return nil
}

// latest plans the versions, newest first, until the number of versions that count reaches [Want.Latest].
func (p *planner) latest(ctx context.Context, asked []provider.Version) ([]plannedVersion, error) {
	limit := p.want.Latest
	if limit == 0 {
		limit = len(asked)
	}
	var out []plannedVersion
	for found := 0; found < limit && len(asked) > 0; {
		n := min(limit-found, len(asked))
		part, err := p.planEach(ctx, asked[:n], p.stepFor)
		if err != nil {
			return nil, err
		}
		for _, o := range part {
			if p.want.counts(o) {
				found++
			}
		}
		asked, out = asked[n:], append(out, part...)
	}
	return out, nil
}

// planEach calls plan for each version, several concurrently. The results are in the order of
// the versions.
func (p *planner) planEach(ctx context.Context, vs []provider.Version, plan func(context.Context, provider.Version) (*Step, error)) ([]plannedVersion, error) {
	out := make([]plannedVersion, len(vs))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(planRequests)
	for i, v := range vs {
		g.Go(func() error {
			step, err := plan(gctx, v)
			out[i] = plannedVersion{v, step, err}
			p.o.OnPlanned(p.want.Provider, v)
			return gctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return nil, context.Cause(ctx)
	}
	return out, nil
}

// stepFor returns the step for a version that a provider block requests. It returns nil if
// the source has no package for the wanted platforms.
func (p *planner) stepFor(ctx context.Context, v provider.Version) (*Step, error) {
	step := &Step{Step: pusher.Step{Provider: p.want.Provider, Version: v, Action: pusher.ActionPush, Size: -1}, dest: p.state.dest}
	var now servedVersion
	if p.state.versions[v] {
		var err error
		if now, err = p.servedVersion(ctx, v); err != nil {
			return nil, err
		}
		step.Action, step.Size, step.Platforms, step.index = pusher.ActionKeep, sizeOf(now.served), now.served.Platforms(), now.found.Index
		if !slices.Contains(p.listing.Versions, v) {
			return step, now.refused
		}
		if len(p.want.Platforms) > 0 && len(without(p.want.Platforms, step.Platforms)) == 0 {
			return step, nil
		}
	}
	platforms, err := p.platforms(ctx, v)
	if err != nil {
		return nil, err
	}
	missing := without(platforms, step.Platforms)
	switch {
	case step.Action == pusher.ActionKeep && len(missing) == 0:
		return step, now.refused
	case step.Action == pusher.ActionKeep && now.hasAny(missing):
		if step.Action = pusher.ActionRepair; !p.repairable(v, now) {
			return nil, now.refused
		}
	case step.Action == pusher.ActionKeep:
		step.Action = pusher.ActionAdd
	case len(platforms) == 0:
		return nil, nil
	default:
		step.FirstSync = p.want.Cooldown > 0 && p.state.firstSync
	}
	step.Platforms = missing
	if step.release, err = p.want.Source.Release(ctx, p.want.Provider, p.listing, v, platforms); err != nil {
		return nil, err
	}
	step.Size = releaseSize(ctx, step.release, missing)
	return step, nil
}

// platforms returns the wanted platforms that the source offers for a version. If the source
// does not say which platforms it offers, platforms returns all wanted platforms.
func (p *planner) platforms(ctx context.Context, v provider.Version) ([]provider.Platform, error) {
	offered, err := p.want.Source.Platforms(ctx, p.want.Provider, p.listing, v)
	out := slices.Clone(offered)
	if len(p.want.Platforms) > 0 {
		out = slices.Clone(p.want.Platforms)
		if offered != nil {
			out = slices.DeleteFunc(out, func(q provider.Platform) bool { return !slices.Contains(offered, q) })
		}
	}
	provider.SortPlatforms(out)
	return slices.Compact(out), err
}

// without returns the platforms in list that are not in other.
func without(list, other []provider.Platform) []provider.Platform {
	return slices.DeleteFunc(slices.Clone(list), func(p provider.Platform) bool { return slices.Contains(other, p) })
}

// releaseSize returns the total size in bytes of a release's packages for some platforms, or
// -1 if the source does not know the size of a package.
func releaseSize(ctx context.Context, r *origin.Release, platforms []provider.Platform) int64 {
	var total int64
	for _, pkg := range r.Packages {
		if !slices.Contains(platforms, pkg.Platform) {
			continue
		}
		n := pkg.Size(ctx)
		if n < 0 {
			return -1
		}
		total += n
	}
	return total
}

// ErrNotServed means that a gateway refuses to serve a stored version.
var ErrNotServed = errors.New(`the gateway does not serve it, by verify = "required"`)

// servedVersion is a stored version (found), and the part of the version that a gateway
// serves (served).
type servedVersion struct {
	found, served *artifact.Version
	// refused is the reason why a gateway serves no part of the version, or nil if it serves
	// some part.
	refused error
}

// servedVersion reads a version, and finds out which part of the version a gateway serves.
func (p *planner) servedVersion(ctx context.Context, v provider.Version) (servedVersion, error) {
	found, err := p.read(ctx, v)
	if err != nil {
		return servedVersion{}, err
	}
	now, err := p.servedOf(ctx, p.state.dest, p.want.Provider, v, found)
	if err == nil && now.refused == nil {
		p.session.NoteStored(p.want.Provider, p.state.dest, v, found)
	}
	return now, err
}

// servedOf finds out which part of a version a gateway serves. It reads the evidence without
// the manifest cache, because a gateway that has just started has no cache either.
func (s *Syncer) servedOf(ctx context.Context, dest repo.Destination, a provider.Address, v provider.Version, found *artifact.Version) (servedVersion, error) {
	if s.o.Served == nil {
		return servedVersion{found: found, served: found}, nil
	}
	served, err := s.o.Served(ctx, dest.Store, a, v, found)
	switch {
	case err == nil:
		return servedVersion{found: found, served: served}, nil
	case errors.Is(err, ErrNotServed):
	case repo.IsUnusable(err):
		err = fmt.Errorf("%w: %w", ErrNotServed, err)
	default:
		return servedVersion{}, &repo.RegistryError{Op: "read evidence in", Repository: dest.Repository, Err: err}
	}
	refused := fmt.Errorf("%s:%s: %w", dest.Repository, repo.TagOf(v), err)
	if hint.Of(err) == "" {
		refused = hint.Wrap(refused, "ocibridge verify %s@%s says more", a, v)
	}
	return servedVersion{found, &artifact.Version{}, refused}, nil
}

// sizeOf returns the total size of a version's packages in bytes.
func sizeOf(v *artifact.Version) (out int64) {
	for _, p := range v.Packages {
		out += p.Size
	}
	return out
}

// hasAny reports whether the stored version has a package for any of the platforms, even if
// the gateway does not serve that package.
func (s servedVersion) hasAny(platforms []provider.Platform) bool {
	return s.found != nil && slices.ContainsFunc(platforms, func(p provider.Platform) bool { return repo.Find(s.found.Packages, p) != nil })
}

// repairable reports whether a push can make a gateway serve a version. A push cannot do
// that if the policy pins no key, or if the publisher signed the version under another name.
func (p *planner) repairable(v provider.Version, now servedVersion) bool {
	return now.refused == nil || p.o.Push.Policy(p.want.Provider).Pins() &&
		now.found.RecordedStanding(trust.Signed, p.want.Provider, v) == trust.Signed
}

// checkServed returns an error if a gateway does not serve the packages that a step has
// pushed.
func (s *Syncer) checkServed(ctx context.Context, step Step) error {
	if s.o.Served == nil {
		return nil
	}
	found, err := repo.ReadVersion(ctx, step.dest.Store, step.dest.Repository, step.Provider, step.Version)
	if err != nil {
		return err
	}
	now, err := s.servedOf(ctx, step.dest, step.Provider, step.Version, found)
	if err != nil || now.refused != nil {
		return errors.Join(err, now.refused)
	}
	for _, p := range step.Platforms {
		if repo.Find(now.served.Packages, p) == nil {
			return hint.Wrap(fmt.Errorf("%s:%s for %s: %w", step.dest.Repository, repo.TagOf(step.Version), p, ErrNotServed), "ocibridge verify %s@%s says more", step.Provider, step.Version)
		}
	}
	return nil
}
