package transfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/bundle"
	"github.com/ocibridge/ocibridge/internal/registries/inventory"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// Location is a place that holds versions, such as the source or the target of a copy.
type Location struct {
	Kind Kind
	Name string // the template, folder or file
}

// Kind is the kind of a location.
type Kind string

const (
	Configured Kind = "" // the configured registry
	Template   Kind = "template"
	Embedded   Kind = "embedded"
	Folder     Kind = "oci"         // a bundle in a folder
	Archive    Kind = "oci-archive" // a bundle in a tar file
	Mirror     Kind = "mirror"      // a mirror folder
)

// String returns the location of a bundle or a mirror folder as users write it.
func (l Location) String() string { return string(l.Kind) + ":" + l.Name }

// IsBundle reports whether the location is a bundle.
func (l Location) IsBundle() bool { return l.Kind == Folder || l.Kind == Archive }

// ParseLocation parses the value of a flag that names a location. Errors name the flag.
func ParseLocation(flag, s string) (Location, error) {
	if s == "" || s == string(Embedded) {
		return Location{Kind: Kind(s)}, nil
	}
	for _, kind := range []Kind{Folder, Archive, Mirror} {
		if name, ok := strings.CutPrefix(s, string(kind)+":"); ok {
			if name == "" {
				return Location{}, hint.New(fmt.Sprintf("%s %s names nothing", flag, s), "write the name behind the colon, such as %sproviders", s)
			}
			return Location{kind, name}, nil
		}
	}
	if strings.HasSuffix(s, ".tar") && !strings.Contains(s, "$") {
		return Location{}, hint.New(fmt.Sprintf("%s %s is no place", flag, s), "a bundle in a file is %s:%s", Archive, s)
	}
	if !strings.Contains(s, "/") || strings.HasPrefix(s, ".") || strings.HasPrefix(s, "/") {
		return Location{}, hint.New(fmt.Sprintf("%s %s is no place", flag, s), "it is a repository template, embedded, oci:DIR, oci-archive:FILE or mirror:DIR")
	}
	return Location{Template, s}, nil
}

// repository returns a name for the part of a bundle that belongs to one provider or module. The
// name has the form of a repository's address.
func (l Location) repository(a subject.Address) ociaddr.Repository {
	return ociaddr.Repository{Registry: ociaddr.Registry(l.String()), Name: a.Path()}
}

// Bundle is an open bundle that package inventory can read.
type Bundle struct {
	*bundle.Bundle
	at Location
}

var _ inventory.Registry = Bundle{}

// OpenBundle opens the bundle at a location.
func (l Location) OpenBundle(ctx context.Context) (Bundle, error) {
	b, err := bundle.Open(ctx, l.Name, l.Kind == Archive)
	return Bundle{b, l}, err
}

// Repository returns the repository of a provider or a module. The repository can be empty.
func (b Bundle) Repository(_ context.Context, a subject.Address) (ociaddr.Repository, inventory.Store, error) {
	return b.at.repository(a), b.Bundle.Repository(a), nil
}

// All returns the addresses of one kind that have versions in the bundle.
func (b Bundle) All(_ context.Context, kind subject.Kind) ([]subject.Address, []registry.Unlisted, error) {
	return b.Bundle.All(kind), nil, nil
}

// ExplainFor returns err unchanged, because no registry refuses anything.
func (b Bundle) ExplainFor(_ subject.Address, err error) error { return err }

func (c Copy) openSource(ctx context.Context, named []subject.Address) (*source, error) {
	if c.From.IsBundle() {
		b, err := bundle.Open(ctx, c.From.Name, c.From.Kind == Archive)
		if err != nil {
			return nil, err
		}
		omitted, _ := b.Omitted()
		return &source{
			all: func(_ context.Context, kind subject.Kind) ([]subject.Address, error) { return b.All(kind), nil },
			open: func(_ context.Context, a subject.Address) (pusher.Stored, error) {
				return pusher.Stored{Subject: a, Repository: c.From.repository(a), Store: b.Repository(a)}, nil
			},
			omits: omitted > 0,
			close: b.Close,
		}, nil
	}
	r, err := c.Open(c.From, named)
	if err != nil {
		return nil, err
	}
	return &source{
		registry: r,
		all: func(ctx context.Context, kind subject.Kind) ([]subject.Address, error) {
			if kind.Traits().Origins {
				found, skipped, err := (&inventory.Inventory[provider.Address]{Kind: inventory.Providers, Registry: inventory.Remote{Repositories: r}}).All(ctx)
				for _, u := range skipped {
					c.Progress.Warn(u.Warning())
				}
				return subject.List(found), err
			}
			found, skipped, err := r.All(ctx, kind)
			for _, u := range skipped {
				c.Progress.Warn(fmt.Sprintf("%s cannot be listed, so its %s are not copied: %v", u.Where, kind.Traits().Plural, u.Err))
			}
			return found, err
		},
		open: func(ctx context.Context, a subject.Address) (pusher.Stored, error) {
			addr, repo, err := r.RepositoryWithReferrers(ctx, a)
			return pusher.Stored{Subject: a, Repository: addr, Store: repo}, err
		},
		close: r.Close,
	}, nil
}

// openTarget opens the target of a selection. If the copy includes everything, openTarget removes
// from the selection what the target has no place for, and warns.
func (c Copy) openTarget(ctx context.Context, all selection) (*target, error) {
	o := c.Push
	if !c.DryRun {
		o.OnEvent = c.Progress.Event
	}
	switch {
	case c.To.IsBundle():
		return c.openBundle(ctx, o)
	case c.To.Kind == Mirror:
		for _, kind := range subject.Kinds {
			if kind.Traits().Origins {
				continue
			}
			many := kind.Traits().Plural
			if err := c.leave(all, kind, hint.New(c.To.String()+" is for providers: a mirror folder has no "+many, "copy %s to a registry or a bundle", many)); err != nil {
				return nil, err
			}
		}
		return c.openMirror(o)
	}
	return c.openRegistry(ctx, all, o)
}

func (c Copy) openBundle(ctx context.Context, o pusher.Options) (*target, error) {
	since, err := c.openSince(ctx)
	if err != nil {
		return nil, err
	}
	create := bundle.Create
	if c.DryRun {
		create = bundle.Preview
	}
	b, err := create(ctx, c.To.Name, c.To.Kind == Archive)
	if err != nil {
		since.close()
		return nil, err
	}
	o.Omits = since.omits(b)
	o.Destination = func(_ context.Context, a subject.Address) (repo.Destination, error) {
		return repo.Destination{Repository: c.To.repository(a), Store: b.Repository(a)}, nil
	}
	end := func() error { return errors.Join(b.Close(), since.close()) }
	p := pusher.New(o)
	if c.DryRun {
		return &target{put: p.PlanCopy, close: end, destination: o.Destination}, nil
	}
	return &target{put: p.Copy, save: b.Save, close: end, destination: o.Destination}, nil
}

func (c Copy) openMirror(o pusher.Options) (*target, error) {
	open, end := files.MakeRoot, func() error { return nil }
	if c.DryRun {
		open = os.OpenRoot
	}
	root, err := open(c.To.Name)
	switch {
	case err == nil:
		end = root.Close
	case !c.DryRun || !errors.Is(err, fs.ErrNotExist): // a dry run needs no folder
		return nil, hint.Wrap(fmt.Errorf("mirror folder: %w", err), "name a folder that can be written")
	}
	p := pusher.New(o)
	var writing sync.Mutex // the versions of a provider share one index.json
	put := func(ctx context.Context, from pusher.Stored, v provider.Version, platforms []provider.Platform) (*pusher.Result, error) {
		r, err := from.Release(ctx, v, platforms)
		if err != nil {
			return nil, err
		}
		if c.DryRun {
			return p.PlanMirror(ctx, root, c.To.Name, r)
		}
		writing.Lock()
		defer writing.Unlock()
		return p.Mirror(ctx, root, r)
	}
	return &target{put: put, close: end, name: c.To.String()}, nil
}

func (c Copy) openRegistry(ctx context.Context, all selection, o pusher.Options) (*target, error) {
	r, err := c.Open(c.To, all.addresses())
	if err != nil {
		return nil, err
	}
	if err := c.checkRepositories(r, all); err != nil {
		r.Close()
		return nil, err
	}
	from := map[subject.Address]ociaddr.Repository{}
	for _, s := range all.list() {
		from[s.Subject] = s.Repository
	}
	o.Destination = destinationOfCopies(r, from)
	p := pusher.New(o)
	if c.DryRun {
		return &target{registry: r, put: p.PlanCopy, close: r.Close, destination: o.Destination}, nil
	}
	end := func() error {
		if text := repo.SummaryWarning(p.Summarize(ctx)); text != "" { // even after a failure, for the versions that are stored
			c.Progress.Warn(text)
		}
		return r.Close()
	}
	return &target{registry: r, put: p.Copy, close: end, destination: o.Destination}, nil
}
