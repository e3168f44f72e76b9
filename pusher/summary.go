package pusher

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

// pendingSummaries are the versions that a [Pusher] has found or stored since the last
// [Pusher.Summarize]. The zero value is empty.
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

// Summarize adds the versions that earlier calls of Push and Copy have found or stored to the
// summaries of their repositories. Callers call it once, at the end of a run. It sends one
// request to a repository whose summary has these versions already, and normally three
// requests to others.
//
// An error is no reason to report a failure, because gateways read the versions that the
// summary lacks. See [SummaryWarning].
func (p *Pusher) Summarize(ctx context.Context) error {
	var g errgroup.Group
	g.SetLimit(p.o.Jobs)
	var mu sync.Mutex
	var all error
	for _, pending := range p.summaries.take() {
		g.Go(func() error {
			err := p.summarize(ctx, pending)
			mu.Lock()
			defer mu.Unlock()
			all = errors.Join(all, err)
			return nil
		})
	}
	_ = g.Wait() // the functions return no error
	return all
}

// SummaryWarning returns the text of a warning about an error of [Pusher.Summarize]. It returns
// "" if the registry accepts no state or does not move its tag, because each run would repeat
// the warning, and if a context has ended.
func SummaryWarning(err error) string {
	if err == nil || errors.Is(err, ErrImmutable) || refusesContent(err) || errors.Is(err, context.Canceled) {
		return ""
	}
	return fmt.Sprintf("the summary of versions is outdated, so gateways read each version that it lacks: %v", err)
}

func (p *Pusher) summarize(ctx context.Context, pending pendingSummary) error {
	unlock, err := pending.dest.lock(ctx, "summary of %s", pending.provider)
	if err != nil {
		return err
	}
	defer unlock()
	return p.updateState(ctx, pending.provider, pending.dest, stateChange{summary: pending.versions}, func(string, ...any) {})
}

// dropOutdated removes from a change the descriptions of indexes that lost their tag after
// they were read. Without this check, two pushes of one version would overwrite each other's
// descriptions. It sends one request for each version that the state describes differently.
// If the tag names neither index, the changed state does not describe the version.
func (w *push) dropOutdated(ctx context.Context, change stateChange, now *artifact.State) (stateChange, error) {
	out := change
	out.summary, out.undescribed = maps.Clone(change.summary), maps.Clone(change.undescribed)
	for v, mine := range change.summary {
		stored, ok := now.Summary[v]
		if !ok || stored.Index == mine.Index {
			continue
		}
		tagged, err := w.dest.Store.Resolve(ctx, string(tagOf(v)))
		switch {
		case err != nil && !isNotFound(err):
			return out, w.registryError("read "+string(tagOf(v))+" in", err)
		case tagged.Digest == mine.Index:
			continue
		case tagged.Digest != stored.Index:
			if out.undescribed == nil {
				out.undescribed = map[provider.Version]bool{}
			}
			out.undescribed[v] = true
		}
		delete(out.summary, v)
	}
	return out, nil
}
