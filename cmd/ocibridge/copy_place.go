package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/bundle"
	"github.com/ocibridge/ocibridge/internal/cliconfig"
	"github.com/ocibridge/ocibridge/internal/config"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/inventory"
	"github.com/ocibridge/ocibridge/internal/registry"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// place is what --from and --to name.
type place struct {
	kind placeKind
	name string // template, folder or file
}

type placeKind string

const (
	placeConfigured placeKind = ""
	placeTemplate   placeKind = "template"
	placeEmbedded   placeKind = "embedded"
	placeFolder     placeKind = "oci"
	placeArchive    placeKind = "oci-archive"
	placeMirror     placeKind = "mirror"
)

func (p place) isRegistry() bool {
	return p.kind == placeConfigured || p.kind == placeTemplate || p.kind == placeEmbedded
}

func (p place) isBundle() bool { return p.kind == placeFolder || p.kind == placeArchive }

func parsePlace(flag, s string) (place, error) {
	if s == "" || s == string(placeEmbedded) {
		return place{kind: placeKind(s)}, nil
	}
	for _, kind := range []placeKind{placeFolder, placeArchive, placeMirror} {
		if name, ok := strings.CutPrefix(s, string(kind)+":"); ok {
			if name == "" {
				return place{}, hint.New(fmt.Sprintf("%s %s names nothing", flag, s), "write the name behind the colon, such as %sproviders", s)
			}
			return place{kind, name}, nil
		}
	}
	if !strings.Contains(s, "/") || strings.HasPrefix(s, ".") || strings.HasPrefix(s, "/") {
		return place{}, hint.New(fmt.Sprintf("%s %s is no place", flag, s), "it is a repository template, embedded, oci:DIR, oci-archive:FILE or mirror:DIR")
	}
	return place{placeTemplate, s}, nil
}

func completePlace(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return []cobra.Completion{"oci:", "oci-archive:", "mirror:", "embedded"}, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// openRegistry opens the registry at a place.
func (f *copyFlags) openRegistry(s settings, p place, providers []provider.Address, log *slog.Logger) (*registry.Repositories, error) {
	flags := f.registryFlags
	switch p.kind {
	case placeTemplate:
		flags.template, flags.include, flags.exclude = p.name, nil, nil
	case placeEmbedded:
		flags.template, flags.include, flags.exclude = "", nil, nil
		s = settings{file: &config.Config{}, cli: &cliconfig.Config{}} // whatever templates they have
	}
	return flags.open(s, providers, log)
}

// copySource is where versions are copied from.
type copySource interface {
	// providers are all that there are.
	providers(context.Context) ([]provider.Address, error)
	stored(context.Context, provider.Address) (pusher.Stored, error)
	// Explain adds a hint to a refusal of the registry.
	Explain(error, ociaddr.Repository) error
	io.Closer
}

func (f *copyFlags) openSource(ctx context.Context, s settings, p place, named []provider.Address, stderr io.Writer) (copySource, error) {
	if p.isBundle() {
		b, err := bundle.Open(ctx, p.name, p.kind == placeArchive)
		if err != nil {
			return nil, err
		}
		return bundleSide{b, p}, nil
	}
	back, err := f.openRegistry(s, p, named, f.log.open(stderr))
	if err != nil {
		return nil, err
	}
	return registrySide{back, stderr}, nil
}

// registrySide is a registry as source.
type registrySide struct {
	*registry.Repositories
	stderr io.Writer
}

func (r registrySide) providers(ctx context.Context) ([]provider.Address, error) {
	found, skipped, err := (&inventory.Inventory{Registry: r.Repositories, Jobs: 1}).Providers(ctx)
	for _, u := range skipped {
		fmt.Fprintf(r.stderr, "warning: %s\n", u.Warning())
	}
	return found, err
}

func (r registrySide) stored(ctx context.Context, a provider.Address) (pusher.Stored, error) {
	addr, repo, err := r.RepositoryWithReferrers(ctx, a)
	return pusher.Stored{Provider: a, Repository: addr, Store: repo}, err
}

// bundleSide is a bundle as source.
type bundleSide struct {
	*bundle.Bundle
	place place
}

func (b bundleSide) providers(context.Context) ([]provider.Address, error) {
	return b.Providers(), nil
}

func (b bundleSide) stored(_ context.Context, a provider.Address) (pusher.Stored, error) {
	return pusher.Stored{Provider: a, Repository: b.place.repository(a), Store: b.Repository(a)}, nil
}

func (b bundleSide) Explain(err error, _ ociaddr.Repository) error { return err }

// repository names a provider's part of a bundle as if it were one in a registry.
func (p place) repository(a provider.Address) ociaddr.Repository {
	return ociaddr.Repository{Registry: ociaddr.Registry(string(p.kind) + ":" + p.name), Name: a.Path()}
}

// copyTarget is where versions are copied to.
type copyTarget interface {
	// check fails where what is stored may not be put here.
	check(pusher.Stored) error
	put(ctx context.Context, from pusher.Stored, v provider.Version, platforms []provider.Platform) (*pusher.Result, error)
	// save completes it.
	save(context.Context) error
	Explain(error, ociaddr.Repository) error
	io.Closer
}

func (f *copyFlags) openTarget(ctx context.Context, s settings, p *copyPlan, all []chosen, log *slog.Logger, progress *progress) (copyTarget, error) {
	o := pusher.Options{Policy: p.policy, Jobs: int(f.jobs), WithoutReferrers: f.noReferrers, OnEvent: progress.event}
	switch {
	case p.to.isBundle():
		b, err := bundle.Create(ctx, p.to.name, p.to.kind == placeArchive)
		if err != nil {
			return nil, err
		}
		o.Destination = func(_ context.Context, a provider.Address) (pusher.Destination, error) {
			return pusher.Destination{Repository: p.to.repository(a), Store: b.Repository(a)}, nil
		}
		return &bundleTarget{bundleSide{b, p.to}, pusher.New(o)}, nil
	case p.to.kind == placeMirror:
		err := os.MkdirAll(p.to.name, 0o755)
		var root *os.Root
		if err == nil {
			root, err = os.OpenRoot(p.to.name)
		}
		if err != nil {
			return nil, hint.Wrap(fmt.Errorf("mirror folder: %w", err), "name a folder that can be written")
		}
		return &mirrorTarget{root: root, pusher: pusher.New(o)}, nil
	}
	var providers []provider.Address
	siblings := map[provider.Address]ociaddr.Repository{}
	for _, c := range all {
		providers = append(providers, c.stored.Provider)
		siblings[c.stored.Provider] = c.stored.Repository
	}
	back, err := f.openRegistry(s, p.to, providers, log)
	if err != nil {
		return nil, err
	}
	for _, a := range providers {
		if _, err := back.Templates.Repository(a); err != nil {
			back.Close()
			return nil, err
		}
	}
	o.Destination = func(ctx context.Context, a provider.Address) (pusher.Destination, error) {
		addr, repo, err := back.RepositoryWithReferrers(ctx, a)
		if err == nil && back.Embedded != nil {
			// Under fallback tags, referrers outlive "registry garbage-collect
			// --delete-untagged". The gateway's referrers API needs none.
			err = repo.SetReferrersCapability(false)
		}
		to := pusher.Destination{Repository: addr, Store: registry.Repository{Repository: repo}}
		if from := siblings[a]; from.Registry == addr.Registry {
			to.Sibling = from.Name // within a registry nothing is sent
		}
		return to, err
	}
	return &registryTarget{back, pusher.New(o)}, nil
}

// registryTarget is a registry.
type registryTarget struct {
	*registry.Repositories
	pusher *pusher.Pusher
}

func (t *registryTarget) check(from pusher.Stored) error {
	to, err := t.Templates.Repository(from.Provider)
	if err == nil && to == from.Repository {
		err = usage(hint.New(fmt.Sprintf("%s is stored in %s, and would be copied to the same repository", from.Provider, to), "let --from and --to name different places"))
	}
	return err
}

func (t *registryTarget) put(ctx context.Context, from pusher.Stored, v provider.Version, platforms []provider.Platform) (*pusher.Result, error) {
	return t.pusher.Copy(ctx, from, v, platforms)
}

func (t *registryTarget) save(context.Context) error { return nil }

// bundleTarget is a bundle.
type bundleTarget struct {
	bundleSide
	pusher *pusher.Pusher
}

func (t *bundleTarget) check(pusher.Stored) error { return nil }

func (t *bundleTarget) put(ctx context.Context, from pusher.Stored, v provider.Version, platforms []provider.Platform) (*pusher.Result, error) {
	return t.pusher.Copy(ctx, from, v, platforms)
}

func (t *bundleTarget) save(ctx context.Context) error { return t.Save(ctx) }

// mirrorTarget is a mirror folder.
type mirrorTarget struct {
	root   *os.Root
	pusher *pusher.Pusher
	mu     sync.Mutex // one version at a time: those of a provider share a list
}

func (t *mirrorTarget) check(pusher.Stored) error { return nil }

func (t *mirrorTarget) put(ctx context.Context, from pusher.Stored, v provider.Version, platforms []provider.Platform) (*pusher.Result, error) {
	r, err := from.Release(ctx, v, platforms)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pusher.Mirror(ctx, t.root, r)
}

func (t *mirrorTarget) save(context.Context) error { return nil }

func (t *mirrorTarget) Explain(err error, _ ociaddr.Repository) error { return err }

func (t *mirrorTarget) Close() error { return t.root.Close() }
