package pusher

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
)

// Want is what of a provider should be in its repository.
type Want struct {
	Provider provider.Address
	// Source is where its versions come from.
	Source origin.Source
	// Versions are those wanted; zero: every release. With Prereleases, those
	// within the constraint count as well that it does not name.
	Versions    provider.VersionSet
	Prereleases bool
	// Latest of them, the newest, are wanted; 0: all.
	Latest int
	// Platforms are wanted where the source has them; none: all.
	Platforms []provider.Platform
	// Cooldown is how long a version must have been known before it is pushed.
	Cooldown time.Duration
	// Keep says that others look after the provider's repository, too, so that
	// nothing is pruned in it.
	Keep bool
}

// SyncStore is what a sync needs of a repository beside what a push does.
type SyncStore interface {
	Store
	// Resolve returns the descriptor of the manifest that a tag names, by HEAD.
	Resolve(ctx context.Context, reference string) (ocispec.Descriptor, error)
	// Untag removes a tag and leaves what it names.
	Untag(ctx context.Context, tag string) error
	// Delete removes a manifest.
	Delete(ctx context.Context, target ocispec.Descriptor) error
}

// Manifests keeps manifests by digest from one sync to the next, so that a
// version in place costs one HEAD. What it returns is checked.
type Manifests interface {
	Get(desc ocispec.Descriptor) (io.ReadCloser, bool)
	Put(desc ocispec.Descriptor, data []byte)
}

// SyncOptions configure a [Syncer].
type SyncOptions struct {
	// Push are the options of its pushes. Stores of destinations must be
	// [SyncStore] as well.
	Push Options
	// Manifests may be nil.
	Manifests Manifests
	// Prune removes versions that no [Want] asks for.
	Prune bool
	// PruneLimit is how many versions may be removed at most; 0 is
	// [DefaultPruneLimit], and no provider's last one.
	PruneLimit int
	// Now is the time; nil is [time.Now].
	Now func() time.Time
}

// DefaultPruneLimit is how many versions a sync removes at most unless it is told
// otherwise.
const DefaultPruneLimit = 10

// Syncer brings repositories to what is wanted: first [Syncer.Plan], then
// [Syncer.Apply].
type Syncer struct {
	o      SyncOptions
	pusher *Pusher
}

// NewSyncer returns a Syncer.
func NewSyncer(o SyncOptions) *Syncer {
	if o.Now == nil {
		o.Now = time.Now
	}
	p := New(o.Push)
	o.Push = p.o // with defaults
	return &Syncer{o, p}
}

// Action is what a sync does about a version.
type Action string

// The actions of a plan.
const (
	ActionPush  Action = "push"  // it is not there
	ActionAdd   Action = "add"   // platforms of it are not there
	ActionKeep  Action = "keep"  // it is in place
	ActionWait  Action = "wait"  // it is too young
	ActionPrune Action = "prune" // nothing asks for it
)

// Step is what is to be done about one version.
type Step struct {
	Provider provider.Address `json:"provider"`
	Version  provider.Version `json:"version"`
	Action   Action           `json:"action"`
	// Platforms are those to push, to add or to prune, or that are in place.
	Platforms []provider.Platform `json:"platforms,omitempty"`
	// Size is that of their packages in bytes, -1 if it is not known.
	Size int64 `json:"size"`
	// Until is when the wait ends.
	Until time.Time `json:"until,omitzero"`
	// FirstSync is set where a version would have to wait, but was there when the
	// provider was first synced.
	FirstSync bool `json:"first_sync,omitempty"`

	dest    Destination
	release *origin.Release    // of a push or addition
	index   ocispec.Descriptor // of what is to be pruned
}

// Failure is a provider, or one version of it, that a sync could not look after.
type Failure struct {
	Provider provider.Address
	Version  provider.Version // zero: all of it
	Err      error
}

// Plan is what a sync will do. Steps are sorted by provider and version, newest
// first.
type Plan struct {
	Steps    []Step
	Warnings []string
	Failures []Failure
	// Unasked is how many versions no block asks for, where they are not pruned.
	Unasked int

	states []*repositoryState
}

// Count returns how many steps of an action there are, and the bytes of their
// packages: -1 if those of one are not known.
func (p *Plan) Count(a Action) (n int, bytes int64) {
	for _, s := range p.Steps {
		if s.Action != a {
			continue
		}
		n++
		if bytes >= 0 && s.Size >= 0 {
			bytes += s.Size
		} else {
			bytes = -1
		}
	}
	return n, bytes
}

// Plan looks at origins and repositories, and changes nothing. What is wrong with
// one provider is in the plan's failures, and keeps nobody from the others.
func (s *Syncer) Plan(ctx context.Context, wants []Want) (*Plan, error) {
	parts := make([]*Plan, len(wants))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(s.o.Push.Jobs)
	for i, w := range wants {
		g.Go(func() error {
			var err error
			if parts[i], err = s.planProvider(gctx, w); err != nil {
				if gctx.Err() != nil {
					return context.Cause(gctx)
				}
				parts[i] = &Plan{Failures: []Failure{{Provider: w.Provider, Err: err}}}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	out := &Plan{}
	for _, p := range parts {
		out.Steps = append(out.Steps, p.Steps...)
		out.Warnings = append(out.Warnings, p.Warnings...)
		out.Failures = append(out.Failures, p.Failures...)
		out.states = append(out.states, p.states...)
		out.Unasked += p.Unasked
	}
	return out, nil
}

// planner plans one provider.
type planner struct {
	*Syncer
	want    Want
	state   *repositoryState
	listing *origin.Listing
	plan    *Plan
}

func (s *Syncer) planProvider(ctx context.Context, w Want) (*Plan, error) {
	p := &planner{Syncer: s, want: w, plan: &Plan{}}
	var err error
	if p.state, err = s.repositoryState(ctx, w.Provider); err != nil {
		return nil, err
	}
	if p.listing, err = w.Source.Versions(ctx, w.Provider); err != nil {
		return nil, err
	}
	for _, text := range p.listing.Warnings {
		p.warn("%s: %s", w.Provider, text)
	}
	// What the repository has counts as well as what the source offers today: a
	// source that lists less than before takes nothing from anybody.
	pool := slices.Clone(p.listing.Versions)
	for v := range p.state.versions {
		if !slices.Contains(pool, v) {
			pool = append(pool, v)
		}
	}
	asked := w.matching(pool)
	waits, err := p.waits(ctx, asked)
	if err != nil {
		return nil, err
	}
	asked = slices.DeleteFunc(asked, func(v provider.Version) bool { _, waiting := waits[v]; return waiting })
	if n := w.Latest; n > 0 && len(asked) > n {
		asked = asked[:n]
	}
	if err := p.steps(ctx, asked, waits); err != nil {
		return nil, err
	}
	p.plan.states = []*repositoryState{p.state}
	slices.SortStableFunc(p.plan.Steps, func(a, b Step) int { return b.Version.Compare(a.Version) })
	return p.plan, nil
}

// matching returns those of vs that the constraint asks for, newest first.
func (w *Want) matching(vs []provider.Version) []provider.Version {
	var out []provider.Version
	for _, v := range vs {
		meets := w.Versions.Has(v) || w.Prereleases && w.Versions.HasPrerelease(v)
		if w.Versions.IsZero() {
			meets = w.Prereleases || !v.IsPrerelease()
		}
		if meets {
			out = append(out, v)
		}
	}
	provider.SortVersions(out)
	slices.Reverse(out)
	return out
}

// steps fills the plan: one step a version.
func (p *planner) steps(ctx context.Context, asked []provider.Version, waits map[provider.Version]time.Time) error {
	type outcome struct {
		step *Step
		err  error
	}
	var todo []func(context.Context) (*Step, error)
	var of []provider.Version
	for _, v := range asked {
		todo, of = append(todo, func(ctx context.Context) (*Step, error) { return p.stepFor(ctx, v) }), append(of, v)
	}
	unasked := 0
	for v := range p.state.versions {
		if slices.Contains(asked, v) {
			continue
		}
		if unasked++; p.o.Prune && !p.want.Keep {
			todo, of = append(todo, func(ctx context.Context) (*Step, error) { return p.pruneStep(ctx, v) }), append(of, v)
		}
	}
	if !p.o.Prune || p.want.Keep {
		p.plan.Unasked = unasked
	}
	outcomes := make([]outcome, len(todo))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(planRequests)
	for i, f := range todo {
		g.Go(func() error {
			outcomes[i].step, outcomes[i].err = f(gctx)
			return gctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return context.Cause(ctx)
	}
	for i, o := range outcomes {
		switch {
		case o.err != nil:
			p.plan.Failures = append(p.plan.Failures, Failure{p.want.Provider, of[i], o.err})
		case o.step != nil:
			p.plan.Steps = append(p.plan.Steps, *o.step)
		default:
			p.warn("%s %s: its source has no package for the platforms wanted", p.want.Provider, of[i])
		}
	}
	for v, until := range waits {
		p.plan.Steps = append(p.plan.Steps, Step{Provider: p.want.Provider, Version: v, Action: ActionWait, Size: -1, Until: until, dest: p.state.dest})
	}
	return nil
}

// planRequests is how many versions of one provider are looked at at once.
const planRequests = 4

// stepFor returns the step for a version that is asked for; nil if its source has
// no package for the platforms wanted.
func (p *planner) stepFor(ctx context.Context, v provider.Version) (*Step, error) {
	step := &Step{Provider: p.want.Provider, Version: v, Action: ActionPush, Size: -1, dest: p.state.dest}
	var there []provider.Platform
	if p.state.versions[v] {
		found, err := p.read(ctx, p.state.dest, v)
		if err != nil {
			return nil, err
		}
		step.Action, step.Size = ActionKeep, 0
		for _, pkg := range found.Packages {
			there = append(there, pkg.Platform)
			step.Size += pkg.Size
		}
		step.Platforms = there
		if !slices.Contains(p.listing.Versions, v) {
			return step, nil
		}
		if len(p.want.Platforms) > 0 && containsAll(there, p.want.Platforms) {
			return step, nil
		}
	}
	platforms, err := p.platforms(ctx, v)
	if err != nil {
		return nil, err
	}
	missing := slices.DeleteFunc(slices.Clone(platforms), func(q provider.Platform) bool { return slices.Contains(there, q) })
	switch {
	case step.Action == ActionKeep && len(missing) == 0:
		return step, nil
	case step.Action == ActionKeep:
		step.Action = ActionAdd
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

// platforms returns those of a version that are wanted and offered. Where the
// source does not say what it offers, it is those wanted.
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

func containsAll[T comparable](have, want []T) bool {
	return !slices.ContainsFunc(want, func(w T) bool { return !slices.Contains(have, w) })
}

// releaseSize asks the source for the size of packages; -1 if it does not say.
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

// Outcome is what a sync did.
type Outcome struct {
	Results  []*Result // of pushes, in the order of the plan
	Pruned   []Step
	Warnings []string
	Failures []Failure
}

// Apply does what a plan says: first it notes which versions it saw, then it
// pushes, and then it prunes, where nothing about the provider failed.
func (s *Syncer) Apply(ctx context.Context, plan *Plan, done func(*Result)) (*Outcome, error) {
	out := &Outcome{Failures: slices.Clone(plan.Failures)}
	for _, state := range plan.states {
		if err := s.recordSeen(ctx, state); err != nil {
			out.Failures = append(out.Failures, Failure{Provider: state.provider, Err: err})
		}
	}
	if err := s.push(ctx, plan, out, done); err != nil {
		return out, err
	}
	return out, s.prune(ctx, plan, out)
}

// push pushes what the plan says, several versions at once.
func (s *Syncer) push(ctx context.Context, plan *Plan, out *Outcome, done func(*Result)) error {
	results := make([]*Result, len(plan.Steps))
	failures := make([]error, len(plan.Steps))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(s.o.Push.Jobs)
	for i, step := range plan.Steps {
		if step.release == nil || failed(out.Failures, step.Provider) {
			continue
		}
		g.Go(func() error {
			results[i], failures[i] = s.pusher.Push(gctx, step.release)
			if failures[i] == nil {
				done(results[i])
			}
			return context.Cause(gctx)
		})
	}
	err := g.Wait()
	for i, step := range plan.Steps {
		if failures[i] != nil && ctx.Err() == nil {
			out.Failures = append(out.Failures, Failure{step.Provider, step.Version, failures[i]})
		}
		if results[i] != nil {
			out.Results = append(out.Results, results[i])
		}
	}
	return err
}

// failed reports whether nothing is known of a provider's repository or source.
func failed(failures []Failure, a provider.Address) bool {
	return slices.ContainsFunc(failures, func(f Failure) bool { return f.Provider == a && f.Version.IsZero() })
}

// Err returns all failures as one error, nil for none.
func (o *Outcome) Err() error {
	var all []error
	for _, f := range o.Failures {
		all = append(all, f.Err)
	}
	return errors.Join(all...)
}
