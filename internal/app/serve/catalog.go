package serve

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
)

// embeddedTTL is the default tag_ttl with the embedded registry. With this value, the
// catalog caches no tags, so a pushed version is visible immediately.
const embeddedTTL = -1

// newCatalog creates the catalog, which reads the repositories and uses pull-through. The
// site closes the catalog.
func (s *site) newCatalog() (*catalog.Catalog, error) {
	g := s.settings.gateway()
	o := catalog.Options{
		Repository: s.store, Account: s.account,
		FreshToken: wire.WithFreshToken, Deny: g.Deny,
		TagTTL: g.TagTTL, StaleIfError: g.StaleIfError, Counters: &s.ops.metrics.Catalog, Log: s.log,
	}
	if g.VerifyRequired {
		s.requireEvidence(&o)
	}
	if s.puller != nil {
		o.Origin = s.puller
	}
	if s.repositories.Embedded != nil && g.TagTTL == 0 {
		o.TagTTL = embeddedTTL
	}
	if g.Redirect {
		o.Redirect = s.repositories.BlobRedirect
	}
	if s.cacheFolder != "" {
		o.Directory = filepath.Join(s.cacheFolder, catalogFolder)
	}
	c, err := catalog.New(o)
	if err == nil {
		s.onClose(c.Close)
	}
	return c, err
}

// store returns the repository of a provider or a module as a read-only store. The error wraps
// [catalog.ErrNotServed] if no repository is configured for it.
func (s *site) store(ctx context.Context, a subject.Address) (catalog.Store, error) {
	_, repo, err := s.repositories.Repository(ctx, a)
	switch {
	case registry.NoRepository(err):
		return nil, fmt.Errorf("%w: %w", catalog.ErrNotServed, err)
	case err != nil:
		return nil, err
	}
	repo.Client = catalog.Conditional(repo.Client)
	return registry.ReadOnly{Repository: repo}, nil
}

// account returns the repository of a provider or a module, and the login that the gateway uses for
// this repository. The result is empty if there is no repository.
func (s *site) account(a subject.Address) catalog.Account {
	repo, err := s.repositories.AddressOf(a)
	if err != nil {
		return catalog.Account{}
	}
	out := catalog.Account{Repository: repo.String()}
	if client := s.repositories.Client; client != nil {
		out.Name, out.DeniedMeansAbsent = client.Account(repo), client.Connections.Settings(repo.Registry).DeniedMeansAbsent
	}
	return out
}
