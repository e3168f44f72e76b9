package registry

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/registry/embedded"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
)

// Options say which repositories hold the providers.
type Options struct {
	// Templates name the repositories. If there are no templates, the embedded registry
	// holds the providers.
	Templates templates.Set
	// Auth holds the logins and settings for the templates' registries.
	Auth auth.Options
	// DataFolder is the parent of the embedded registry's folder; "" if there is none.
	DataFolder string
	Log        *slog.Logger
	// OpenEmbedded opens the embedded registry in the data folder, and returns a function
	// that closes it. nil means [embedded.Open].
	OpenEmbedded func(dataFolder string) (*embedded.Registry, func() error, error)
}

// Repositories are the repositories of providers, in the registries that templates name
// or in the embedded registry.
type Repositories struct {
	Templates templates.Set
	Client    *auth.Client       // nil with the embedded registry
	Embedded  *embedded.Registry // nil if templates name other registries

	close func() error // nil if there is nothing to close
}

// ErrNoDataFolder means that nothing names a folder for data.
var ErrNoDataFolder = hint.New("no folder for data: this user has no home folder", "name one with --data")

// Open opens the repositories. The caller closes them.
func Open(o Options) (*Repositories, error) {
	if len(o.Templates) > 0 {
		o.Auth.Log = o.Log
		if err := o.Auth.Validate(); err != nil {
			return nil, err
		}
		return &Repositories{Templates: o.Templates, Client: auth.New(o.Auth)}, nil
	}
	if o.DataFolder == "" {
		return nil, ErrNoDataFolder
	}
	t, err := templates.Parse(string(embedded.Host)+"/"+embedded.Template, provider.Selector{})
	if err != nil {
		return nil, err
	}
	r := &Repositories{Templates: templates.Set{t}}
	if o.OpenEmbedded != nil {
		r.Embedded, r.close, err = o.OpenEmbedded(o.DataFolder)
	} else if r.Embedded, err = embedded.Open(o.DataFolder, o.Log); err == nil {
		r.close = r.Embedded.Close
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Close closes the embedded registry.
func (r *Repositories) Close() error {
	if r.close != nil {
		return r.close()
	}
	return nil
}

// Repository returns the address of a provider's repository and a client for it. The
// address is zero if no template gives a repository for the provider.
func (r *Repositories) Repository(ctx context.Context, a provider.Address) (ociaddr.Repository, *remote.Repository, error) {
	return r.open(ctx, a, r.Client.Repository)
}

// RepositoryWithReferrers is [Repositories.Repository] for a client that copies
// referrers.
func (r *Repositories) RepositoryWithReferrers(ctx context.Context, a provider.Address) (ociaddr.Repository, *remote.Repository, error) {
	return r.open(ctx, a, r.Client.RepositoryWithReferrers)
}

func (r *Repositories) open(ctx context.Context, a provider.Address, client func(context.Context, ociaddr.Repository) (*remote.Repository, error)) (ociaddr.Repository, *remote.Repository, error) {
	addr, err := r.Templates.Repository(a)
	if err != nil {
		return addr, nil, err
	}
	var repo *remote.Repository
	if r.Embedded != nil {
		repo, err = r.Embedded.Repository(addr.Name)
	} else {
		repo, err = client(ctx, addr)
	}
	return addr, repo, err
}

// BlobRedirect returns the URL to which a provider's registry redirects requests for a
// blob. The result is "" unless the configuration allows redirects to be passed on for
// this registry.
func (r *Repositories) BlobRedirect(ctx context.Context, a provider.Address, blob ocispec.Descriptor) (string, error) {
	addr, err := r.Templates.Repository(a)
	if err != nil || r.Client == nil || !r.Client.Settings(addr.Registry).RedirectsBlobs {
		return "", err
	}
	return r.Client.BlobRedirect(ctx, addr, blob)
}

// Explain adds a hint to a registry's refusal of a request for a repository.
func (r *Repositories) Explain(err error, repo ociaddr.Repository) error {
	if r.Client == nil {
		return r.Embedded.Explain(err)
	}
	return r.Client.Explain(err, repo)
}

// ExplainFor is [Repositories.Explain] for a provider's repository.
func (r *Repositories) ExplainFor(a provider.Address, err error) error {
	repo, rerr := r.Templates.Repository(a)
	if rerr != nil {
		return err
	}
	return r.Explain(err, repo)
}

// Registries returns the registries that the templates name, without the embedded one.
func (r *Repositories) Registries() (out []ociaddr.Registry) {
	for _, t := range r.Templates {
		if name, ok := t.Registry(); ok && name != embedded.Host && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// Reachable sends a request to each registry, and returns how many of them answered. The
// error says why the others did not. It skips a template whose repositories are in more
// than one registry.
func (r *Repositories) Reachable(ctx context.Context) (reachable, asked int, err error) {
	if r.Embedded != nil {
		if _, err := r.Embedded.Catalog(); err != nil {
			return 0, 1, err
		}
		return 1, 1, nil
	}
	registries := r.Registries()
	errs := make([]error, len(registries))
	var wg sync.WaitGroup
	for i, name := range registries {
		wg.Go(func() { errs[i] = r.Client.Reachable(ctx, name) })
	}
	wg.Wait()
	for _, err := range errs {
		if err == nil {
			reachable++
		}
	}
	return reachable, len(registries), errors.Join(errs...)
}

// NoRepository reports whether an error means that a provider cannot have a repository.
func NoRepository(err error) bool {
	return errors.Is(err, templates.ErrNotSelected) || errors.Is(err, templates.ErrNoRepository)
}
