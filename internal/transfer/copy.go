package transfer

import (
	"context"
	"errors"
	"fmt"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/query"
	"github.com/ocibridge/ocibridge/internal/registry"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// Copy copies stored versions from one location to another.
type Copy struct {
	From, To  Location
	Since     Location      // what the destination of a bundle has, so that To can omit it; zero: nothing
	Queries   []query.Query // the versions to copy; empty for all versions
	All       bool          // copy every version that matches a constraint, and not only the newest
	Platforms []provider.Platform
	// Configured lists the providers to copy from a registry if Queries is empty. If
	// Configured is empty too, the copy includes all providers in the registry's catalog.
	Configured []provider.Address
	// DryRun returns the results that the copy would have, and writes nothing. The referrers
	// are not planned.
	DryRun bool
	// Push contains the policy, the number of jobs and the referrers option.
	Push     pusher.Options
	Progress Progress
	// Open opens the registries at a location for the given providers.
	Open func(at Location, providers []provider.Address) (*registry.Repositories, error)
}

// ErrSameRepository means that the source and the target of a provider are the same
// repository.
var ErrSameRepository = errors.New("would be copied to the same repository")

// source is an open location to copy from.
type source struct {
	registry  *registry.Repositories // nil if the location is not a registry
	providers func(context.Context) ([]provider.Address, error)
	stored    func(context.Context, provider.Address) (pusher.Stored, error)
	omits     bool // the location is a bundle that omits packages
	close     func() error
}

// target is an open location to copy to.
type target struct {
	registry *registry.Repositories // nil if the location is not a registry
	put      func(ctx context.Context, from pusher.Stored, v provider.Version, platforms []provider.Platform) (*pusher.Result, error)
	save     func(context.Context) error // nil if the location is complete after each version
	close    func() error
	// destination opens the repository of a provider. It is nil for a mirror folder.
	destination func(context.Context, provider.Address) (pusher.Destination, error)
	name        string // for messages
}

// selected is a stored provider, and its versions that will be copied.
type selected struct {
	pusher.Stored
	versions []provider.Version
}

// Run copies the versions, and returns the results. It opens the target only after it has
// selected the versions. Therefore it creates no target if there is nothing to copy.
func (c Copy) Run(ctx context.Context) ([]*pusher.Result, error) {
	named := query.Addresses(c.Queries)
	if len(named) == 0 && !c.From.IsBundle() {
		named = c.Configured
	}
	src, err := c.openSource(ctx, named)
	if err != nil {
		return nil, err
	}
	defer src.close()
	all, err := c.selectVersions(ctx, src, named)
	if err != nil {
		return nil, err
	}
	dst, err := c.openTarget(ctx, all)
	if err != nil {
		return nil, err
	}
	defer dst.close()
	results, err := c.copyAll(ctx, src, dst, all)
	if err == nil && dst.save != nil {
		err = dst.save(ctx)
	}
	return results, err
}

// selectVersions lists the versions in the source, and returns those that the queries
// select. If there are no queries, it returns all versions of the named providers. If no
// provider is named either, it returns all versions of all providers.
func (c Copy) selectVersions(ctx context.Context, src *source, named []provider.Address) ([]selected, error) {
	queries := c.Queries
	if len(queries) == 0 {
		if len(named) == 0 {
			var err error
			if named, err = src.providers(ctx); err != nil {
				return nil, err
			}
		}
		for _, a := range named {
			queries = append(queries, query.Query{Provider: a})
		}
	}
	var out []selected
	for _, q := range queries {
		stored, err := src.stored(ctx, q.Provider)
		if err != nil {
			return nil, err
		}
		var have []provider.Version
		if q.Version.IsZero() {
			if have, err = stored.Versions(ctx); err != nil {
				return nil, Explain(src.registry, err)
			}
		}
		versions := newest(q, have, c.All)
		switch {
		case len(versions) > 0:
			out = append(out, selected{stored, versions})
		case len(c.Queries) == 0:
			c.Progress.Warn(fmt.Sprintf("%s has no version of %s", stored.Repository, q.Provider))
		case len(have) == 0:
			return nil, hint.Wrap(fmt.Errorf("%s: %w in %s", q.Provider, origin.ErrProviderNotFound, stored.Repository), "check its spelling, and that --from names the place that has it")
		default:
			return nil, hint.Wrap(fmt.Errorf("%s %s: %w: nothing in %s matches", q.Provider, q.Versions, origin.ErrVersionNotFound, stored.Repository),
				"the newest version there is %s; a prerelease must be named exactly", have[len(have)-1])
		}
	}
	if len(out) == 0 {
		return nil, hint.New("there is nothing to copy", "ocibridge push or sync stores providers; --from says where to look")
	}
	return out, nil
}

// copyAll copies several versions concurrently.
func (c Copy) copyAll(ctx context.Context, src *source, dst *target, all []selected) ([]*pusher.Result, error) {
	b := newBatch(c.Push.Jobs, c.Progress.Done)
	for _, s := range all {
		for _, v := range s.versions {
			_ = b.add(func() (*pusher.Result, error) { return c.copyOne(ctx, src, dst, s.Stored, v) }) // wait returns the first failure
		}
	}
	return b.wait(nil)
}

func (c Copy) copyOne(ctx context.Context, src *source, dst *target, from pusher.Stored, v provider.Version) (*pusher.Result, error) {
	if src.omits {
		from.Store = fromBoth{from.Store, from.Provider, v, dst}
	}
	result, err := dst.put(ctx, from, v, c.Platforms)
	if refused := new(pusher.RegistryError); errors.As(err, &refused) && refused.Repository == from.Repository {
		return nil, Explain(src.registry, err)
	}
	return result, Explain(dst.registry, err)
}
