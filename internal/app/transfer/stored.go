package transfer

import (
	"context"
	"fmt"
	"slices"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

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
			"name the version exactly, also to complete a removal that was interrupted; a constraint does not select prereleases that it does not name")
	}
	return matches, nil
}
