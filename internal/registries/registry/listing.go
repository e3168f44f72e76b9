package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/embedded"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// Unlisted describes a registry, template or repository whose providers or modules could not be
// listed.
type Unlisted struct {
	Where string
	Err   error

	catalog bool // Err concerns the catalog of a registry
}

// Failed reports whether a registry has failed to send its catalog. It is false if the registry has no catalog, or refuses it.
func (u Unlisted) Failed() bool {
	var answer *errcode.ErrorResponse
	switch {
	case !u.catalog:
		return false
	case !errors.As(u.Err, &answer):
		return true
	}
	return answer.StatusCode >= 500 && answer.StatusCode != http.StatusNotImplemented || answer.StatusCode == http.StatusTooManyRequests
}

// All returns the addresses of one kind whose repositories are in the catalogs of the templates' registries. unlisted
// says which registries, templates and repositories could not be listed. err is not nil only if the context has ended.
func (r *Repositories) All(ctx context.Context, kind subject.Kind) (out []subject.Address, unlisted []Unlisted, err error) {
	set := r.Templates.Of(kind)
	skip := func(where string, err error) {
		unlisted = append(unlisted, Unlisted{Where: where, Err: err})
	}
	var asked []ociaddr.Registry
	seen := map[subject.Address]bool{nil: true}
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
			unlisted = append(unlisted, Unlisted{string(registry), err, true})
		}
		for _, repo := range repositories {
			var candidates []subject.Address
			for _, t := range set {
				for _, a := range t.Addresses(repo) {
					if first, err := set.For(a); err == nil && first == t {
						candidates = append(candidates, a)
					}
				}
			}
			a, err := r.owner(ctx, repo, candidates)
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

// owner returns the candidate whose versions a repository contains. It returns nil if there are no candidates. If the
// templates assign the repository to several candidates, the annotations of the repository's versions decide.
func (r *Repositories) owner(ctx context.Context, repo ociaddr.Repository, candidates []subject.Address) (subject.Address, error) {
	switch len(candidates) {
	case 0:
		return nil, nil
	case 1:
		return candidates[0], nil
	}
	_, store, err := r.Repository(ctx, candidates[0])
	if err != nil {
		return nil, err
	}
	tags, err := artifact.ListTags(ctx, store)
	if err != nil {
		return nil, r.Explain(fmt.Errorf("list tags of %s: %w", repo, err), repo)
	}
	for _, a := range candidates {
		tagOf := ociaddr.TagsOf(a, tags)
		for _, v := range slices.SortedFunc(maps.Keys(tagOf), provider.Version.Compare) {
			found, err := artifact.ReadTagged(ctx, store, a, v, tagOf[v])
			if err == nil && found.Owner == a {
				return a, nil
			}
			if namesOther(err) {
				break // the version belongs to another candidate
			}
		}
	}
	return nil, hint.New(fmt.Sprintf("it may belong to %s or to %s, and does not say to which", candidates[0], candidates[1]),
		"give the full address, or let the template keep the parts of an address apart")
}

// namesOther reports whether err means that the content of a tag names another provider or module of the same kind.
// Content of the other kind belongs to no candidate, so namesOther then returns false.
func namesOther(err error) bool {
	return errors.Is(err, artifact.ErrForeign) && !errors.Is(err, artifact.ErrOtherKind)
}
