package reconcile

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// Closure finds the modules that modules call. It is the origin of those that no [Want] names.
type Closure interface {
	ModuleSource
	// Follow returns the versions that the starts call, that these call, and so on. It calls offers concurrently. An error
	// ends the whole plan.
	Follow(ctx context.Context, starts []OfferedModule, offers Offers) (*CalledModules, error)
}

// Offers returns the versions of a module that clients can be offered after the sync. If the origin fails, or if it has no
// such module, Offers returns its error and the stored versions.
type Offers func(context.Context, module.Address) ([]OfferedModule, error)

// OfferedModule is a version that is stored, or that the sync can store.
type OfferedModule struct {
	ModuleVersion
	Stored bool
}

// CalledModules are the versions in closures.
type CalledModules struct {
	Versions []ModuleRelease
	// Failures are the modules and versions of which it is not known what they call.
	Failures []Failure
	// Err is set if it is not known what the starts call, and there is no single reason. Versions is empty then.
	Err error
}

// ModuleRelease names a version of a module.
type ModuleRelease struct {
	Module  module.Address
	Version provider.Version
}

// closures plans the modules that other modules call.
type closures struct {
	*Syncer
	wanted   []*planner    // of the wants
	cooldown time.Duration // of modules that no want names: the longest of the wants with closures

	mu       sync.Mutex
	planners map[module.Address]*modulePlanner // those of the wants, and of the modules that were listed since

	incomplete bool  // it is not known which modules are called
	failure    error // see [CalledModules.Err]
}

func newClosures(s *Syncer, wanted []*planner) *closures {
	c := &closures{Syncer: s, wanted: wanted, planners: map[module.Address]*modulePlanner{}}
	for _, p := range wanted {
		if of, ok := p.kind.(*modulePlanner); ok {
			c.planners[of.module] = of
		}
		if p.want.Closure {
			c.cooldown = max(c.cooldown, p.want.Cooldown)
		}
	}
	return c
}

// follow adds the modules that other modules call to the plans.
func (c *closures) follow(ctx context.Context) error {
	// 1. Begin with the versions that the wants select.
	var starts []OfferedModule
	for _, p := range c.wanted {
		if p.want.Closure {
			of := c.planners[p.want.Subject.(module.Address)]
			c.incomplete = c.incomplete || p.failure != nil || of.lacks()
			starts = append(starts, of.selected()...)
		}
	}
	if len(starts) == 0 {
		return nil
	}
	// 2. Find the versions that clients select for each call.
	called, err := c.o.Closure.Follow(ctx, starts, c.offers)
	if err != nil {
		return err
	}
	// 3. Plan them.
	versions := map[*modulePlanner][]provider.Version{}
	for _, r := range called.Versions {
		if p := c.planners[r.Module]; !slices.ContainsFunc(p.planned, func(o plannedVersion) bool { return o.version == r.Version }) {
			versions[p] = append(versions[p], r.Version)
		}
	}
	for p, vs := range versions {
		planned, err := p.planEach(ctx, vs, p.step)
		if err != nil {
			return err
		}
		p.addCalled(planned)
	}
	c.failure, c.incomplete = called.Err, c.incomplete || called.Err != nil
	for _, f := range called.Failures {
		c.incomplete = true
		c.planners[f.Subject.(module.Address)].fail(f)
	}
	return nil
}

// offers implements [Offers].
func (c *closures) offers(ctx context.Context, a module.Address) ([]OfferedModule, error) {
	c.mu.Lock()
	p, known := c.planners[a]
	if !known {
		p = c.newPlanner(Want{Subject: a, Modules: c.o.Closure, Cooldown: c.cooldown, Keep: true}).kind.(*modulePlanner)
		c.planners[a] = p
	}
	c.mu.Unlock()
	if !known {
		if _, p.failure = p.open(ctx); p.failure == nil {
			p.state.keep = true
			p.plan.states = []*repositoryState{p.state}
		}
	}
	return p.offers(), p.failure
}

// selected returns the versions that the want selects, apart from those that cannot be stored.
func (p *modulePlanner) selected() (out []OfferedModule) {
	for _, o := range p.planned {
		if p.failure == nil && p.brings(o) {
			out = append(out, p.offer(o.version))
		}
	}
	return out
}

// brings reports whether clients get a selected version after the sync.
func (p *modulePlanner) brings(o plannedVersion) bool {
	return o.err == nil || p.state.versions[o.version] != ""
}

// lacks reports whether a selected version cannot be stored. Clients then get another stored version, which is not pruned, and
// whose calls are not followed.
func (p *modulePlanner) lacks() bool {
	return slices.ContainsFunc(p.planned, func(o plannedVersion) bool { return !p.brings(o) })
}

// offers returns the stored versions, and the versions of the origin that do not wait.
func (p *modulePlanner) offers() (out []OfferedModule) {
	if p.state == nil {
		return nil
	}
	for v := range p.state.versions {
		out = append(out, p.offer(v))
	}
	for _, v := range p.offered {
		if _, waits := p.waiting[v]; !waits && p.failure == nil && p.state.versions[v] == "" {
			out = append(out, p.offer(v))
		}
	}
	return out
}

func (p *modulePlanner) offer(v provider.Version) OfferedModule {
	return OfferedModule{p.at(v), p.state.versions[v] != ""}
}

// addCalled adds versions that other modules call to the plan, which does not prune them.
func (p *planner) addCalled(planned []plannedVersion) {
	for _, o := range planned {
		if p.state.versions[o.version] != "" {
			p.plan.Unasked, p.plan.Kept = max(0, p.plan.Unasked-1), max(0, p.plan.Kept-1)
		}
		p.plan.Steps = slices.DeleteFunc(p.plan.Steps, func(s Step) bool { return s.Version == o.version })
	}
	p.add(planned)
	p.sort()
}

// fail adds a failure to the plan, unless the plan failed as a whole, or for the same version. A version that could not be read is
// not pushed.
func (p *planner) fail(f Failure) {
	if slices.ContainsFunc(p.plan.Failures, func(of Failure) bool { return of.Version.IsZero() || of.Version == f.Version }) {
		return
	}
	p.plan.Failures = append(p.plan.Failures, f)
	p.plan.Steps = slices.DeleteFunc(p.plan.Steps, func(s Step) bool { return s.Version == f.Version && s.Action == pusher.ActionPush })
}

// all returns the planners of the wants, and then those of the modules that no want names, sorted by address.
func (c *closures) all() []*planner {
	var more []*planner
	for _, p := range c.planners {
		if !slices.Contains(c.wanted, p.planner) {
			more = append(more, p.planner)
		}
	}
	slices.SortFunc(more, func(a, b *planner) int { return strings.Compare(a.want.Subject.Path(), b.want.Subject.Path()) })
	return slices.Concat(c.wanted, more)
}
