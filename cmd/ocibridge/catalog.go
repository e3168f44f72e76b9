package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/registry"
	"github.com/ocibridge/ocibridge/internal/registry/embedded"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// providers returns the providers whose repositories are in the catalogs of the
// registries that templates name, and what could not be listed.
func (b *backend) providers(ctx context.Context) (out []provider.Address, skipped []registry.Unlisted, err error) {
	skip := func(where string, err error) {
		skipped = append(skipped, registry.Unlisted{Where: where, Err: err})
	}
	var asked []ociaddr.Registry
	seen := map[provider.Address]bool{{}: true}
	for _, t := range b.templates {
		host, ok := t.Registry()
		if !ok {
			skip(t.Source(), errors.New("its repositories are in more than one registry"))
			continue
		}
		if slices.Contains(asked, host) {
			continue
		}
		asked = append(asked, host)
		repositories, err := b.catalog(ctx, host)
		if err != nil {
			skip(string(host), err)
		}
		for _, repo := range repositories {
			a, err := b.owner(ctx, repo)
			if err != nil {
				skip(repo.String(), err)
			} else if !seen[a] {
				seen[a] = true
				out = append(out, a)
			}
		}
	}
	return out, skipped, context.Cause(ctx)
}

// maxRepositories bounds a catalog: what is not about providers is in it, too.
const maxRepositories = 100_000

// catalog returns the repositories of a registry.
func (b *backend) catalog(ctx context.Context, registry ociaddr.Registry) ([]ociaddr.Repository, error) {
	var client *remote.Registry
	var err error
	if registry == embedded.Host && b.embedded != nil {
		client, err = b.embedded.Catalog()
	} else {
		client, err = b.auth.Registry(ctx, registry)
	}
	if err != nil {
		return nil, err
	}
	var out []ociaddr.Repository
	pages := 0
	err = client.Repositories(ctx, "", func(names []string) error {
		if pages++; pages > artifact.MaxTagPages || len(out)+len(names) > maxRepositories {
			return fmt.Errorf("more than %d pages or %d repositories", artifact.MaxTagPages, maxRepositories)
		}
		for _, name := range names {
			if repo, err := ociaddr.ParseRepository(string(registry) + "/" + name); err == nil {
				out = append(out, repo)
			}
		}
		return nil
	})
	if err != nil {
		return nil, b.explain(err, ociaddr.Repository{Registry: registry})
	}
	return out, nil
}

// owner returns the provider that a repository is for; none if no template leads
// there. Where several may be meant, the repository itself says whose it is.
func (b *backend) owner(ctx context.Context, repo ociaddr.Repository) (provider.Address, error) {
	var candidates []provider.Address
	for _, t := range b.templates {
		for _, a := range t.Providers(repo) {
			if first, err := b.templates.For(a); err == nil && first == t {
				candidates = append(candidates, a)
			}
		}
	}
	if len(candidates) < 2 {
		return slices.Concat(candidates, []provider.Address{{}})[0], nil
	}
	_, store, err := b.repository(ctx, candidates[0])
	if err != nil {
		return provider.Address{}, err
	}
	tags, err := artifact.ListTags(ctx, store)
	if err != nil {
		return provider.Address{}, b.explain(fmt.Errorf("list tags of %s: %w", repo, err), repo)
	}
	for _, a := range candidates {
		for _, t := range tags {
			v, ok := t.Version()
			if !ok {
				continue
			}
			found, err := artifact.Read(ctx, store, a, v)
			if err == nil && found.Provider == a {
				return a, nil
			}
			if errors.Is(err, artifact.ErrForeign) {
				break // another candidate's
			}
		}
	}
	return provider.Address{}, hint.New(fmt.Sprintf("it may belong to %s or to %s, and does not say to which", candidates[0], candidates[1]),
		"name the provider, or let the template keep the parts of an address apart")
}
