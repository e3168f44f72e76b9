package registry

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/base/refusals"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/embedded"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/templates"
)

// Options configures which repositories hold the providers and modules.
type Options struct {
	// Templates name the repositories. If there are no templates, the embedded registry holds
	// everything. If only one kind has templates, the other kind has no repositories.
	Templates templates.Set
	// Auth holds the logins and settings for the templates' registries.
	Auth auth.Options
	// DataFolder is the data folder of the embedded registry. "" means that the user has
	// no data folder.
	DataFolder string
	// Reads is set if the caller only reads. Root may then use a data folder of another user.
	Reads bool
	Log   *slog.Logger
	// OpenEmbedded opens the embedded registry in the data folder. It returns the
	// registry and a function that closes the registry. nil means [embedded.Open].
	OpenEmbedded func(dataFolder string) (*embedded.Registry, func() error, error)
}

// Repositories gives access to the repositories of providers and modules. The repositories
// are in the registries that templates name, or in the embedded registry.
type Repositories struct {
	Templates templates.Set
	Client    *auth.Client       // nil if the embedded registry holds the providers and modules
	Embedded  *embedded.Registry // nil if templates name other registries

	close func() error // nil if there is nothing to close
}

// ErrNoDataFolder means that the embedded registry has no data folder: the user has no
// home folder and did not name a data folder.
var ErrNoDataFolder = hint.New("no folder for data: this user has no home folder", "name one with --data")

// Open opens the repositories. The caller must call [Repositories.Close].
func Open(o Options) (*Repositories, error) {
	if len(o.Templates) > 0 {
		o.Auth.Login.Log, o.Auth.Wire.Log = o.Log, o.Log
		if err := o.Auth.Validate(); err != nil {
			return nil, err
		}
		return &Repositories{Templates: o.Templates, Client: auth.New(o.Auth)}, nil
	}
	if o.DataFolder == "" {
		return nil, ErrNoDataFolder
	}
	r := &Repositories{}
	for _, kind := range subject.Kinds {
		t, err := templates.New(kind, string(embedded.Host)+"/"+templates.Whole(kind), subject.Selector{})
		if err != nil {
			return nil, err
		}
		r.Templates = append(r.Templates, t)
	}
	var err error
	if o.OpenEmbedded != nil {
		r.Embedded, r.close, err = o.OpenEmbedded(o.DataFolder)
	} else {
		open := embedded.Open
		if o.Reads {
			open = embedded.OpenToRead
		}
		if r.Embedded, err = open(o.DataFolder, o.Log); err == nil {
			r.close = r.Embedded.Close
		}
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Close closes the embedded registry. It does nothing if templates name other registries.
func (r *Repositories) Close() error {
	if r.close != nil {
		return r.close()
	}
	return nil
}

// Repository returns the address of the repository of a provider or a module, and a client for this
// repository. If no template assigns a repository to the address, Repository returns the zero address and
// an error.
func (r *Repositories) Repository(ctx context.Context, a subject.Address) (ociaddr.Repository, *remote.Repository, error) {
	return r.open(ctx, a, r.Client.Repository)
}

// RepositoryWithReferrers is like [Repositories.Repository], but the client can read and
// push referrers.
func (r *Repositories) RepositoryWithReferrers(ctx context.Context, a subject.Address) (ociaddr.Repository, *remote.Repository, error) {
	return r.open(ctx, a, r.Client.RepositoryWithReferrers)
}

func (r *Repositories) open(ctx context.Context, a subject.Address, client func(context.Context, ociaddr.Repository) (*remote.Repository, error)) (addr ociaddr.Repository, repo *remote.Repository, err error) {
	if addr, err = r.Templates.Repository(a); err != nil {
		return addr, nil, err
	}
	if r.Embedded != nil {
		repo, err = r.Embedded.Repository(addr.Name)
	} else {
		repo, err = client(ctx, addr)
	}
	return addr, repo, err
}

// Lock returns the function that locks the registry for a writer, see [embedded.Registry.Lock]. It
// returns nil if templates name other registries, because they protect new content themselves.
func (r *Repositories) Lock() func(ctx context.Context, doing string) (unlock func(), err error) {
	if r.Embedded == nil {
		return nil
	}
	return r.Embedded.Lock
}

// Keep returns the function that records that a push, sync or copy, and not pull-through, has stored a
// version, see Mark of [repo.Destination]. It returns nil if templates name other registries.
func (r *Repositories) Keep(repo ociaddr.Repository) func(tag ociaddr.Tag, before, after digest.Digest) error {
	if r.Embedded == nil {
		return nil
	}
	return func(tag ociaddr.Tag, _, _ digest.Digest) error { return r.Embedded.MarkKept(repo.Name, tag) }
}

// BlobRedirect returns the URL to which the registry of a provider or a module redirects requests for
// a blob. The result is "" if the registry does not redirect, or if the configuration
// does not allow callers to pass redirects of this registry on to clients.
func (r *Repositories) BlobRedirect(ctx context.Context, a subject.Address, blob ocispec.Descriptor) (string, error) {
	addr, err := r.Templates.Repository(a)
	if err != nil || r.Client == nil || !r.Client.Connections.Settings(addr.Registry).RedirectsBlobs {
		return "", err
	}
	repo, err := r.Client.Repository(ctx, addr)
	if err != nil {
		return "", err
	}
	return r.Client.Connections.BlobRedirect(ctx, repo, blob.Digest)
}

// Explain adds a hint to err, an error from a request for the repository.
func (r *Repositories) Explain(err error, repo ociaddr.Repository) error {
	if r.Client == nil {
		return r.Embedded.Explain(err)
	}
	return r.Client.Explain(err, repo)
}

// ExplainFor is like [Repositories.Explain], for the repository of a provider or a module. It returns
// err unchanged if there is no repository. If err may mean that nothing has been pushed yet, ExplainFor
// adds to the hint the command that pushes the provider or module.
func (r *Repositories) ExplainFor(a subject.Address, err error) error {
	repo, rerr := r.Templates.Repository(a)
	if rerr != nil {
		return err
	}
	err = r.Explain(err, repo)
	if h := hint.Of(err); h != "" && refusals.MaybeAbsent(err) {
		return hint.Replace(err, "if nobody has pushed it yet: "+subject.TraitsOf(a).Push+". Otherwise: %s", a, h)
	}
	return err
}

// Registries returns the registries that the templates name, except the embedded
// registry. It omits a template whose repositories are in more than one registry.
func (r *Repositories) Registries() (out []ociaddr.Registry) {
	for _, t := range r.Templates {
		if name, ok := t.Registry(); ok && name != embedded.Host && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// Reachable sends a request to each of [Repositories.Registries]. It returns the number of
// registries that responded, and the total number. err contains the errors of the registries
// that did not respond. For the embedded registry, Reachable checks the data folder.
func (r *Repositories) Reachable(ctx context.Context) (reachable, asked int, err error) {
	if r.Embedded != nil {
		if _, err := r.Embedded.Catalog(); err != nil {
			return 0, 1, err
		}
		return 1, 1, nil
	}
	registries := r.Registries()
	errs := make([]error, len(registries))
	var asking panics.Group
	for i, name := range registries {
		asking.Go(func() error { errs[i] = r.Client.Connections.Reachable(ctx, name); return nil })
	}
	_ = asking.Wait() // its functions return nil
	for _, err := range errs {
		if err == nil {
			reachable++
		}
	}
	return reachable, len(registries), errors.Join(errs...)
}

// NoRepository reports whether err means that the templates assign no repository to a
// provider or module.
func NoRepository(err error) bool {
	return errors.Is(err, templates.ErrNotSelected) || errors.Is(err, templates.ErrNoRepository)
}
