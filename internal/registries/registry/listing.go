package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/embedded"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// Unlisted describes a registry, template or repository whose providers or modules could not be
// listed.
type Unlisted struct {
	Where string
	Err   error
}

// Providers returns the providers whose repositories are in the catalogs of the
// templates' registries. unlisted says which registries, templates and repositories
// could not be listed. err is not nil only if the context has ended.
func (r *Repositories) Providers(ctx context.Context) (out []provider.Address, unlisted []Unlisted, err error) {
	return discover(ctx, r, r.Templates, r.owner)
}

// Modules is like [Repositories.Providers], for modules.
func (r *Repositories) Modules(ctx context.Context) (out []module.Address, unlisted []Unlisted, err error) {
	return discover(ctx, r, r.ModuleTemplates, r.moduleOwner)
}

// discover returns the owners of the repositories in the catalogs of the templates'
// registries. The function owner returns the zero address for a repository that the templates
// assign to nothing.
func discover[A comparable, T interface {
	Registry() (ociaddr.Registry, bool)
	Source() string
}](ctx context.Context, r *Repositories, set []T, owner func(context.Context, ociaddr.Repository) (A, error)) (out []A, unlisted []Unlisted, err error) {
	skip := func(where string, err error) {
		unlisted = append(unlisted, Unlisted{where, err})
	}
	var asked []ociaddr.Registry
	var none A
	seen := map[A]bool{none: true}
	for _, t := range set {
		registry, ok := t.Registry()
		if !ok {
			skip(t.Source(), errors.New("its repositories are in more than one registry"))
			continue
		}
		if slices.Contains(asked, registry) {
			continue
		}
		asked = append(asked, registry)
		repositories, err := r.list(ctx, registry)
		if err != nil {
			skip(string(registry), err)
		}
		for _, repo := range repositories {
			a, err := owner(ctx, repo)
			if err != nil {
				skip(repo.String(), err)
			} else if !seen[a] {
				seen[a] = true
				out = append(out, a)
			}
		}
	}
	return out, unlisted, context.Cause(ctx)
}

// maxRepositories is the maximum number of repositories that list reads from a
// registry's catalog. The limit is high because a catalog may also list repositories
// without providers.
const maxRepositories = 100_000

// list returns the repositories in a registry's catalog. It skips repositories with
// invalid names.
func (r *Repositories) list(ctx context.Context, registry ociaddr.Registry) ([]ociaddr.Repository, error) {
	var client *remote.Registry
	var err error
	if registry == embedded.Host && r.Embedded != nil {
		client, err = r.Embedded.Catalog()
	} else {
		client, err = r.Client.Registry(ctx, registry)
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
		return nil, r.Explain(err, ociaddr.Repository{Registry: registry})
	}
	return out, nil
}

// owner returns the provider whose versions a repository contains. It returns the zero
// address if the templates assign the repository to no provider. If they assign it to
// several providers, the annotations of the repository's versions decide.
func (r *Repositories) owner(ctx context.Context, repo ociaddr.Repository) (provider.Address, error) {
	candidates := r.candidates(repo)
	if len(candidates) < 2 {
		return one(candidates), nil
	}
	_, store, err := r.Repository(ctx, candidates[0])
	if err != nil {
		return provider.Address{}, err
	}
	tags, err := artifact.ListTags(ctx, store)
	if err != nil {
		return provider.Address{}, r.Explain(fmt.Errorf("list tags of %s: %w", repo, err), repo)
	}
	for _, a := range candidates {
		if owns(ctx, store, tags, a) {
			return a, nil
		}
	}
	return provider.Address{}, ambiguous(candidates[0], candidates[1])
}

// one returns the only candidate, or the zero address without candidates.
func one[A any](candidates []A) (a A) {
	if len(candidates) == 1 {
		a = candidates[0]
	}
	return a
}

func ambiguous(a, b fmt.Stringer) error {
	return hint.New(fmt.Sprintf("it may belong to %s or to %s, and does not say to which", a, b),
		"give the full address, or let the template keep the parts of an address apart")
}

// moduleOwner is like owner, for modules.
func (r *Repositories) moduleOwner(ctx context.Context, repo ociaddr.Repository) (module.Address, error) {
	var candidates []module.Address
	for _, t := range r.ModuleTemplates {
		for _, a := range t.Modules(repo) {
			if first, err := r.ModuleTemplates.For(a); err == nil && first == t {
				candidates = append(candidates, a)
			}
		}
	}
	if len(candidates) < 2 {
		return one(candidates), nil
	}
	_, store, err := r.Repository(ctx, candidates[0])
	if err != nil {
		return module.Address{}, err
	}
	tags, err := artifact.ListTags(ctx, store)
	if err != nil {
		return module.Address{}, r.Explain(fmt.Errorf("list tags of %s: %w", repo, err), repo)
	}
	for _, a := range candidates {
		for v, tag := range ociaddr.ModuleTags(tags) {
			if m, err := artifact.ReadModuleTag(ctx, store, a, v, tag); err == nil && m.Address == a {
				return a, nil
			} else if namesOther(err) {
				break // the version belongs to another candidate
			}
		}
	}
	return module.Address{}, ambiguous(candidates[0], candidates[1])
}

// candidates returns the providers to which the templates assign the repository.
func (r *Repositories) candidates(repo ociaddr.Repository) (out []provider.Address) {
	for _, t := range r.Templates {
		for _, a := range t.Providers(repo) {
			if first, err := r.Templates.For(a); err == nil && first == t {
				out = append(out, a)
			}
		}
	}
	return out
}

// owns reports whether one of the tags is a version whose annotations name the
// provider. It returns false if a version belongs to another provider.
func owns(ctx context.Context, store artifact.ReferenceFetcher, tags []ociaddr.Tag, a provider.Address) bool {
	for _, t := range tags {
		v, ok := t.Version()
		if !ok {
			continue
		}
		found, err := artifact.Read(ctx, store, a, v)
		if err == nil && found.Provider == a {
			return true
		}
		if namesOther(err) {
			return false // the version belongs to another candidate
		}
	}
	return false
}

// namesOther reports whether the content of a tag names another provider or module. A module among providers, or a provider
// among modules, belongs to no candidate.
func namesOther(err error) bool {
	return errors.Is(err, artifact.ErrForeign) && !errors.Is(err, artifact.ErrOtherKind)
}
