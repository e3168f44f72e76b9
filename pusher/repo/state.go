package repo

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

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// stateRounds is the maximum number of times that one call of UpdateState writes the state of
// a repository while other processes write the same state.
const stateRounds = 20

// StateChange is what a writer adds to the state of a repository, and what a prune removes
// from it. The zero value changes nothing.
type StateChange struct {
	// Seen and Cooldown have the same meaning as in [artifact.State].
	Seen     map[provider.Version]time.Time
	Cooldown bool
	// Replaced are manifests that lose their tag. They need not include older states, because
	// UpdateState adds the older states.
	Replaced []artifact.Replaced
	// Deleted are replaced manifests that a prune has deleted. If Deleted contains an older state, it
	// must contain other manifests, too. Each new state notes one more older state, so prunes of older
	// states alone would never end.
	Deleted map[digest.Digest]bool
	// Summary describes versions. Undescribed are the versions whose descriptions are removed.
	Summary     artifact.Summary
	Undescribed map[provider.Version]bool
	// Signers are the signers of indexes. They count only for versions that the summary then describes with the same index.
	// A description in Summary without signers keeps the signers that the state has for the same index.
	Signers map[provider.Version]SignedIndex
}

// SignedIndex is the index of a version, and the signers of the index, see [artifact.VersionSummary].
type SignedIndex struct {
	Index   digest.Digest
	Signers []approval.Signer // nil: none
}

// Applied returns a copy of the given state with the change and with notes about older states.
func (c StateChange) Applied(now *artifact.State, older []artifact.Replaced) artifact.State {
	next := artifact.State{Owner: now.Owner}
	next.Merge(*now)
	next.Merge(artifact.State{Seen: c.Seen, Cooldown: c.Cooldown, Replaced: slices.Concat(c.Replaced, older), Summary: c.Summary})
	for v, described := range next.Summary {
		if before, ok := now.Summary[v]; ok && described.Signers == nil && before.Index == described.Index {
			described.Signers = before.Signers
		}
		if signed, ok := c.Signers[v]; ok && signed.Index == described.Index {
			described.Signers = signed.Signers
		}
		next.Summary[v] = described
	}
	maps.DeleteFunc(next.Summary, func(v provider.Version, _ artifact.VersionSummary) bool { return c.Undescribed[v] })
	next.Replaced = slices.DeleteFunc(next.Replaced, func(r artifact.Replaced) bool { return c.Deleted[r.Manifest.Digest] })
	return next
}

// changes reports whether a state lacks any part of the change.
func (c StateChange) changes(now *artifact.State) (bool, error) {
	before, err := artifact.EncodeState(*now)
	if err != nil {
		return false, err
	}
	after, err := artifact.EncodeState(c.Applied(now, nil))
	return !bytes.Equal(before.Data, after.Data), err
}

// UpdateState merges a change into the state of the repository of a provider or a module, unless the state has it already. The new
// state notes the state that it replaces. The caller must hold the lock of the destination.
//
// OCI tags have no compare-and-swap. UpdateState therefore reads the state again after each write, until the state
// contains the change and notes each state that the call has written. Calls of one session for one repository take
// turns. Two processes can still lose a change, and the note about a state: process A reads the state, process B
// then reads, writes and reads the state again, and finally A writes. A lost change must be harmless to callers. A
// version waits longer if a sync has to see it again, a manifest that is not noted is not deleted, and gateways
// read a version that the summary lacks.
//
// The error wraps [ErrOccupied] if the repository belongs to another provider or module, [ErrImmutable] if the registry does
// not move the tag, and an error of package artifact if the tag names something other than a state. It is a
// *[RegistryError] if the registry failed.
func (w Writer) UpdateState(ctx context.Context, a subject.Address, change StateChange, warn func(format string, args ...any)) error {
	end, err := w.TakeTurn(ctx, w.Dest.Repository)
	if err != nil {
		return err
	}
	defer end()
	ctx = MayPush(ctx, w.Dest.Repository)
	var older []artifact.Replaced // states that this call has read or written
	var written []digest.Digest   // states that this call has written
	prepared := false
	for range stateRounds {
		now, desc, err := ReadState(ctx, w.Dest.Store, w.Dest.Repository, a)
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
			if err := w.prepareState(ctx, a, warn); err != nil {
				return err
			}
			prepared = true
			continue
		}
		mine, err := w.writeState(ctx, change.Applied(now, older))
		if err != nil {
			return err
		}
		older = append(older, artifact.Replaced{Manifest: mine})
		written = append(written, mine.Digest)
	}
	return hint.New(fmt.Sprintf("%s:%s changes faster than it can be written", w.Dest.Repository, ociaddr.StateTag), "let fewer syncs and pushes of %s run at a time", a)
}

// notesAll reports whether a state notes all states that a call has written. A writer that has not read a state
// replaces it without a note. Only the writer of the replaced state can then add the note. If the call has
// written the state last, the state already notes as many states as it can.
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

func (w Writer) writeState(ctx context.Context, s artifact.State) (ocispec.Descriptor, error) {
	state, err := artifact.EncodeState(s)
	if err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("%s:%s: %w", w.Dest.Repository, ociaddr.StateTag, err)
	}
	return state.Descriptor, w.SendTag(ctx, "tag "+string(ociaddr.StateTag)+" in", state, string(ociaddr.StateTag), helpImmutableState)
}

const helpImmutableState = "ocibridge stores the state of a repository under the tag " + string(ociaddr.StateTag) + ", and has to move it. Exempt it from the rule " +
	"(Harbor: exclude ocibridge-* from the project's tag immutability rules; " +
	"Amazon ECR: aws ecr put-image-tag-mutability --image-tag-mutability IMMUTABLE_WITH_EXCLUSION --image-tag-mutability-exclusion-filters filterType=WILDCARD,filter=ocibridge-*)"

// ReadState returns the state of a repository and its descriptor, which is nil if there is no state.
func ReadState(ctx context.Context, store artifact.ReferenceFetcher, r ociaddr.Repository, a subject.Address) (*artifact.State, *ocispec.Descriptor, error) {
	state, desc, err := artifact.ReadState(ctx, store, a)
	switch {
	case err == nil:
		return state, &desc, nil
	case IsNotFound(err):
		return &artifact.State{Owner: a}, nil, nil
	case errors.Is(err, artifact.ErrForeign):
		return nil, nil, hint.Wrap(fmt.Errorf("%s: %w: %w", r, ErrOccupied, err), "%s", artifact.HelpForeign(err, a))
	case IsUnusable(err):
		return nil, nil, hint.Wrap(fmt.Errorf("%s: %w", r, err),
			"restore the tag %s. Or delete it, and run ocibridge sync --first if the %s has a cooldown: versions that are there by then do not wait", ociaddr.StateTag, a.Kind())
	}
	return nil, nil, &RegistryError{"read " + string(ociaddr.StateTag) + " in", r, err}
}

// prepareState checks that the repository does not belong to another provider or module, and stores the config blob of
// states.
func (w Writer) prepareState(ctx context.Context, a subject.Address, warn func(format string, args ...any)) error {
	tags, err := w.Tags(ctx)
	if err != nil {
		return err
	}
	if err := w.CheckOwner(ctx, ociaddr.StateTag, a, tags, warn); err != nil {
		return err
	}
	return w.SendBlob(ctx, "push config to", artifact.Config())
}

// A repository's state contains a summary of the repository's versions, from which gateways
// list the versions. The summary is written once at the end of a run, and not once for each
// version, because every new state leaves an older state behind.

// pendingState is the pending change of one repository's state.
type pendingState struct {
	owner  subject.Address
	dest   Destination
	change StateChange
}

// NoteStored notes a version of a provider that was found or stored, for Summarize. It ignores a version whose
// index does not say everything that a list needs, and the versions of a bundle, which has no state.
func (s *Session) NoteStored(a subject.Address, dest Destination, v provider.Version, found *artifact.Version) {
	described, ok := found.Summary()
	if !ok || dest.Store.Remote() == nil {
		return
	}
	s.note(a, dest, func(c *StateChange) { c.Summary[v] = described })
}

// NoteSignatures notes who has signed the index of a provider's version, for Summarize. It ignores the versions of a bundle.
func (s *Session) NoteSignatures(a subject.Address, dest Destination, v provider.Version, index digest.Digest, sigs []approval.Signature) {
	if !subject.TraitsOf(a).Packages || dest.Store.Remote() == nil {
		return
	}
	s.note(a, dest, func(c *StateChange) {
		c.Signers[v] = SignedIndex{index, artifact.DescribedSigners(approval.Signers(index, sigs))}
	})
}

// NoteFetched notes when a version of a module was fetched from its origin, for Summarize. It ignores the versions of a
// bundle.
func (s *Session) NoteFetched(a subject.Address, dest Destination, v provider.Version, at time.Time) {
	if dest.Store.Remote() != nil {
		s.note(a, dest, func(c *StateChange) { c.Seen[v] = at })
	}
}

// note adds to the pending change of a repository's state.
func (s *Session) note(a subject.Address, dest Destination, add func(*StateChange)) {
	s.pendingLock.Lock()
	defer s.pendingLock.Unlock()
	if s.pending == nil {
		s.pending = map[ociaddr.Repository]pendingState{}
	}
	if _, ok := s.pending[dest.Repository]; !ok {
		s.pending[dest.Repository] = pendingState{a, dest, StateChange{Summary: artifact.Summary{}, Seen: map[provider.Version]time.Time{}, Signers: map[provider.Version]SignedIndex{}}}
	}
	pending := s.pending[dest.Repository]
	add(&pending.change)
}

// Summarize updates the states of repositories with what [Session.NoteStored] and [Session.NoteFetched] have noted. Call it
// once, at the end of a run. It normally sends three requests to a repository, or one if its summary has these
// versions already. Gateways read the versions that a summary lacks, so an error deserves only a
// [SummaryWarning] or a [FetchedWarning].
func (s *Session) Summarize(ctx context.Context) error {
	s.pendingLock.Lock()
	all := slices.Collect(maps.Values(s.pending))
	s.pending = nil
	s.pendingLock.Unlock()
	var g panics.Group
	g.SetLimit(s.jobs)
	failed := make([]error, len(all))
	for i, pending := range all {
		g.Go(func() error {
			failed[i] = s.addSummary(ctx, pending)
			return nil
		})
	}
	_ = g.Wait() // the functions return no error
	return errors.Join(failed...)
}

// SummaryWarning returns the text of a warning about an error of [Session.Summarize]. It is "" if a context has
// ended. It is also "" if the registry accepts no state or does not move the tag of the state, because each run
// would repeat the warning.
func SummaryWarning(err error) string {
	return stateWarning("the summary of versions is outdated, so gateways read each version that it lacks", err)
}

// FetchedWarning is like SummaryWarning, for modules, whose states have no summary.
func FetchedWarning(err error) string {
	return stateWarning("when these versions were first fetched is not recorded", err)
}

func stateWarning(text string, err error) string {
	if err == nil || errors.Is(err, ErrImmutable) || RefusesContent(err) || errors.Is(err, context.Canceled) {
		return ""
	}
	return fmt.Sprintf("%s: %v", text, err)
}

func (s *Session) addSummary(ctx context.Context, pending pendingState) error {
	unlock, err := pending.dest.LockFor(ctx, "summary of %s", pending.owner)
	if err != nil {
		return err
	}
	defer unlock()
	return s.Writer(pending.dest).UpdateState(ctx, pending.owner, pending.change, func(string, ...any) {})
}

// dropOutdated removes from a change the descriptions of indexes that lost their tag after they were read.
// Otherwise two pushes of one version would overwrite each other's descriptions. It sends a request for each
// version that the state describes differently. If the tag names neither index, the changed state does not
// describe the version.
func (w Writer) dropOutdated(ctx context.Context, change StateChange, now *artifact.State) (StateChange, error) {
	out := change
	out.Summary, out.Undescribed = maps.Clone(change.Summary), maps.Clone(change.Undescribed)
	for v, mine := range change.Summary {
		stored, ok := now.Summary[v]
		if !ok || stored.Index == mine.Index {
			continue
		}
		tagged, err := w.Dest.Store.Resolve(ctx, string(TagOf(v)))
		switch {
		case err != nil && !IsNotFound(err):
			return out, w.Failed("read "+string(TagOf(v))+" in", err)
		case tagged.Digest == mine.Index:
			continue
		case tagged.Digest != stored.Index:
			if out.Undescribed == nil {
				out.Undescribed = map[provider.Version]bool{}
			}
			out.Undescribed[v] = true
		}
		delete(out.Summary, v)
	}
	return out, nil
}
