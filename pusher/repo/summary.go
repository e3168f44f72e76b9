package repo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// A repository's state contains a summary of the repository's versions, from which gateways
// list the versions. The summary is written once at the end of a run, and not once for each
// version, because every new state leaves an older state behind.

// pendingSummaries are the versions that a run has found or stored since the last
// [Session.Summarize]. The zero value is empty.
type pendingSummaries struct {
	mu           sync.Mutex
	repositories map[ociaddr.Repository]pendingSummary
}

// pendingSummary are the pending versions of one repository.
type pendingSummary struct {
	provider provider.Address
	dest     Destination
	versions artifact.Summary
}

// add adds a stored version. It ignores a version whose index does not say everything that a
// list needs. It also ignores the versions of a bundle, because a bundle has no state.
func (s *pendingSummaries) add(a provider.Address, dest Destination, v provider.Version, found *artifact.Version) {
	described, ok := found.Summary()
	if !ok || dest.Store.Remote() == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.repositories == nil {
		s.repositories = map[ociaddr.Repository]pendingSummary{}
	}
	pending, ok := s.repositories[dest.Repository]
	if !ok {
		pending = pendingSummary{a, dest, artifact.Summary{}}
		s.repositories[dest.Repository] = pending
	}
	pending.versions[v] = described
}

// take removes and returns all pending versions.
func (s *pendingSummaries) take() map[ociaddr.Repository]pendingSummary {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.repositories
	s.repositories = nil
	return out
}

// NoteStored notes a version that was found or stored, for summarize.
func (s *Session) NoteStored(a provider.Address, dest Destination, v provider.Version, found *artifact.Version) {
	s.summaries.add(a, dest, v, found)
}

// Summarize adds the versions that [Session.NoteStored] has noted to the summaries of their
// repositories. Callers call it once, at the end of a run. It sends one
// request to a repository whose summary has these versions already, and normally three
// requests to others.
//
// An error is no reason to report a failure, because gateways read the versions that the
// summary lacks. See [SummaryWarning].
func (s *Session) Summarize(ctx context.Context) error {
	var g errgroup.Group
	g.SetLimit(s.jobs)
	var mu sync.Mutex
	var all error
	for _, pending := range s.summaries.take() {
		g.Go(func() error {
			err := s.addSummary(ctx, pending)
			mu.Lock()
			defer mu.Unlock()
			all = errors.Join(all, err)
			return nil
		})
	}
	_ = g.Wait() // the functions return no error
	return all
}

// SummaryWarning returns the text of a warning about an error of [Session.Summarize]. It returns
// "" if the registry accepts no state or does not move its tag, because each run would repeat
// the warning, and if a context has ended.
func SummaryWarning(err error) string {
	if err == nil || errors.Is(err, ErrImmutable) || RefusesContent(err) || errors.Is(err, context.Canceled) {
		return ""
	}
	return fmt.Sprintf("the summary of versions is outdated, so gateways read each version that it lacks: %v", err)
}

func (s *Session) addSummary(ctx context.Context, pending pendingSummary) error {
	unlock, err := pending.dest.LockFor(ctx, "summary of %s", pending.provider)
	if err != nil {
		return err
	}
	defer unlock()
	return s.Writer(pending.dest).UpdateState(ctx, pending.provider, StateChange{Summary: pending.versions}, func(string, ...any) {})
}

// dropOutdated removes from a change the descriptions of indexes that lost their tag after
// they were read. Without this check, two pushes of one version would overwrite each other's
// descriptions. It sends one request for each version that the state describes differently.
// If the tag names neither index, the changed state does not describe the version.
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
