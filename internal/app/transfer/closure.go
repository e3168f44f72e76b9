package transfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/origins/closure"
	"github.com/ocibridge/ocibridge/internal/origins/gitfiles"
	"github.com/ocibridge/ocibridge/internal/origins/moduleorigin"
	"github.com/ocibridge/ocibridge/internal/origins/modulezip"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// moduleClosure is the closure of modules. It fetches each version once: to follow its calls, and to store it later. It
// implements [closure.Origin].
type moduleClosure struct {
	to   *registry.Repositories
	with moduleFetch // the fields that all fetches have in common

	started map[closure.Release]bool // those that the user named: their failure is an error

	mu       sync.Mutex
	fetches  map[closure.Release]*moduleFetch // of the versions that the origins offer
	prepared map[closure.Release]*preparedModule
	releases []closure.Found
}

func newModuleClosure(to *registry.Repositories, with moduleFetch) *moduleClosure {
	return &moduleClosure{to: to, with: with, started: map[closure.Release]bool{}, fetches: map[closure.Release]*moduleFetch{}, prepared: map[closure.Release]*preparedModule{}}
}

// follow fetches the requested versions and their closure. The caller must close the result.
func (m *Modules) follow(ctx context.Context, to *registry.Repositories, with moduleFetch, jobs int, progress ModuleProgress) (c *moduleClosure, err error) {
	c = newModuleClosure(to, with)
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	o := closure.Options{Origin: c, Jobs: jobs}
	if err := m.each(ctx, to, with, progress.Warn, func(f *moduleFetch) error {
		r := closure.Release{Module: f.module, Version: f.version}
		if c.fetches[r] == nil {
			c.fetches[r], c.started[r] = f, true
			o.Starts = append(o.Starts, r)
		}
		return nil
	}); err != nil {
		return c, err
	}
	result, err := closure.Follow(ctx, o)
	if err != nil {
		return c, err
	}
	for _, missing := range result.Missing {
		progress.Missing(missing)
	}
	if m.Strict {
		if err := result.Check(); err != nil {
			return c, err
		}
	}
	c.releases = result.Releases
	return c, nil
}

// push stores every fetched version. Modules that are called come first, so that a closure that is interrupted has few
// modules whose calls lead nowhere.
func (c *moduleClosure) push(ctx context.Context, jobs int, progress ModuleProgress) ([]*PushedModule, error) {
	return pushModules(ctx, c.to, c.with.pusher, jobs, progress, func(add func(modulePush) error) error {
		for _, r := range slices.Backward(c.releases) {
			if p := c.prepared[r.Release]; p != nil {
				if err := add(p.push); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// close removes the fetched files.
func (c *moduleClosure) close() {
	for _, p := range c.prepared {
		p.close()
	}
}

// Versions implements [closure.Origin].
func (c *moduleClosure) Versions(ctx context.Context, a module.Address) ([]provider.Version, error) {
	if _, err := c.to.Templates.Repository(a); err != nil {
		return nil, fmt.Errorf("%w: %w", closure.ErrAbsent, err)
	}
	dest, err := Destination(c.to)(ctx, a)
	if err != nil {
		return nil, err
	}
	versions, err := pusher.Stored{Subject: a, Repository: dest.Repository, Store: dest.Store}.Versions(ctx)
	if err != nil {
		return nil, err
	}
	listing, err := c.with.origin.Registry.ModuleVersions(ctx, a)
	absent := errors.Is(err, origin.ErrModuleNotFound) || errors.Is(err, origin.ErrNoModules)
	switch {
	case absent && len(versions) > 0:
		return versions, nil
	case absent:
		return nil, fmt.Errorf("%w: %w", closure.ErrAbsent, err)
	case err != nil:
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range listing.Versions {
		r := closure.Release{Module: a, Version: v}
		if c.fetches[r] == nil {
			f := c.with
			f.module, f.version, f.spellings, f.dest = a, v, listing.Spellings[v], dest
			c.fetches[r] = &f
		}
		if !slices.Contains(versions, v) {
			versions = append(versions, v)
		}
	}
	return versions, nil
}

// Package implements [closure.Origin].
func (c *moduleClosure) Package(ctx context.Context, a module.Address, v provider.Version) (*closure.Package, error) {
	r := closure.Release{Module: a, Version: v}
	c.mu.Lock()
	f := c.fetches[r]
	c.mu.Unlock()
	if f == nil { // stored, but not offered any more
		return c.readStored(ctx, a, v)
	}
	p, err := f.prepare(ctx)
	if isAbsent(err) && !c.started[r] {
		stored, failed := c.readStored(ctx, a, v)
		if errors.Is(failed, errdef.ErrNotFound) || artifact.IsContent(failed) {
			return nil, fmt.Errorf("%w: %w", closure.ErrAbsent, err)
		}
		return stored, failed // clients get the stored version, whatever the origin says
	}
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.prepared[r] = p
	c.mu.Unlock()
	if p.zip == nil {
		return c.readStored(ctx, a, v)
	}
	files, err := p.zip.FS()
	if err != nil {
		return nil, err
	}
	return readPackage(ctx, r, files, p.stored.Provenance.Folder)
}

// absences are the errors that mean that one version cannot be stored, and say nothing about others.
var absences = []error{
	gitfiles.ErrDenied, gitfiles.ErrNoRef, gitfiles.ErrNoRepository, gitfiles.ErrRefused,
	moduleorigin.ErrArchive, moduleorigin.ErrLocation, moduleorigin.ErrNoFolder, moduleorigin.ErrTwins,
	modulezip.ErrUnpackable, origin.ErrVersionNotFound,
}

func isAbsent(err error) bool {
	return slices.ContainsFunc(absences, func(absence error) bool { return errors.Is(err, absence) })
}

// readStored reads the package of a version that is stored.
func (c *moduleClosure) readStored(ctx context.Context, a module.Address, v provider.Version) (*closure.Package, error) {
	dest, err := Destination(c.to)(ctx, a)
	if err != nil {
		return nil, err
	}
	failed := func(err error) error {
		return &repo.RegistryError{Op: "read " + v.String() + " in", Repository: dest.Repository, Err: err}
	}
	stored, err := artifact.ReadZip(ctx, dest.Store, a, v)
	if err != nil {
		return nil, failed(err)
	}
	files, file, err := artifact.OpenZip(ctx, dest.Store, *stored.Zip())
	if err != nil {
		return nil, failed(err)
	}
	defer file.Close()
	return readPackage(ctx, closure.Release{Module: a, Version: v}, files, stored.Provenance.Folder)
}

func readPackage(ctx context.Context, r closure.Release, files fs.FS, folder string) (*closure.Package, error) {
	p, err := closure.Read(ctx, files, folder)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r, err)
	}
	return p, nil
}
