package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
)

// embeddedTTL is the default tag_ttl with the embedded registry: no tags are cached, so a pushed version is visible at once.
const embeddedTTL = -1

// openCatalog creates the catalog, which reads the repositories and uses pull-through.
func (s *site) openCatalog() (err error) {
	g := s.settings.gateway()
	o := catalog.Options{
		Repository: s.store, Account: s.account,
		FreshToken: wire.WithFreshToken, Deny: g.Deny, Deprecate: g.Deprecate,
		TagTTL: g.TagTTL, StaleIfError: g.StaleIfError, Counters: &s.ops.metrics.Catalog, Log: s.log,
	}
	if g.VerifyRequired {
		s.requireEvidence(&o)
	}
	s.requireApprovals(&o)
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
	if s.catalog, err = catalog.New(o); err == nil {
		s.onClose(s.catalog.Close)
	}
	return err
}

// store returns the repository of a provider or a module as a read-only store. The error wraps [catalog.ErrNotServed] if no
// repository is configured for it.
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

// account returns the repository of a provider or a module, if there is one, and the login that the gateway uses for it.
func (s *site) account(a subject.Address) catalog.Account {
	repo, err := s.repositories.Templates.Repository(a)
	if err != nil {
		return catalog.Account{}
	}
	out := catalog.Account{Repository: repo.String()}
	if client := s.repositories.Client; client != nil {
		out.Name, out.DeniedMeansAbsent = client.Account(repo), client.Connections.Settings(repo.Registry).DeniedMeansAbsent
	}
	return out
}

// The folders in the cache's folder, next to the packages.
const (
	catalogFolder = "catalog" // the registry's answers about versions
	originsFolder = "origins" // the lists of origins
	spoolFolder   = "pull"    // packages that are pulled through
)

const cacheHint = "name a folder that the user who runs this may write to, as directory in the cache block"

// openCache opens the cache, unless it is off. If the default folder of the cache cannot be used, openCache logs a warning,
// and the gateway has no cache. If the configuration names the folder, the failure is an error.
func (s *site) openCache() error {
	g := s.settings.gateway()
	c := g.EffectiveCache(s.repositories.Embedded != nil, s.settings.CacheFolder)
	if !c.Enabled {
		return nil
	}
	if g.Cache != nil && g.Cache.Directory != "" {
		return s.openCacheIn(c)
	}
	err := errors.New("this user has no cache folder")
	if c.Directory != "" {
		if err = s.openCacheIn(c); err == nil {
			err = s.makeFolders(c.Directory)
		}
	}
	if err != nil {
		s.cache, s.cacheFolder = nil, ""
		s.log.Warn("there is no cache on disk: its default folder cannot be used", "folder", c.Directory, "err", hint.OneLine(err.Error()),
			"hint", cmp.Or(hint.Of(err), cacheHint)+"; or turn the cache off with --no-cache")
	}
	return nil
}

// makeFolders creates the folders beside the packages in the cache's folder.
func (s *site) makeFolders(dir string) error {
	for _, name := range []string{catalogFolder, originsFolder, spoolFolder} {
		if err := privatefolder.Make(filepath.Join(dir, name), s.log); err != nil {
			return err
		}
	}
	return nil
}

// openCacheIn opens the cache in a folder. If evidence is required, the cache computes the h1 hashes itself, because the
// gateway does not trust the h1 hashes in the registry.
func (s *site) openCacheIn(c config.Cache) error {
	g := s.settings.gateway()
	err := privatefolder.MakeBelow(s.settings.Repositories.DataFolder, c.Directory, s.log)
	if err == nil {
		err = privatefolder.MakeAsIs(c.Directory)
	}
	if err != nil {
		return hint.Wrap(fmt.Errorf("the cache in %s cannot be used: %w", c.Directory, err), cacheHint)
	}
	type key struct {
		config.Cache
		h1 bool
	}
	cache, err := shared(s, key{c, g.VerifyRequired}, func() (*archives.Cache, error) {
		return archives.OpenCache(c.Directory, c.MaxSize, archives.CacheOptions{Log: s.log, H1: g.VerifyRequired, Counters: &s.ops.metrics.Archives})
	})
	if err == nil {
		s.cache, s.cacheFolder = cache, c.Directory
	}
	return err
}
