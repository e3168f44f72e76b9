package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/ocibridge/ocibridge/internal/registry"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/trust"
)

// push pushes what a source yields, several versions at once, and returns the
// outcomes in the source's order. After a failure no later version is begun, and
// those under way are finished.
func (f *pushFlags) push(ctx context.Context, src source, policy func(provider.Address) trust.Policy, back *registry.Repositories, progress *progress) ([]*pusher.Result, error) {
	p := pusher.New(pusher.Options{
		Destination: func(ctx context.Context, a provider.Address) (pusher.Destination, error) {
			addr, repo, err := back.Repository(ctx, a)
			return pusher.Destination{Repository: addr, Store: registry.Repository{Repository: repo}}, err
		},
		Policy:          policy,
		Jobs:            int(f.jobs),
		Force:           f.force,
		RefreshEvidence: f.refresh,
		OnEvent:         progress.event,
	})
	all := &outcomes{progress: progress}
	var g errgroup.Group
	g.SetLimit(int(f.jobs)) // no more versions than packages
	err := src.each(ctx, progress.warn, func(r *origin.Release) error {
		turn := all.next()
		if all.failedBefore(turn) {
			return errStopped
		}
		g.Go(func() error { // waits for a place
			if !all.failedBefore(turn) {
				result, err := pushOne(ctx, back, p, r)
				all.set(turn, result, err)
			}
			return nil
		})
		return nil
	})
	_ = g.Wait() // failures are among the outcomes
	return all.inOrder(err)
}

// errStopped ends a source after a failure that is told elsewhere.
var errStopped = errors.New("stopped")

// pushOne pushes a release, and adds a hint to a refusal of the registry.
func pushOne(ctx context.Context, back *registry.Repositories, p *pusher.Pusher, r *origin.Release) (*pusher.Result, error) {
	result, err := p.Push(ctx, r)
	var refused *pusher.RegistryError
	if errors.As(err, &refused) {
		return nil, back.Explain(err, refused.Repository)
	}
	return result, err
}

// outcomes are those of the versions that are pushed at once, in order. Each is
// shown when those before it are.
type outcomes struct {
	progress *progress

	mu    sync.Mutex
	list  []outcome
	shown int
}

type outcome struct {
	ended  bool
	result *pusher.Result
	err    error
}

// next returns the place of another version.
func (o *outcomes) next() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, outcome{})
	return len(o.list) - 1
}

func (o *outcomes) set(i int, result *pusher.Result, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list[i] = outcome{true, result, err}
	for ; o.shown < len(o.list) && o.list[o.shown].ended; o.shown++ {
		if r := o.list[o.shown].result; r != nil {
			for _, w := range r.Warnings {
				o.progress.warn(fmt.Sprintf("%s %s: %s", r.Provider, r.Version, w))
			}
			o.progress.done(r)
		}
	}
}

// failedBefore reports whether a version did whose place is before i.
func (o *outcomes) failedBefore(i int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.list[:i], func(e outcome) bool { return e.err != nil })
}

// inOrder returns what was pushed, and the first of the failures; err is the
// source's own.
func (o *outcomes) inOrder(err error) ([]*pusher.Result, error) {
	var results []*pusher.Result
	for _, e := range o.list {
		if e.result != nil {
			results = append(results, e.result)
		}
	}
	if i := slices.IndexFunc(o.list, func(e outcome) bool { return e.err != nil }); i >= 0 {
		err = o.list[i].err
	}
	return results, err
}
