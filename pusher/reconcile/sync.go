// Package reconcile makes repositories hold the versions that are wanted, and only these. A
// [Syncer] pushes missing versions, waits for a cooldown, repairs evidence, and prunes versions
// that nothing requests. A [Remover] removes versions, or platforms of versions, that a user
// names.
//
// Only ocibridge itself imports this package: it can change at any time.
//
// A Syncer and a Remover first make a plan, and then apply it. A plan changes nothing. A
// removal is the mirror image of a push: it removes the tag first, then the index, and then the
// manifests that no other tag names. An interrupted prune or removal leaves manifests without a
// tag, but never a tag without its manifests.
package reconcile

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// Want says which versions the repository of a provider or a module should have.
type Want struct {
	Subject subject.Address
	// Source is the origin of a provider's versions, and Modules the origin of a module's versions.
	Source  origin.Source
	Modules ModuleSource
	// Versions is the constraint that wanted versions meet. Zero: every release. Prereleases
	// is set if prereleases that meet the constraint are wanted even if the constraint does
	// not name them.
	Versions    provider.VersionSet
	Prereleases bool
	// Latest is the number of newest versions that are wanted. Of a provider, only versions with a
	// package for one of the wanted platforms count. 0: all versions.
	Latest int
	// Platforms lists the wanted platforms of a provider; the source need not have all of them.
	// Empty: all platforms.
	Platforms []provider.Platform
	// Cooldown is the minimum time between the first sync that sees a version and the sync
	// that pushes it. 0: a version is pushed immediately.
	Cooldown time.Duration
	// Closure is set if the modules that the selected versions of a module call are wanted, too, and those that these call.
	Closure bool
	// Keep is set if pull-through also writes the repository. Nothing is pruned in that
	// repository.
	Keep bool
}

// Options configures a [Syncer].
type Options struct {
	// Push holds the options for the pushes of a sync.
	Push pusher.Options
	// ManifestCache is a folder that caches manifests from one sync to the next, so that an
	// unchanged version costs one HEAD request. "": no cache.
	ManifestCache string
	// First allows a first sync with a cooldown in repositories that have versions already.
	// It has no effect on other repositories.
	First bool
	// Prune removes versions that no [Want] requests.
	Prune bool
	// Closure finds the modules that modules call. It is not needed if no [Want] has Closure set.
	Closure Closure
	// KeepModules prunes no versions of modules, because there are closures that the sync does not follow.
	KeepModules bool
	// PruneLimit is the maximum number of versions that a prune may remove. 0: at most
	// [DefaultPruneLimit] versions, and never the last version of a provider or a module.
	PruneLimit int
	// Served returns the part of a provider's stored version that a gateway serves. A sync repairs a
	// version that the gateway refuses. The error wraps [ErrNotServed] if the gateway refuses
	// the version. Any other error comes from the store. Nil: a gateway serves everything.
	Served func(ctx context.Context, store artifact.Fetcher, a provider.Address, v provider.Version, found *artifact.Version) (*artifact.Version, error)
	// OnPlanned is called when the plan of a version is ready. It is called with the zero
	// version when the plan of a provider or a module is ready. Several goroutines call it
	// concurrently. Nil: it is not called.
	OnPlanned func(subject.Address, provider.Version)
}

// DefaultPruneLimit is the maximum number of versions that a prune removes by default.
const DefaultPruneLimit = 10

// Syncer makes repositories hold the wanted versions. A caller calls [Syncer.Plan], and then
// [Syncer.Apply] with the plan.
type Syncer struct {
	o       Options
	pusher  *pusher.Pusher
	session *repo.Session
	cache   *manifestCache // nil: no cache
}

// NewSyncer returns a Syncer.
func NewSyncer(o Options) *Syncer {
	cache := openManifestCache(o.ManifestCache)
	if cache != nil {
		o.Push.Destination = fillCache(o.Push.Destination, cache)
	}
	o.Push = o.Push.WithDefaults()
	if o.OnPlanned == nil {
		o.OnPlanned = func(subject.Address, provider.Version) {}
	}
	p := pusher.New(o.Push)
	return &Syncer{o, p, p.Session(), cache}
}

// Step is the plan of a sync or a removal for one version.
type Step struct {
	pusher.Step

	dest  repo.Destination
	push  func(context.Context) (*pusher.Result, error) // nil if the step pushes nothing
	index ocispec.Descriptor                            // what the version's tag names; zero for a push
	tag   ociaddr.Tag                                   // of a stored version
}

// Failure is the failure to process a provider or a module, or one version of it.
type Failure struct {
	Subject subject.Address  // nil: all closures together, see [CalledModules.Err]
	Version provider.Version // zero: the whole provider or module
	Err     error
}

// Plan says what a sync will do. The providers and modules in Steps are in the order of the
// wants. The versions of each of them are sorted, newest first.
type Plan struct {
	Steps    []Step
	Warnings []string
	Failures []Failure
	// Unasked is the number of stored versions that no block requests and that the
	// sync does not prune.
	Unasked int
	// Kept is the number of versions in Unasked that no prune removes, because pull-through also
	// writes their repositories.
	Kept int

	states []*repositoryState
	closed bool // it has closures
}

// keptModules is the warning of a prune that keeps the versions of modules.
const keptModules = "no version of a module is pruned, because it is not known which modules other modules call"

// Count returns the number of steps with an action, and the total size of their packages in
// bytes. The total is -1 if the size of any step is unknown.
func (p *Plan) Count(a pusher.Action) (n int, bytes int64) {
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

// Plan compares origins and repositories, and changes nothing. A failure of one provider or
// module is recorded in the plan, and does not affect others.
func (s *Syncer) Plan(ctx context.Context, wants []Want) (*Plan, error) {
	planners := make([]*planner, len(wants))
	g, gctx := panics.WithContext(ctx)
	g.SetLimit(s.o.Push.Jobs)
	for i, w := range wants {
		planners[i] = s.newPlanner(w)
		g.Go(func() error {
			err := planners[i].run(gctx)
			s.o.OnPlanned(w.Subject, provider.Version{})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	closures := newClosures(s, planners)
	if err := closures.follow(ctx); err != nil {
		return nil, err
	}
	out := &Plan{closed: slices.ContainsFunc(wants, func(w Want) bool { return w.Closure })}
	for _, of := range closures.all() {
		p := of.plan
		out.Steps = append(out.Steps, p.Steps...)
		out.Warnings = append(out.Warnings, p.Warnings...)
		out.Failures = append(out.Failures, p.Failures...)
		out.states = append(out.states, p.states...)
		out.Unasked += p.Unasked
		out.Kept += p.Kept
	}
	if closures.failure != nil {
		out.Failures = append(out.Failures, Failure{Err: closures.failure})
	}
	if s.o.KeepModules || closures.incomplete {
		out.keepModules()
	}
	return out, nil
}

// keepModules leaves the versions of modules out of a prune.
func (p *Plan) keepModules() {
	steps := len(p.Steps)
	p.Steps = slices.DeleteFunc(p.Steps, func(s Step) bool {
		return s.Action == pusher.ActionPrune && s.Subject.Kind() == subject.Module
	})
	if kept := steps - len(p.Steps); kept > 0 {
		p.Unasked += kept
		p.Warnings = append(p.Warnings, keptModules)
	}
}

// Outcome says what a sync did.
type Outcome struct {
	Results []*pusher.Result // of pushes, in the order of the plan
	Pruned  []Step
	// Freeable is the total size in bytes of the pruned packages that no tag of their
	// repository names any more. The registry's garbage collection frees them, unless another
	// repository has them.
	Freeable int64
	Warnings []string
	Failures []Failure
}

func (o *Outcome) warn(format string, args ...any) {
	o.Warnings = append(o.Warnings, fmt.Sprintf(format, args...))
}

// Apply carries out a plan. First it notes which versions it has seen, and which indexes it
// will replace. Then it pushes, and removes announcements that no push needs. Then it
// summarizes the versions that it has found or stored, and prunes the repositories of providers and modules
// without failures. It calls done for each push that succeeds.
// Several goroutines call done concurrently.
func (s *Syncer) Apply(ctx context.Context, plan *Plan, done func(*pusher.Result)) (*Outcome, error) {
	out := &Outcome{Failures: slices.Clone(plan.Failures)}
	for _, state := range plan.states {
		if err := s.record(ctx, state, plan.replacements(state.subject), out); err != nil {
			out.Failures = append(out.Failures, Failure{Subject: state.subject, Err: err})
		}
	}
	if err := s.push(ctx, plan, out, done); err != nil {
		return out, err
	}
	plan.markKept(out)
	for _, state := range plan.states {
		if err := s.cleanUp(ctx, state, out); err != nil {
			return out, err
		}
	}
	warning := repo.FetchedWarning
	if slices.ContainsFunc(plan.states, func(s *repositoryState) bool { return s.subject.Kind().Traits().Packages }) {
		warning = repo.SummaryWarning
	}
	if text := warning(s.session.Summarize(ctx)); text != "" {
		out.warn("%s", text)
	}
	return out, s.prune(ctx, plan, out)
}

// markKept marks the versions that are in place, see [repo.Destination].
func (p *Plan) markKept(out *Outcome) {
	for _, step := range p.Steps {
		i := slices.IndexFunc(p.states, func(s *repositoryState) bool { return s.subject == step.Subject })
		if step.Action != pusher.ActionKeep || step.push != nil || i < 0 {
			continue
		}
		if err := p.states[i].dest.MarkTag(step.tag, step.index.Digest, step.index.Digest); err != nil {
			out.Failures = append(out.Failures, Failure{Subject: step.Subject, Version: step.Version, Err: err})
		}
	}
}

// push pushes the versions of a plan, several concurrently. It skips providers and modules that
// failed as a whole.
func (s *Syncer) push(ctx context.Context, plan *Plan, out *Outcome, done func(*pusher.Result)) error {
	results := make([]*pusher.Result, len(plan.Steps))
	failures := make([]error, len(plan.Steps))
	failed := func(a subject.Address) bool {
		return slices.ContainsFunc(out.Failures, func(f Failure) bool { return f.Subject == a && f.Version.IsZero() })
	}
	g, gctx := panics.WithContext(ctx)
	g.SetLimit(s.o.Push.Jobs)
	for i, step := range plan.Steps {
		if step.push == nil || failed(step.Subject) {
			continue
		}
		g.Go(func() error {
			results[i], failures[i] = step.push(gctx)
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
			out.Failures = append(out.Failures, Failure{Subject: step.Subject, Version: step.Version, Err: failures[i]})
		}
		if results[i] != nil {
			out.Results = append(out.Results, results[i])
		}
	}
	return err
}

// repositoryState holds the tags of the repository of a provider or a module, and what the plan has
// found out about the repository. The tags are listed once.
type repositoryState struct {
	subject  subject.Address
	dest     repo.Destination
	versions map[provider.Version]ociaddr.Tag // the tag of each stored version
	tags     []ociaddr.Tag                    // all tags
	keep     bool                             // see [Want.Keep]
	cooldown bool                             // a cooldown applies

	unseen    []provider.Version // versions of the source that no sync has seen before
	firstSync bool               // no sync with a cooldown has run before

	cacheMissed atomic.Bool // see [cachedStore.missed]
}

func (s *Syncer) repositoryState(ctx context.Context, a subject.Address) (*repositoryState, error) {
	dest, err := s.o.Push.Destination(ctx, a)
	if err != nil {
		return nil, err
	}
	state := &repositoryState{subject: a, dest: dest}
	if state.tags, err = artifact.ListAnyTags(repo.MayPush(ctx, dest.Repository), dest.Store); err != nil {
		return nil, &repo.RegistryError{Op: "list tags of", Repository: dest.Repository, Err: err}
	}
	state.versions = ociaddr.TagsOf(a, state.tags)
	return state, nil
}

// cached returns the repository's store with the cache of manifests. The returned store
// always resolves a tag by HEAD.
func (s *Syncer) cached(state *repositoryState) cachedStore {
	return cachedStore{Store: state.dest.Store, cache: s.cache}
}

// read reads a stored version.
func (p *planner) read(ctx context.Context, v provider.Version) (*artifact.Version, error) {
	store := cachedStore{p.state.dest.Store, p.cache, &p.state.cacheMissed}
	return repo.ReadVersion(ctx, store, p.state.dest.Repository, p.want.Subject, v, p.state.versions[v])
}

func (p *planner) warn(format string, args ...any) {
	p.plan.Warnings = append(p.plan.Warnings, fmt.Sprintf(format, args...))
}
