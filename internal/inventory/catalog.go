package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// maxRepositories bounds the catalog of a registry, which lists other repositories, too.
const maxRepositories = 100_000

// Unlisted is a registry, template or repository whose providers could not be listed.
type Unlisted struct {
	Where   string   `json:"where"`
	Problem *Problem `json:"error"`
}

// NothingFound is the error for a search that found no provider and could not list
// everything.
func NothingFound(skipped []Unlisted) error {
	return hint.New(fmt.Sprintf("%s cannot be listed: %s", skipped[0].Where, skipped[0].Problem.Message),
		"name the providers, such as registry.opentofu.org/hashicorp/null, or write provider blocks into ocibridge.hcl")
}

// Providers returns the providers whose repositories are in the catalogs of the registries
// that the templates name, and what it could not list.
func (i *Inventory) Providers(ctx context.Context) (out []provider.Address, skipped []Unlisted, err error) {
	skip := func(where string, err error) {
		skipped = append(skipped, Unlisted{where, problem(err)})
	}
	var asked []ociaddr.Registry
	seen := map[provider.Address]bool{{}: true}
	for _, t := range i.Templates {
		registry, ok := t.Registry()
		if !ok {
			skip(t.Source(), errors.New("its repositories are in more than one registry"))
			continue
		}
		if slices.Contains(asked, registry) {
			continue
		}
		asked = append(asked, registry)
		repositories, err := i.repositories(ctx, registry)
		if err != nil {
			skip(string(registry), err)
		}
		for _, repo := range repositories {
			a, err := i.owner(ctx, repo)
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

// repositories returns the catalog of a registry.
func (i *Inventory) repositories(ctx context.Context, registry ociaddr.Registry) ([]ociaddr.Repository, error) {
	client, err := i.Registry.Catalog(ctx, registry)
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
		return nil, i.Registry.Explain(err, ociaddr.Repository{Registry: registry})
	}
	return out, nil
}

// owner returns the provider that a repository belongs to, or the zero address if no
// template maps one to it. Where templates map several providers to the repository, the
// annotations of its versions decide.
func (i *Inventory) owner(ctx context.Context, repo ociaddr.Repository) (provider.Address, error) {
	var candidates []provider.Address
	for _, t := range i.Templates {
		for _, a := range t.Providers(repo) {
			if first, err := i.Templates.For(a); err == nil && first == t {
				candidates = append(candidates, a)
			}
		}
	}
	if len(candidates) < 2 {
		return slices.Concat(candidates, []provider.Address{{}})[0], nil
	}
	_, store, err := i.Registry.Repository(ctx, candidates[0])
	if err != nil {
		return provider.Address{}, err
	}
	tags, err := artifact.ListTags(ctx, store)
	if err != nil {
		return provider.Address{}, i.Registry.Explain(fmt.Errorf("list tags of %s: %w", repo, err), repo)
	}
	for _, a := range candidates {
		if annotated(ctx, store, tags, a) {
			return a, nil
		}
	}
	return provider.Address{}, hint.New(fmt.Sprintf("it may belong to %s or to %s, and does not say to which", candidates[0], candidates[1]),
		"name the provider, or let the template keep the parts of an address apart")
}

// annotated reports whether the annotations of a version name a provider. It stops at the
// first version that names another one.
func annotated(ctx context.Context, store artifact.ReferenceFetcher, tags []ociaddr.Tag, a provider.Address) bool {
	for _, t := range tags {
		v, ok := t.Version()
		if !ok {
			continue
		}
		found, err := artifact.Read(ctx, store, a, v)
		if errors.Is(err, artifact.ErrForeign) {
			return false
		}
		if err == nil && found.Provider == a {
			return true
		}
	}
	return false
}
