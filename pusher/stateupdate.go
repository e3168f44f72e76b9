package pusher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
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

// stateRounds is the maximum number of times that one call of updateState writes the state of
// a repository while other processes write the same state.
const stateRounds = 20

// stateChange is what a writer adds to the state of a repository, and what a prune removes
// from it. The zero value changes nothing.
type stateChange struct {
	// seen and cooldown have the same meaning as in [artifact.State].
	seen     map[provider.Version]time.Time
	cooldown bool
	// replaced are manifests that lose their tag. They need not include older states, because
	// updateState adds the older states.
	replaced []artifact.Replaced
	// deleted are replaced manifests that a prune has deleted. A prune must not delete an
	// older state alone, because each new state notes one more older state. Such prunes would
	// never come to an end.
	deleted map[digest.Digest]bool
	// summary describes versions. undescribed are versions that the summary must not describe
	// any more.
	summary     artifact.Summary
	undescribed map[provider.Version]bool
}

// applied returns a copy of the given state with the change, and with notes about the older
// states.
func (c stateChange) applied(now *artifact.State, older []artifact.Replaced) artifact.State {
	next := artifact.State{Provider: now.Provider}
	next.Merge(*now)
	next.Merge(artifact.State{Seen: c.seen, Cooldown: c.cooldown, Replaced: slices.Concat(c.replaced, older), Summary: c.summary})
	maps.DeleteFunc(next.Summary, func(v provider.Version, _ artifact.VersionSummary) bool { return c.undescribed[v] })
	next.Replaced = slices.DeleteFunc(next.Replaced, func(r artifact.Replaced) bool { return c.deleted[r.Manifest.Digest] })
	return next
}

// changes reports whether a state lacks any part of the change.
func (c stateChange) changes(now *artifact.State) (bool, error) {
	before, err := artifact.EncodeState(*now)
	if err != nil {
		return false, err
	}
	after, err := artifact.EncodeState(c.applied(now, nil))
	return !bytes.Equal(before.Data, after.Data), err
}

// updateState merges a change into the state of a provider's repository. It writes nothing if
// the state already has the whole change. The new state notes the state that it replaces.
//
// OCI tags have no compare-and-swap. updateState therefore reads the state again after each
// write, and repeats the write until the state contains the change and notes each state that
// the call has written. Calls of one Pusher for one repository take turns. Two processes can
// still lose a change, and the note about a state. This happens if process A reads the state,
// process B then reads, writes and reads the state again, and finally A writes. A lost change must be harmless to callers. A version waits longer if a sync has to
// see it again, a manifest that is not noted is not deleted, and gateways read a version that
// the summary lacks.
//
// The caller holds the lock of the destination.
//
// The error wraps [ErrOccupied] if the repository belongs to another provider, and
// [ErrImmutable] if the registry does not move the tag. It wraps an error of package artifact
// if the tag names something other than a state. It is a *[RegistryError] if the registry
// failed.
func (p *Pusher) updateState(ctx context.Context, a provider.Address, dest Destination, change stateChange, warn func(format string, args ...any)) error {
	end, err := p.takeTurn(ctx, dest.Repository)
	if err != nil {
		return err
	}
	defer end()
	ctx = mayPush(ctx, dest.Repository)
	w := &push{writer: writer{p, dest}, tag: ociaddr.StateTag}
	var older []artifact.Replaced // states that this call has read or written
	var written []digest.Digest   // states that this call has written
	prepared := false
	for range stateRounds {
		now, desc, err := readState(ctx, dest.Store, dest.Repository, a)
		if err != nil {
			return err
		}
		if change, err = w.dropOutdated(ctx, change, now); err != nil {
			return err
		}
		if changes, err := change.changes(now); err != nil {
			return err
		} else if !changes && notesAll(now, desc, written) {
			return nil
		}
		switch {
		case desc != nil:
			older = append(older, artifact.Replaced{Manifest: *desc})
		case !prepared: // then read the state again, so that the write directly follows the read
			if err := w.prepareState(ctx, a); err != nil {
				return err
			}
			for _, text := range w.warnings {
				warn("%s", text)
			}
			prepared = true
			continue
		}
		mine, err := w.writeState(ctx, change.applied(now, older))
		if err != nil {
			return err
		}
		older = append(older, artifact.Replaced{Manifest: mine})
		written = append(written, mine.Digest)
	}
	return hint.New(fmt.Sprintf("%s:%s changes faster than it can be written", dest.Repository, w.tag), "let fewer syncs and pushes of %s run at a time", a)
}

// notesAll reports whether a state with the given descriptor notes all states that a call has
// written. A writer that has not read a state replaces it without a note, and only the state's
// own writer can add the note. The state that the call has written last notes as many states
// as a state can.
func notesAll(now *artifact.State, desc *ocispec.Descriptor, written []digest.Digest) bool {
	if n := len(written); n > 0 && desc != nil && desc.Digest == written[n-1] {
		return true
	}
	for _, d := range written {
		if !slices.ContainsFunc(now.Replaced, func(r artifact.Replaced) bool { return r.Manifest.Digest == d }) {
			return false
		}
	}
	return true
}

func (w *push) writeState(ctx context.Context, s artifact.State) (ocispec.Descriptor, error) {
	state, err := artifact.EncodeState(s)
	if err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("%s:%s: %w", w.dest.Repository, w.tag, err)
	}
	return state.Descriptor, w.sendTag(ctx, "tag "+string(w.tag)+" in", state, string(w.tag), helpImmutableState)
}

// takeTurn waits for the caller's turn at a repository. At most one caller has the turn at a
// time. The caller must call end when it is done.
func (p *Pusher) takeTurn(ctx context.Context, r ociaddr.Repository) (end func(), err error) {
	value, _ := p.turns.LoadOrStore(r, semaphore.NewWeighted(1))
	turn := value.(*semaphore.Weighted)
	if err := turn.Acquire(ctx, 1); err != nil {
		return nil, context.Cause(ctx)
	}
	return func() { turn.Release(1) }, nil
}

const helpImmutableState = "ocibridge stores the state of a repository under the tag " + string(ociaddr.StateTag) + ", and has to move it. Exempt it from the rule " +
	"(Harbor: exclude ocibridge-* from the project's tag immutability rules; " +
	"Amazon ECR: aws ecr put-image-tag-mutability --image-tag-mutability IMMUTABLE_WITH_EXCLUSION --image-tag-mutability-exclusion-filters filterType=WILDCARD,filter=ocibridge-*)"

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
			"restore the tag %s. Or delete it, and run ocibridge sync --first if the provider has a cooldown: versions that are there by then do not wait", ociaddr.StateTag)
	}
	return nil, nil, &RegistryError{"read " + string(ociaddr.StateTag) + " in", r, err}
}

// prepareState checks that a repository without a state does not belong to another provider,
// and stores the config blob of states.
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
