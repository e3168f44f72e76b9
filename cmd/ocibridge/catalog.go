package main

import (
	"context"

	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/internal/inventory"
	"github.com/ocibridge/ocibridge/internal/registry/embedded"
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

// Catalog implements [inventory.Registry].
func (r repositories) Catalog(ctx context.Context, registry ociaddr.Registry) (*remote.Registry, error) {
	if registry == embedded.Host && r.embedded != nil {
		return r.embedded.Catalog()
	}
	return r.auth.Registry(ctx, registry)
}

// Explain implements [inventory.Registry].
func (r repositories) Explain(err error, repo ociaddr.Repository) error { return r.explain(err, repo) }

// inventory returns the content of the backend's registries.
func (b *backend) inventory(configured []provider.Address, jobs int) *inventory.Inventory {
	return &inventory.Inventory{Registry: repositories{b}, Templates: b.templates, Configured: configured, Jobs: jobs}
}
