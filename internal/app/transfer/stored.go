package transfer

import (
	"context"
	"fmt"
	"slices"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// StoredVersions returns all stored versions that match the constraint of a query, oldest first. The error wraps
// [origin.ErrVersionNotFound] if there are none.
func StoredVersions(ctx context.Context, r *registry.Repositories, q query.Query[provider.Address]) ([]provider.Version, error) {
	addr, repo, err := r.Repository(ctx, q.Address)
	if err != nil {
		return nil, err
	}
	have, err := pusher.Stored{Provider: q.Address, Repository: addr, Store: repo}.Versions(ctx)
	return matching(have, q, q.Address, addr, err)
}

// StoredModuleVersions is like StoredVersions, for a module.
func StoredModuleVersions(ctx context.Context, r *registry.Repositories, q query.Query[module.Address]) ([]provider.Version, error) {
	addr, repo, err := r.Repository(ctx, q.Address)
	if err != nil {
		return nil, err
	}
	have, err := pusher.StoredModule{Module: q.Address, Repository: addr, Store: repo}.Versions(ctx)
	return matching(have, q, q.Address, addr, err)
}

// matching returns the versions of what that a query selects. err is the error of the list.
func matching(have []provider.Version, q interface{ Has(provider.Version) bool }, what fmt.Stringer, in ociaddr.Repository, err error) ([]provider.Version, error) {
	if err != nil {
		return nil, err
	}
	matches := slices.DeleteFunc(have, func(v provider.Version) bool { return !q.Has(v) })
	if len(matches) == 0 {
		return nil, hint.Wrap(fmt.Errorf("%s: %w: no version in %s matches the constraint", what, origin.ErrVersionNotFound, in),
			"name the version exactly, also to complete a removal that was interrupted; a constraint does not select prereleases that it does not name")
	}
	return matches, nil
}
