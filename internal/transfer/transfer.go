// Package transfer runs pushes, copies and syncs: it opens the sources of releases, selects
// versions, and stores several at once in a registry, a bundle or a mirror folder. Package
// pusher verifies and stores each version.
//
// After a failure no later version is started. Those that run are finished, and results are
// reported in the order of the source.
package transfer

import (
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/ocibridge/ocibridge/internal/registry"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// Progress shows a transfer to its user. Calls of Event can be concurrent.
type Progress interface {
	Event(pusher.Event)
	Warn(string)
	Done(*pusher.Result)
}

// Destination returns the destination of each provider in a registry.
func Destination(r *registry.Repositories) func(context.Context, provider.Address) (pusher.Destination, error) {
	return func(ctx context.Context, a provider.Address) (pusher.Destination, error) {
		addr, repo, err := r.Repository(ctx, a)
		return pusher.Destination{Repository: addr, Store: registry.Repository{Repository: repo}}, err
	}
}

// destinationOfCopies is [Destination] for copies. Between repositories of one registry,
// blobs are mounted: from names the repositories that are copied from.
func destinationOfCopies(r *registry.Repositories, from map[provider.Address]ociaddr.Repository) func(context.Context, provider.Address) (pusher.Destination, error) {
	return func(ctx context.Context, a provider.Address) (pusher.Destination, error) {
		addr, repo, err := r.RepositoryWithReferrers(ctx, a)
		if err == nil && r.Embedded != nil {
			// "registry garbage-collect --delete-untagged" keeps the referrers that a fallback
			// tag names. The gateway's referrers API needs no fallback tags.
			err = repo.SetReferrersCapability(false)
		}
		to := pusher.Destination{Repository: addr, Store: registry.Repository{Repository: repo}}
		if sibling := from[a]; sibling.Registry == addr.Registry {
			to.Sibling = sibling.Name
		}
		return to, err
	}
}

// Explain adds to a refusal by a registry what to do about it. It returns other errors
// unchanged.
func Explain(r *registry.Repositories, err error) error {
	if refused := new(pusher.RegistryError); errors.As(err, &refused) {
		return r.Explain(err, refused.Repository)
	}
	return err
}

// batch transfers several versions at once, and reports each result when all earlier ones
// are reported.
type batch struct {
	report func(*pusher.Result)
	group  errgroup.Group

	mu       sync.Mutex
	outcomes []outcome
	reported int
}

// outcome is the result of one version.
type outcome struct {
	ended  bool
	result *pusher.Result
	err    error
}

// errStopped means that an earlier version failed.
var errStopped = errors.New("an earlier version failed")

func newBatch(jobs int, report func(*pusher.Result)) *batch {
	b := &batch{report: report}
	b.group.SetLimit(jobs)
	return b
}

// add transfers a version as soon as a job is free. It returns errStopped, and transfers
// nothing, if an earlier version has failed.
func (b *batch) add(transfer func() (*pusher.Result, error)) error {
	b.mu.Lock()
	b.outcomes = append(b.outcomes, outcome{})
	turn := len(b.outcomes) - 1
	b.mu.Unlock()
	if b.failedBefore(turn) {
		return errStopped
	}
	b.group.Go(func() error {
		if !b.failedBefore(turn) {
			result, err := transfer()
			b.end(turn, result, err)
		}
		return nil
	})
	return nil
}

// end stores an outcome, and reports the results that have no unfinished one before them.
func (b *batch) end(turn int, result *pusher.Result, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.outcomes[turn] = outcome{true, result, err}
	for ; b.reported < len(b.outcomes) && b.outcomes[b.reported].ended; b.reported++ {
		if r := b.outcomes[b.reported].result; r != nil {
			b.report(r)
		}
	}
}

// failedBefore reports whether a version before the given one failed.
func (b *batch) failedBefore(turn int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.outcomes[:turn], func(o outcome) bool { return o.err != nil })
}

// wait waits for all versions, and returns their results and the first failure. Without a
// failure it returns err.
func (b *batch) wait(err error) ([]*pusher.Result, error) {
	_ = b.group.Wait() // its functions return nil
	var results []*pusher.Result
	for _, o := range b.outcomes {
		if o.result != nil {
			results = append(results, o.result)
		}
	}
	if i := slices.IndexFunc(b.outcomes, func(o outcome) bool { return o.err != nil }); i >= 0 {
		err = b.outcomes[i].err
	}
	return results, err
}
