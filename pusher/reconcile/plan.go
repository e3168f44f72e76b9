package reconcile

import (
	"context"
	"slices"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// planRequests is the maximum number of versions of one provider or module that are planned
// concurrently.
const planRequests = 4

// planner plans the sync of one provider or module.
type planner struct {
	*Syncer
	want    Want
	kind    kindPlanner
	state   *repositoryState
	offered []provider.Version // the versions that the source lists
	waiting map[provider.Version]time.Time
	planned []plannedVersion // of the versions that the block requests
	plan    *Plan
	failure error // the plan failed as a whole
}

// kindPlanner is what differs between the plans of providers and of modules.
type kindPlanner interface {
	// list lists the versions of the source. It also returns warnings about the list.
	list(context.Context) (versions []provider.Version, warnings []string, err error)
	// step returns the step for a version that a block requests. It returns nil if the source has
	// no package for the wanted platforms.
	step(context.Context, provider.Version) (*Step, error)
	// noPlatform returns the error for a want if none of its versions counts, see [Want.Latest].
	noPlatform(ctx context.Context, newest provider.Version) error
}

func (s *Syncer) newPlanner(w Want) *planner {
	p := &planner{Syncer: s, want: w, plan: &Plan{}}
	switch a := w.Subject.(type) {
	case provider.Address:
		p.kind = &providerPlanner{planner: p, provider: a}
	case module.Address:
		p.kind = &modulePlanner{planner: p, module: a}
	}
	return p
}

// run plans the sync of one provider or module. If it fails, the plan contains only warnings and the failure.
func (p *planner) run(ctx context.Context) error {
	if p.failure = p.planOne(ctx); p.failure == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p.plan = &Plan{Failures: []Failure{{Subject: p.want.Subject, Err: p.failure}}, Warnings: p.plan.Warnings}
	return nil
}

func (p *planner) planOne(ctx context.Context) error {
	pool, err := p.open(ctx)
	if err != nil {
		return err
	}
	asked, err := p.want.selected(pool)
	if err != nil {
		return err
	}
	waits := map[provider.Version]time.Time{}
	asked = slices.DeleteFunc(asked, func(v provider.Version) bool {
		until, waiting := p.waiting[v]
		if waiting {
			waits[v] = until
		}
		return waiting
	})
	if err := p.addSteps(ctx, asked, waits); err != nil {
		return err
	}
	p.state.keep = p.want.Keep
	p.plan.states = []*repositoryState{p.state}
	p.sort()
	return nil
}

func (p *planner) sort() {
	slices.SortStableFunc(p.plan.Steps, func(a, b Step) int { return b.Version.Compare(a.Version) })
}

// open reads the tags of the repository and the list of the source, and finds out which versions wait. It returns all
// versions. Stored versions are among them: if the source lists fewer versions than before, the sync therefore does not prune
// the missing ones.
func (p *planner) open(ctx context.Context) (pool []provider.Version, err error) {
	if p.state, err = p.repositoryState(ctx, p.want.Subject); err != nil {
		return nil, err
	}
	offered, warnings, err := p.kind.list(ctx)
	if err != nil {
		return nil, err
	}
	for _, text := range warnings {
		p.warn("%s: %s", p.want.Subject, text)
	}
	p.offered = offered
	pool = slices.Clone(p.offered)
	for v := range p.state.versions {
		if !slices.Contains(pool, v) {
			pool = append(pool, v)
		}
	}
	p.waiting, err = p.waits(ctx, pool)
	return pool, err
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
	p.planned = planned
	if len(asked) > 0 && len(waits) == 0 && !slices.ContainsFunc(planned, p.want.counts) {
		if err := p.kind.noPlatform(ctx, asked[0]); err != nil {
			return err
		}
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
		planned = slices.Concat(planned, pruned)
	}
	p.add(planned)
	for v, until := range waits {
		p.plan.Steps = append(p.plan.Steps, Step{Step: pusher.Step{Subject: p.want.Subject, Version: v, Action: pusher.ActionWait, Size: -1, Until: until}, dest: p.state.dest})
	}
	return nil
}

// add adds the steps and the failures of versions to the plan.
func (p *planner) add(planned []plannedVersion) {
	for _, o := range planned {
		switch {
		case o.err != nil:
			p.plan.Failures = append(p.plan.Failures, Failure{Subject: p.want.Subject, Version: o.version, Err: o.err})
		case o.step != nil:
			p.plan.Steps = append(p.plan.Steps, *o.step)
		default:
			p.warn("%s %s: its source has no package for the platforms wanted", p.want.Subject, o.version)
		}
	}
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
		part, err := p.planEach(ctx, asked[:n], p.kind.step)
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
	g, gctx := panics.WithContext(ctx)
	g.SetLimit(planRequests)
	for i, v := range vs {
		g.Go(func() error {
			step, err := plan(gctx, v)
			out[i] = plannedVersion{v, step, err}
			p.o.OnPlanned(p.want.Subject, v)
			return gctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return nil, context.Cause(ctx)
	}
	return out, nil
}

// stored returns the step that keeps a stored version.
func (p *planner) stored(v provider.Version, found *artifact.Version) *Step {
	return &Step{
		Step: pusher.Step{Subject: p.want.Subject, Version: v, Action: pusher.ActionKeep, Platforms: found.Platforms(), Size: sizeOf(found)},
		dest: p.state.dest, index: found.Index, tag: p.state.versions[v],
	}
}

// sizeOf returns the total size of a version's packages in bytes.
func sizeOf(v *artifact.Version) (out int64) {
	for _, p := range v.Packages {
		out += p.Size
	}
	return out
}
