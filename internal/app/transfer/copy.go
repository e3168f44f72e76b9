package transfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// Copy copies stored versions from one location to another.
type Copy struct {
	From, To Location
	Since    Location // what the destination of a bundle has, so that To can omit it; zero: nothing
	// Queries and Modules are the versions of providers and modules to copy. If both are empty,
	// the copy includes all versions.
	Queries   []query.Query[provider.Address]
	Modules   []query.Query[module.Address]
	All       bool // copy every version that matches a constraint, and not only the newest
	Platforms []provider.Platform
	// Configured lists the providers to copy from a registry if there are no queries. If
	// Configured is empty too, the copy includes all providers in the registry's catalog.
	// Without queries, the copy always includes the modules in the registry's catalog.
	Configured []provider.Address
	// DryRun returns the results that the copy would have, and writes nothing. The referrers
	// are not planned.
	DryRun bool
	// Push contains the policy, the number of jobs and the referrers option.
	Push     pusher.Options
	Progress Progress
	// Open opens the registries at a location for the given providers and modules.
	Open func(at Location, providers []provider.Address, modules []module.Address) (*registry.Repositories, error)
}

// Copied are the results of a [Copy].
type Copied struct {
	Providers []*pusher.Result
	Modules   []*pusher.ModuleResult
	// Failures are the versions that could not be copied, while the others were. Their order is the one in which they failed.
	// They are no error of [Copy.Run], which says why the copy as a whole has failed.
	Failures []reconcile.Failure
}

// lost returns the error of the first version of which platforms were left out, or nil.
func (c *Copied) lost() error {
	for _, r := range c.Providers {
		if err := r.LostError(); err != nil {
			return err
		}
	}
	return nil
}

// everything reports whether the copy includes all versions.
func (c Copy) everything() bool { return len(c.Queries)+len(c.Modules) == 0 }

// ErrSameRepository means that the source and the target of a provider are the same
// repository.
var ErrSameRepository = errors.New("would be copied to the same repository")

// source is an open location to copy from.
type source struct {
	registry  *registry.Repositories // nil if the location is not a registry
	providers func(context.Context) ([]provider.Address, error)
	stored    func(context.Context, provider.Address) (pusher.Stored, error)
	modules   func(context.Context) ([]module.Address, error)
	module    func(context.Context, module.Address) (pusher.StoredModule, error)
	omits     bool // the location is a bundle that omits packages
	close     func() error
}

// target is an open location to copy to.
type target struct {
	registry *registry.Repositories // nil if the location is not a registry
	put      func(ctx context.Context, from pusher.Stored, v provider.Version, platforms []provider.Platform) (*pusher.Result, error)
	// putModule copies a version of a module. It is nil for a location that has no modules.
	putModule func(ctx context.Context, from pusher.StoredModule, v provider.Version) (*pusher.ModuleResult, error)
	save      func(context.Context) error // nil if the location is complete after each version
	close     func() error
	// destination opens the repository of a provider. It is nil for a mirror folder.
	destination func(context.Context, provider.Address) (repo.Destination, error)
	name        string // for messages
}

// selected is a stored provider, and its versions that will be copied.
type selected struct {
	pusher.Stored
	versions []provider.Version
}

// Run copies the versions, and returns the results. It opens the target only after it has
// selected the versions. Therefore it creates no target if there is nothing to copy.
func (c Copy) Run(ctx context.Context) (out Copied, err error) {
	named := query.Addresses(c.Queries)
	if c.everything() && !c.From.IsBundle() {
		named = c.Configured
	}
	src, err := c.openSource(ctx, named)
	if err != nil {
		return out, err
	}
	defer src.close()
	// 1. Select the versions.
	var all selection
	if all.providers, err = c.selectVersions(ctx, src, named); err != nil {
		return out, err
	}
	if all.modules, err = c.selectModules(ctx, src); err != nil {
		return out, err
	}
	if all.isEmpty() {
		return out, hint.New("there is nothing to copy", "ocibridge push, sync or module push stores versions; --from says where to look")
	}
	// 2. Copy them.
	dst, err := c.openTarget(ctx, &all)
	if err != nil {
		return out, err
	}
	defer dst.close()
	var failed failures
	if out.Providers, err = c.copyAll(ctx, src, dst, all.providers, &failed); err == nil {
		out.Modules, err = c.copyModules(ctx, src, dst, all.modules, &failed)
	}
	out.Failures = failed.all
	if err == nil && dst.save != nil && len(out.Providers)+len(out.Modules) > 0 {
		err = dst.save(ctx)
	}
	if err == nil && len(out.Failures) == 0 {
		err = out.lost()
	}
	return out, err
}

// selection is what a copy copies.
type selection struct {
	providers []selected
	modules   []selectedModule
}

func (s selection) isEmpty() bool { return len(s.providers)+len(s.modules) == 0 }

// selectVersions lists the versions in the source, and returns those that the queries
// select. If there are no queries, it returns all versions of the named providers. If no
// provider is named either, it returns all versions of all providers.
func (c Copy) selectVersions(ctx context.Context, src *source, named []provider.Address) ([]selected, error) {
	queries := c.Queries
	if c.everything() {
		if len(named) == 0 {
			var err error
			if named, err = src.providers(ctx); err != nil {
				return nil, err
			}
		}
		for _, a := range named {
			queries = append(queries, query.Query[provider.Address]{Address: a})
		}
	}
	var out []selected
	for _, q := range queries {
		stored, err := src.stored(ctx, q.Address)
		if err != nil {
			return nil, err
		}
		versions, err := pick(ctx, c, stored.Repository, q, stored.Versions, origin.ErrProviderNotFound)
		if err != nil {
			return nil, Explain(src.registry, err)
		}
		if len(versions) > 0 {
			out = append(out, selected{stored, versions})
		}
	}
	return out, nil
}

// pick returns those versions that a query selects. list lists the stored versions. absent is the error
// if there are none. If the copy includes everything, that is only a warning.
func pick[A subject.Address](ctx context.Context, c Copy, in ociaddr.Repository, q query.Query[A], list func(context.Context) ([]provider.Version, error), absent error) ([]provider.Version, error) {
	var have []provider.Version
	if q.Version.IsZero() {
		var err error
		if have, err = list(ctx); err != nil {
			return nil, err
		}
	}
	versions := newest(q, have, c.All)
	switch {
	case len(versions) > 0:
		return versions, nil
	case c.everything():
		c.Progress.Warn(fmt.Sprintf("%s has no version of %s", in, q.Address))
		return nil, nil
	case len(have) == 0:
		return nil, hint.Wrap(fmt.Errorf("%s: %w in %s", q.Address, absent, in), "check its spelling, and that --from names the place that has it")
	}
	return nil, hint.Wrap(fmt.Errorf("%s %s: %w: nothing in %s matches", q.Address, q.Versions, origin.ErrVersionNotFound, in),
		"the newest version there is %s; a prerelease must be named exactly", have[len(have)-1])
}

// failures collects the failures of versions. Its methods can be called concurrently.
type failures struct {
	mu  sync.Mutex
	all []reconcile.Failure
}

// keep keeps a failure that concerns one version alone, and returns nil. It returns other errors: those of a registry or of
// the disk would meet each further version, too.
func (f *failures) keep(failure reconcile.Failure) error {
	err := failure.Err
	var refused *repo.RegistryError
	var disk *fs.PathError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.As(err, &disk),
		errors.As(err, &refused) && !errors.Is(err, errdef.ErrNotFound):
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, failure)
	return nil
}

// copyAll copies several versions concurrently.
func (c Copy) copyAll(ctx context.Context, src *source, dst *target, all []selected, failed *failures) ([]*pusher.Result, error) {
	b := newBatch(c.Push.Jobs, c.Progress.Done)
	for _, s := range all {
		for _, v := range s.versions {
			_ = b.add(func() (*pusher.Result, error) { // wait returns the first failure that is not kept
				result, err := c.copyOne(ctx, src, dst, s.Stored, v)
				return result, failed.keep(reconcile.Failure{Subject: s.Provider, Version: v, Err: err})
			})
		}
	}
	return b.wait(nil)
}

func (c Copy) copyOne(ctx context.Context, src *source, dst *target, from pusher.Stored, v provider.Version) (*pusher.Result, error) {
	if src.omits {
		from.Store = fromBoth{from.Store, from.Provider, v, dst}
	}
	result, err := dst.put(ctx, from, v, c.Platforms)
	return result, explainCopy(src, dst, from.Repository, err)
}

// explainCopy adds the hint of the registry that caused err. from is the repository of the source.
func explainCopy(src *source, dst *target, from ociaddr.Repository, err error) error {
	if refused := new(repo.RegistryError); errors.As(err, &refused) && refused.Repository == from {
		return Explain(src.registry, err)
	}
	return Explain(dst.registry, err)
}
