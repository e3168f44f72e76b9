// Package transfer runs pushes, copies and syncs. It opens the sources of releases and
// selects versions. It then stores several versions concurrently in a registry, a bundle or
// a mirror folder. Package pusher verifies and stores each version.
//
// After a failure, no further version is started, but running transfers are allowed to
// finish. Results are reported in the order of the source.
package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// Progress shows a transfer to its user. Event can be called concurrently.
type Progress interface {
	Event(pusher.Event)
	Warn(string)
	Done(*pusher.Result)
}

// Destination returns a function that opens the destination of a provider or a module in a registry.
func Destination(r *registry.Repositories) func(context.Context, subject.Address) (repo.Destination, error) {
	return func(ctx context.Context, a subject.Address) (repo.Destination, error) {
		addr, store, err := r.Repository(ctx, a)
		return repo.Destination{
			Repository: addr, Store: registry.Repository{Repository: store}, Lock: r.Lock(), Mark: r.Keep(addr), FallbackTags: r.Embedded != nil,
		}, err
	}
}

// spellingTimeout limits the time for the catalogs of registries that a warning needs.
const spellingTimeout = 10 * time.Second

// Spellings finds stored modules whose addresses differ from others only in letter case. It lists the catalogs of the registries
// once, when they are first needed.
type Spellings struct {
	repositories *registry.Repositories
	listed       bool
	stored       []module.Address
}

// NewSpellings returns the spellings of the modules in repositories.
func NewSpellings(r *registry.Repositories) *Spellings { return &Spellings{repositories: r} }

// Warning returns a warning about a stored module whose address differs from a only in letter case, or "". It looks only if a
// has no tags yet, because a catalog can take many requests. It finds nothing if the registry has no catalog, or if the catalog
// takes longer than 10 seconds. It must not be called concurrently.
func (s *Spellings) Warning(ctx context.Context, a module.Address) string {
	_, repo, err := s.repositories.Repository(ctx, a)
	if err != nil {
		return ""
	}
	if tags, _ := artifact.ListTags(ctx, repo); len(tags) > 0 {
		return ""
	}
	if !s.listed {
		ctx, cancel := context.WithTimeout(ctx, spellingTimeout)
		defer cancel()
		found, _, _ := s.repositories.All(ctx, subject.Module)
		s.stored, s.listed = subject.Of[module.Address](found), true
	}
	i := slices.IndexFunc(s.stored, func(m module.Address) bool { return m != a && strings.EqualFold(m.Path(), a.Path()) })
	s.stored = append(s.stored, a) // the caller stores it now
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("%s is stored already: %s is another module, because addresses distinguish capitals", s.stored[i], a)
}

// destinationOfCopies is like [Destination], but for copies with referrers. from maps each address to the
// repository of the source. If that repository is in the same registry, blobs are mounted from it.
func destinationOfCopies(r *registry.Repositories, from map[subject.Address]ociaddr.Repository) func(context.Context, subject.Address) (repo.Destination, error) {
	return func(ctx context.Context, a subject.Address) (repo.Destination, error) {
		addr, store, err := r.RepositoryWithReferrers(ctx, a)
		if err == nil && r.Embedded != nil {
			// Without the fallback tags, "registry garbage-collect --delete-untagged" would delete
			// referrers. The gateway's referrers API does not need them.
			err = store.SetReferrersCapability(false)
		}
		to := repo.Destination{Repository: addr, Store: registry.Repository{Repository: store}, Lock: r.Lock(), Mark: r.Keep(addr)}
		if sibling := from[a]; sibling.Registry == addr.Registry {
			to.Sibling = sibling.Name
		}
		return to, err
	}
}

// Explain adds a hint to err if a registry refused a request. r is nil for a location that is not a registry.
func Explain(r *registry.Repositories, err error) error {
	if refused := new(repo.RegistryError); r != nil && errors.As(err, &refused) {
		return r.Explain(err, refused.Repository)
	}
	return err
}

// errStopped means that a version is not transferred because an earlier version failed.
var errStopped = errors.New("an earlier version failed")

// batch transfers several versions concurrently. It reports the results in the order in
// which the versions were added to the batch.
type batch[R any] struct {
	report  func(*R)
	slots   chan struct{} // holds one element for each running transfer
	failed  atomic.Bool
	running sync.WaitGroup
	last    chan struct{} // closed once the result of the last added version is reported

	results []*R
	err     error // the error of the first added version that failed
}

// newBatch returns a batch that runs at most jobs transfers concurrently. If jobs is 0, the
// maximum is [pusher.DefaultJobs].
func newBatch[R any](jobs int, report func(*R)) *batch[R] {
	b := &batch[R]{report: report, slots: make(chan struct{}, cmp.Or(jobs, pusher.DefaultJobs)), last: make(chan struct{})}
	close(b.last)
	return b
}

// add waits for a free slot, and starts the transfer of a version. After a failure, it returns errStopped.
func (b *batch[R]) add(transfer func() (*R, error)) error {
	b.slots <- struct{}{}
	if b.failed.Load() {
		<-b.slots
		return errStopped
	}
	before, reported := b.last, make(chan struct{})
	b.last = reported
	b.running.Go(func() {
		result, err := transfer()
		if err != nil {
			b.failed.Store(true)
		}
		<-b.slots
		<-before
		defer close(reported)
		if b.err == nil {
			b.err = err
		}
		if result != nil {
			b.results = append(b.results, result)
			b.report(result)
		}
	})
	return nil
}

// wait waits for all transfers, and returns their results and the first failure, or else the given err.
func (b *batch[R]) wait(err error) ([]*R, error) {
	b.running.Wait()
	if b.err != nil {
		err = b.err
	}
	return b.results, err
}

// StoredVersions returns all stored versions that match the constraint of a query, oldest first. The error wraps
// [origin.ErrVersionNotFound] if there are none.
func StoredVersions(ctx context.Context, r *registry.Repositories, q query.Query[subject.Address]) ([]provider.Version, error) {
	addr, repo, err := r.Repository(ctx, q.Address)
	if err != nil {
		return nil, err
	}
	have, err := pusher.Stored{Subject: q.Address, Repository: addr, Store: repo}.Versions(ctx)
	if err != nil {
		return nil, err
	}
	matches := slices.DeleteFunc(have, func(v provider.Version) bool { return !q.Has(v) })
	if len(matches) == 0 {
		return nil, hint.Wrap(fmt.Errorf("%s: %w: no version in %s matches the constraint", q.Address, origin.ErrVersionNotFound, addr),
			"name the version exactly; a constraint does not select prereleases that it does not name")
	}
	return matches, nil
}
