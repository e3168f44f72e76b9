package pusher

import (
	"context"
	"errors"
	"slices"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/ocibridge/ocibridge/artifact"
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
	// Latest of them, the newest that have a package for the platforms wanted, are
	// wanted; 0: all.
	Latest int
	// Platforms are wanted where the source has them; none: all.
	Platforms []provider.Platform
	// Cooldown is how long a version must have been known before it is pushed.
	Cooldown time.Duration
	// Keep says that others look after the provider's repository, too, so that
	// nothing is pruned in it.
	Keep bool
}

// SyncOptions configure a [Syncer].
type SyncOptions struct {
	// Push are the options of its pushes. Push.Now is ignored.
	Push Options
	// ManifestCache is a folder that caches manifests from one sync to the next, so that a
	// version in place costs one HEAD; "": no cache.
	ManifestCache string
	// First allows a first sync with a cooldown in repositories that have versions
	// already. It changes nothing elsewhere.
	First bool
	// Prune removes versions that no [Want] asks for.
	Prune bool
	// PruneLimit is how many versions may be removed at most; 0 is
	// [DefaultPruneLimit], and no provider's last one.
	PruneLimit int
	// Served returns what a gateway serves of a stored version, so that nothing counts
	// as in place that it refuses. Errors wrap [ErrNotServed] where the gateway refuses
	// the version, and are the store's otherwise. Nil: a gateway serves all.
	Served func(ctx context.Context, store artifact.Fetcher, a provider.Address, v provider.Version, found *artifact.Version) (*artifact.Version, error)
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
	cache  *manifestCache // nil for none
}

// NewSyncer returns a Syncer.
func NewSyncer(o SyncOptions) *Syncer {
	if o.Now == nil {
		o.Now = time.Now
	}
	cache := openManifestCache(o.ManifestCache)
	if cache != nil {
		o.Push.Destination = fillCache(o.Push.Destination, cache)
	}
	o.Push.Now = o.Now
	p := New(o.Push)
	o.Push = p.o // with defaults
	return &Syncer{o, p, cache}
}

// Action is what a sync does about a version.
type Action string

// The actions of a plan.
const (
	ActionPush   Action = "push"   // it is not there
	ActionAdd    Action = "add"    // platforms of it are not there
	ActionRepair Action = "repair" // it is there, and its evidence is missing or refused
	ActionKeep   Action = "keep"   // it is in place
	ActionWait   Action = "wait"   // it is too young
	ActionPrune  Action = "prune"  // nothing asks for it
)

// Step is what is to be done about one version.
type Step struct {
	Provider provider.Address `json:"provider"`
	Version  provider.Version `json:"version"`
	Action   Action           `json:"action"`
	// Platforms are those to push, to add, to repair or to prune, or that are in place.
	Platforms []provider.Platform `json:"platforms,omitempty"`
	// Size is that of their packages in bytes, -1 if it is not known.
	Size int64 `json:"size"`
	// Until is when the wait ends.
	Until time.Time `json:"until,omitzero"`
	// FirstSync is set where a version would have to wait, but was there when the
	// provider was first synced.
	FirstSync bool `json:"first_sync,omitempty"`

	dest    Destination
	release *origin.Release    // of a push, addition or repair
	index   ocispec.Descriptor // that the version's tag names; none of a push
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

// Outcome is what a sync did.
type Outcome struct {
	Results  []*Result // of pushes, in the order of the plan
	Pruned   []Step
	Warnings []string
	Failures []Failure
}

// Apply does what a plan says: first it notes which versions it saw and which indexes
// it will replace, then it pushes, then it removes announcements that nobody needs,
// and then it prunes, where nothing about the provider failed.
func (s *Syncer) Apply(ctx context.Context, plan *Plan, done func(*Result)) (*Outcome, error) {
	out := &Outcome{Failures: slices.Clone(plan.Failures)}
	for _, state := range plan.states {
		if err := s.record(ctx, state, plan.replacements(state.provider), out); err != nil {
			out.Failures = append(out.Failures, Failure{Provider: state.provider, Err: err})
		}
	}
	if err := s.push(ctx, plan, out, done); err != nil {
		return out, err
	}
	for _, state := range plan.states {
		if err := s.cleanUp(ctx, state, out); err != nil {
			return out, err
		}
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
			results[i], failures[i] = s.pusher.push(gctx, step.release, step.Action == ActionRepair)
			if failures[i] == nil {
				done(results[i])
				failures[i] = s.checkServed(gctx, step)
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
