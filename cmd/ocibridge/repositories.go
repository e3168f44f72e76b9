package main

import (
	"context"

	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/internal/inventory"
	"github.com/ocibridge/ocibridge/internal/registry"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// repositories is a backend as packages use it.
type repositories struct{ *backend }

var _ inventory.Registry = repositories{}

// Repository implements [inventory.Registry].
func (r repositories) Repository(ctx context.Context, a provider.Address) (ociaddr.Repository, *remote.Repository, error) {
	return r.repository(ctx, a)
}

// Providers implements [inventory.Registry].
func (r repositories) Providers(ctx context.Context) ([]provider.Address, []registry.Unlisted, error) {
	return r.providers(ctx)
}

// Explain implements [inventory.Registry].
func (r repositories) Explain(err error, repo ociaddr.Repository) error { return r.explain(err, repo) }
