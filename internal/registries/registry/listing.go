package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/embedded"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
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
	return discover(ctx, r, r.Templates, (*templates.Template).Providers, r.Templates.For)
}

// Modules is like [Repositories.Providers], for modules.
func (r *Repositories) Modules(ctx context.Context) (out []module.Address, unlisted []Unlisted, err error) {
	return discover(ctx, r, r.ModuleTemplates, (*templates.ModuleTemplate).Modules, r.ModuleTemplates.For)
}

// template is a template of providers or of modules.
type template interface {
	comparable
	Registry() (ociaddr.Registry, bool)
	Source() string
}

// address is the address of a provider or a module.
type address interface {
	comparable
	subject.Address
}

// discover returns the owners of the repositories in the catalogs of the templates'
// registries. The function of returns the addresses that a template maps to a repository, and
// first returns the template that selects an address.
func discover[A address, T template](ctx context.Context, r *Repositories, set []T, of func(T, ociaddr.Repository) []A, first func(A) (T, error)) (out []A, unlisted []Unlisted, err error) {
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
			var candidates []A
			for _, t := range set {
				for _, a := range of(t, repo) {
					if selects, err := first(a); err == nil && selects == t {
						candidates = append(candidates, a)
					}
				}
			}
			a, err := owner(ctx, r, repo, candidates)
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

// owner returns the candidate whose versions a repository contains. It returns the zero
// address without candidates. If the templates assign the repository to several candidates, the
// annotations of the repository's versions decide.
func owner[A address](ctx context.Context, r *Repositories, repo ociaddr.Repository, candidates []A) (none A, err error) {
	switch len(candidates) {
	case 0:
		return none, nil
	case 1:
		return candidates[0], nil
	}
	_, store, err := r.Repository(ctx, candidates[0])
	if err != nil {
		return none, err
	}
	tags, err := artifact.ListTags(ctx, store)
	if err != nil {
		return none, r.Explain(fmt.Errorf("list tags of %s: %w", repo, err), repo)
	}
	for _, a := range candidates {
		tagOf := ociaddr.TagsOf(a, tags)
		for _, v := range slices.SortedFunc(maps.Keys(tagOf), provider.Version.Compare) {
			found, err := artifact.ReadTagged(ctx, store, a, v, tagOf[v])
			if err == nil && found.Owner == subject.Address(a) {
				return a, nil
			}
			if namesOther(err) {
				break // the version belongs to another candidate
			}
		}
	}
	return none, hint.New(fmt.Sprintf("it may belong to %s or to %s, and does not say to which", candidates[0], candidates[1]),
		"give the full address, or let the template keep the parts of an address apart")
}

// namesOther reports whether the content of a tag names another provider or module. A module among providers, or a provider
// among modules, belongs to no candidate.
func namesOther(err error) bool {
	return errors.Is(err, artifact.ErrForeign) && !errors.Is(err, artifact.ErrOtherKind)
}
