package serve

import (
	"context"
	"fmt"
	"path/filepath"

	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/registry"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// embeddedTTL is the default tag_ttl with the embedded registry. With this value, the
// catalog caches no tags, so a pushed version is visible immediately.
const embeddedTTL = -1

// newCatalog creates the catalog, which reads the repositories and uses pull-through. The
// site closes the catalog.
func (s *site) newCatalog() (*catalog.Catalog, error) {
	g := s.settings.gateway()
	o := catalog.Options{
		Repository: s.store, Account: s.account, FreshToken: auth.WithFreshToken, Deny: g.Deny,
		Modules: catalog.ModuleOptions{Repository: s.moduleStore, Account: s.moduleAccount},
		TagTTL:  g.TagTTL, StaleIfError: g.StaleIfError, Counters: &s.ops.metrics.Catalog, Log: s.log,
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
		o.Redirect, o.Modules.Redirect = s.repositories.BlobRedirect, s.repositories.ModuleRedirect
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

// store returns the repository of a provider as a read-only store. The error wraps
// [catalog.ErrNotServed] if no repository is configured for the provider.
func (s *site) store(ctx context.Context, a provider.Address) (catalog.Store, error) {
	_, repo, err := s.repositories.Repository(ctx, a)
	return readOnly(repo, err)
}

// moduleStore is like [site.store], for a module.
func (s *site) moduleStore(ctx context.Context, a module.Address) (catalog.Store, error) {
	_, repo, err := s.repositories.Module(ctx, a)
	return readOnly(repo, err)
}

func readOnly(repo *remote.Repository, err error) (catalog.Store, error) {
	switch {
	case registry.NoRepository(err):
		return nil, fmt.Errorf("%w: %w", catalog.ErrNotServed, err)
	case err != nil:
		return nil, err
	}
	repo.Client = catalog.Conditional(repo.Client)
	return registry.ReadOnly{Repository: repo}, nil
}

// account returns the repository of a provider, and the login that the gateway uses for
// this repository. The result is empty if the provider has no repository.
func (s *site) account(a provider.Address) catalog.Account {
	return s.accountOf(s.repositories.Templates.Repository(a))
}

// moduleAccount is like [site.account], for a module.
func (s *site) moduleAccount(a module.Address) catalog.Account {
	return s.accountOf(s.repositories.ModuleTemplates.Repository(a))
}

func (s *site) accountOf(repo ociaddr.Repository, err error) catalog.Account {
	if err != nil {
		return catalog.Account{}
	}
	out := catalog.Account{Repository: repo.String()}
	if client := s.repositories.Client; client != nil {
		out.Name, out.DeniedMeansAbsent = client.Account(repo), client.Settings(repo.Registry).DeniedMeansAbsent
	}
	return out
}
