package pusher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/semaphore"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// stateRounds bounds how often one call writes the state of a repository because other
// writers write it, too.
const stateRounds = 20

// stateChange is what a writer adds to the state of a repository, and what a prune takes
// out of it. The zero value changes nothing.
type stateChange struct {
	// seen and cooldown are those of [artifact.State].
	seen     map[provider.Version]time.Time
	cooldown bool
	// replaced are manifests that lose their tag. Older states need not be named.
	replaced []artifact.Replaced
	// deleted are replaced manifests that a prune has deleted. The state that this change
	// replaces is noted in their place: a prune that deletes nothing but an older state
	// would find another one the next time.
	deleted map[digest.Digest]bool
}

// applied returns a state with the change.
func (c stateChange) applied(now *artifact.State, older []artifact.Replaced) artifact.State {
	next := artifact.State{Provider: now.Provider}
	next.Merge(*now)
	next.Merge(artifact.State{Seen: c.seen, Cooldown: c.cooldown, Replaced: slices.Concat(c.replaced, older)})
	next.Replaced = slices.DeleteFunc(next.Replaced, func(r artifact.Replaced) bool { return c.deleted[r.Manifest.Digest] })
	return next
}

// remember merges a change into the state of a provider's repository. It writes nothing
// if the state has all of the change already. The state that it replaces is noted in the
// new one.
//
// OCI tags have no compare-and-swap. remember therefore reads the state again after it
// has written, until the change is in. Calls of one Pusher for one repository take turns.
// Two processes can still lose a change: one of them reads, the other one reads, writes
// and reads again, and then the first one writes. Callers must be able to bear that: a
// version that is seen again waits longer, and a digest that is not noted is not deleted.
//
// Errors wrap [ErrOccupied] if the repository is another provider's, [ErrImmutable] if the
// registry does not move the tag, and the reasons of package artifact if the tag names no
// state. They are *[RegistryError] where the registry failed.
func (p *Pusher) remember(ctx context.Context, a provider.Address, dest Destination, change stateChange) error {
	end, err := p.takeTurn(ctx, dest.Repository)
	if err != nil {
		return err
	}
	defer end()

	ctx = mayPush(ctx, dest.Repository)
	w := &push{Pusher: p, dest: dest, tag: ociaddr.StateTag}
	var older []artifact.Replaced // states that this call found, and those that it wrote
	prepared := false
	for range stateRounds {
		now, desc, err := readState(ctx, dest.Store, dest.Repository, a)
		if err != nil {
			return err
		}
		if changes, err := change.changes(now); err != nil || !changes {
			if err == nil {
				p.markNoted(dest.Repository, change)
			}
			return err
		}
		switch {
		case desc != nil:
			older = append(older, artifact.Replaced{Manifest: *desc})
		case !prepared:
			// Nothing but the state is sent between reading and writing.
			if err := w.prepareState(ctx, a); err != nil {
				return err
			}
			prepared = true
			continue
		}
		state, err := artifact.EncodeState(change.applied(now, older))
		if err != nil {
			return fmt.Errorf("%s:%s: %w", dest.Repository, w.tag, err)
		}
		if err := w.putTag(ctx, "tag "+string(w.tag)+" in", state.Descriptor, state.Data, string(w.tag), helpImmutableState); err != nil {
			return err
		}
		older = append(older, artifact.Replaced{Manifest: state.Descriptor})
	}
	return hint.New(fmt.Sprintf("%s:%s changes faster than it can be written", dest.Repository, w.tag), "let fewer syncs and pushes of %s run at a time", a)
}

// takeTurn waits until no other call has the turn of a repository. The caller ends it.
func (p *Pusher) takeTurn(ctx context.Context, r ociaddr.Repository) (end func(), err error) {
	value, _ := p.turns.LoadOrStore(r, semaphore.NewWeighted(1))
	turn := value.(*semaphore.Weighted)
	if err := turn.Acquire(ctx, 1); err != nil {
		return nil, context.Cause(ctx)
	}
	return func() { turn.Release(1) }, nil
}

const helpImmutableState = "ocibridge keeps what it remembers of a repository in the tag " + string(ociaddr.StateTag) + ", and has to move it. Exempt it from the rule " +
	"(Harbor: exclude ocibridge-* from the project's tag immutability rules; " +
	"Amazon ECR: aws ecr put-image-tag-mutability --image-tag-mutability IMMUTABLE_WITH_EXCLUSION --image-tag-mutability-exclusion-filters filterType=WILDCARD,filter=ocibridge-*)"

// changes reports whether a state lacks any of the change.
func (c stateChange) changes(now *artifact.State) (bool, error) {
	before, err := artifact.EncodeState(*now)
	if err != nil {
		return false, err
	}
	after, err := artifact.EncodeState(c.applied(now, nil))
	return !bytes.Equal(before.Data, after.Data), err
}

// readState returns the state of a repository and its descriptor. The descriptor is nil if
// there is no state.
func readState(ctx context.Context, store artifact.ReferenceFetcher, r ociaddr.Repository, a provider.Address) (*artifact.State, *ocispec.Descriptor, error) {
	state, desc, err := artifact.ReadState(ctx, store, a)
	switch {
	case err == nil:
		return state, &desc, nil
	case isNotFound(err):
		return &artifact.State{Provider: a}, nil, nil
	case errors.Is(err, artifact.ErrForeign):
		return nil, nil, hint.Wrap(fmt.Errorf("%s: %w: %w", r, ErrOccupied, err), helpForeign)
	case isUnusable(err):
		return nil, nil, hint.Wrap(fmt.Errorf("%s: %w", r, err),
			"restore the tag %s. Or delete it, and run ocibridge sync --first if the provider has a cooldown: no version that is there by then waits", ociaddr.StateTag)
	}
	return nil, nil, &RegistryError{"read " + string(ociaddr.StateTag) + " in", r, err}
}

// prepareState checks that a repository without a state is not another provider's, and
// sends the blob of states.
func (w *push) prepareState(ctx context.Context, a provider.Address) error {
	tags, err := w.tags(ctx)
	if err != nil {
		return err
	}
	if err := w.checkOwner(ctx, a, tags); err != nil {
		return err
	}
	return w.sendBlob(ctx, "push config to", artifact.Config())
}

// markNoted remembers which replaced indexes the state of a repository has.
func (p *Pusher) markNoted(r ociaddr.Repository, change stateChange) {
	for _, replaced := range change.replaced {
		p.noted.Store(noteKey(r, replaced.Manifest.Digest), true)
	}
	for d := range change.deleted {
		p.noted.Delete(noteKey(r, d))
	}
}
