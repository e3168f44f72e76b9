package pusher

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// ErrPruneLimit: more would be pruned than is allowed without being asked for.
var ErrPruneLimit = errors.New("too much to prune")

// pruneStep returns the step for a version that nothing asks for.
func (p *planner) pruneStep(ctx context.Context, v provider.Version) (*Step, error) {
	found, err := p.read(ctx, p.state.dest, v)
	if err != nil {
		return nil, err // what is there is not ours to judge
	}
	step := &Step{Provider: p.want.Provider, Version: v, Action: ActionPrune, dest: p.state.dest, index: found.Index}
	for _, pkg := range found.Packages {
		step.Platforms = append(step.Platforms, pkg.Platform)
		step.Size += pkg.Size
	}
	return step, nil
}

// checkPrune refuses to prune more than the limit, or the last version of a
// provider unless a limit is given.
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
			return q.Provider == state.provider && q.Action != ActionPrune && q.Action != ActionWait
		})
		if !left && slices.ContainsFunc(steps, func(q Step) bool { return q.Provider == state.provider }) {
			return hint.Wrap(fmt.Errorf("%w: no version of %s would be left; nothing was pruned", ErrPruneLimit, state.provider),
				"look at its provider block; if it is what you want, --prune-limit %d allows it", len(steps))
		}
	}
	return nil
}

// prune removes the versions that the plan says, of providers about which nothing
// failed.
func (s *Syncer) prune(ctx context.Context, plan *Plan, out *Outcome) error {
	var steps []Step
	for _, step := range plan.Steps {
		if step.Action == ActionPrune && !slices.ContainsFunc(out.Failures, func(f Failure) bool { return f.Provider == step.Provider }) {
			steps = append(steps, step)
		}
	}
	if len(steps) == 0 {
		return nil
	}
	if err := s.checkPrune(plan, steps); err != nil {
		return err
	}
	for _, state := range plan.states {
		var mine []Step
		for _, step := range steps {
			if step.Provider == state.provider {
				mine = append(mine, step)
			}
		}
		if len(mine) == 0 {
			continue
		}
		p := &pruner{Syncer: s, state: state, out: out, bound: map[ociaddr.Tag]bool{}}
		if err := p.run(ctx, mine); err != nil {
			if ctx.Err() != nil {
				return err
			}
			out.Failures = append(out.Failures, Failure{Provider: state.provider, Err: err})
		}
	}
	return nil
}

// pruner removes versions from one repository: first their tags, then the
// indexes that no tag names any more, then the manifests that no index names any
// more. Whatever ends it in between leaves manifests without a tag, which nobody
// installs, and no tag without its manifests.
type pruner struct {
	*Syncer
	state *repositoryState
	out   *Outcome
	// bound are tags that the registry removes only with what they name.
	bound map[ociaddr.Tag]bool
}

func (p *pruner) run(ctx context.Context, steps []Step) error {
	indexes := map[digest.Digest]*artifact.Version{}
	for _, step := range steps {
		found, err := artifact.Read(ctx, keptStore{p.state.store, p.o.Manifests}, step.Provider, step.Version)
		if err != nil {
			return p.registryError("read "+step.Version.String()+" in", err)
		}
		if found.Index.Digest != step.index.Digest {
			return hint.New(fmt.Sprintf("%s:%s has changed since the plan was made; it is left", p.state.dest.Repository, step.Version), "run sync again")
		}
		for _, tag := range p.tagsOf(step.Version) {
			if err := p.untag(ctx, tag); err != nil {
				return err
			}
		}
		indexes[found.Index.Digest] = found
		p.out.Pruned = append(p.out.Pruned, step)
	}
	return p.sweep(ctx, indexes)
}

// tagsOf returns the tags that a version has there, its own last: while it is
// there, the next sync still finds what there is to remove.
func (p *pruner) tagsOf(v provider.Version) []ociaddr.Tag {
	var out []ociaddr.Tag
	for _, t := range p.state.tags {
		if own, ok := t.Version(); ok && own == v {
			out = append(out, t)
		}
		if part, ok := t.PartOf(); ok && part == v {
			out = slices.Insert(out, 0, t)
		}
	}
	return out
}

func (p *pruner) untag(ctx context.Context, tag ociaddr.Tag) error {
	err := p.state.store.Untag(ctx, string(tag))
	switch {
	case err == nil, errors.Is(err, errdef.ErrNotFound):
		return nil
	case errors.Is(err, errdef.ErrUnsupported):
		p.bound[tag] = true
		return nil
	}
	return hint.Wrap(p.registryError("remove the tag "+string(tag)+" from", err), helpDelete)
}

const helpDelete = "the registry must allow deletes, and the credential must have that right"

// sweep deletes the indexes given and what they name, but for what tags that are
// left, and indexes under them, still name. If it cannot be told, it is left for
// the registry's own garbage collection.
func (p *pruner) sweep(ctx context.Context, indexes map[digest.Digest]*artifact.Version) error {
	named, err := p.named(ctx)
	if err != nil {
		if len(p.bound) > 0 {
			return hint.Wrap(p.registryError("read tags of", err), "nothing that its tags may name was deleted")
		}
		p.out.Warnings = append(p.out.Warnings, fmt.Sprintf("%s: manifests of the versions pruned are left, without a tag: %v", p.state.dest.Repository, err))
		return ctx.Err()
	}
	for d, index := range indexes {
		if named[d] {
			if len(p.bound) > 0 {
				return hint.New(fmt.Sprintf("%s: the registry does not remove tags by themselves, and another tag names what they name", p.state.dest.Repository),
					"delete the tags with the registry's own tools")
			}
			continue
		}
		if err := p.delete(ctx, index.Index); err != nil {
			if len(p.bound) > 0 {
				return hint.Wrap(p.registryError("delete "+d.String()+" from", err), helpDelete)
			}
			p.leave(index.Index, err) // its children must not go before it
			continue
		}
		children := []ocispec.Descriptor{}
		for _, pkg := range index.Packages {
			children = append(children, pkg.Manifest)
		}
		if index.Evidence != nil {
			children = append(children, *index.Evidence)
		}
		for _, child := range children {
			if !named[child.Digest] {
				if err := p.delete(ctx, child); err != nil {
					p.leave(child, err)
				}
			}
		}
	}
	return ctx.Err()
}

// named returns the digests that tags name, directly and by an index.
func (p *pruner) named(ctx context.Context) (map[digest.Digest]bool, error) {
	tags, err := listTags(ctx, p.state.store) // anew: somebody may have added some
	if err != nil {
		return nil, err
	}
	out := map[digest.Digest]bool{}
	kept := keptStore{p.state.store, p.o.Manifests}
	for _, t := range tags {
		if _, ok := t.Seen(); ok || p.bound[t] {
			continue
		}
		children, d, err := artifact.Children(ctx, kept, string(t))
		if errors.Is(err, errdef.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("tag %s: %w", t, err)
		}
		out[d] = true
		for _, c := range children {
			out[c] = true
		}
	}
	return out, nil
}

// delete removes a manifest, if it is there.
func (p *pruner) delete(ctx context.Context, desc ocispec.Descriptor) error {
	if err := p.state.store.Delete(ctx, desc); !errors.Is(err, errdef.ErrNotFound) {
		return err
	}
	return nil
}

// leave warns of a manifest that stays, without a tag.
func (p *pruner) leave(desc ocispec.Descriptor, err error) {
	p.out.Warnings = append(p.out.Warnings, fmt.Sprintf("%s@%s is left, without a tag: %v", p.state.dest.Repository, desc.Digest, err))
}

func (p *pruner) registryError(op string, err error) error {
	return &RegistryError{op, p.state.dest.Repository, err}
}
