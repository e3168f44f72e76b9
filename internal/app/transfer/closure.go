package transfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/origins/closure"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// The limits of the zips that a closure keeps until they are stored. It fetches the other versions again.
const (
	maxKeptZips  = 100
	maxKeptBytes = 1 << 30
)

// closurePackages has the versions that a closure reads, and keeps those that will be stored.
type closurePackages struct {
	mu       sync.Mutex
	prepared map[closure.Release]*preparedModule
	read     map[packageKey]*closure.Package // of zips that were read
	zips     int                             // kept
	bytes    int64                           // of these
}

// packageKey names what a module reads of a zip.
type packageKey struct {
	digest digest.Digest
	folder string
}

func newClosurePackages() *closurePackages {
	return &closurePackages{prepared: map[closure.Release]*preparedModule{}, read: map[packageKey]*closure.Package{}}
}

// fetch fetches a version, unless it is stored, and reads what it declares.
func (c *closurePackages) fetch(ctx context.Context, f *moduleFetch) (*closure.Package, error) {
	p, err := f.prepare(ctx)
	if err != nil {
		return nil, err
	}
	if p.zip == nil {
		c.keep(p)
		return c.stored(ctx, f.dest, f.module, f.version)
	}
	files, err := p.zip.FS()
	if err != nil {
		p.close()
		return nil, err
	}
	out, err := c.readPackage(ctx, f, files, p.stored)
	if err != nil {
		p.close()
		return nil, err
	}
	c.keep(p)
	return out, nil
}

// keep keeps a version for a later push.
func (c *closurePackages) keep(p *preparedModule) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.zip != nil {
		if p.dryRun || c.zips == maxKeptZips || c.bytes+p.zip.Size > maxKeptBytes {
			p.drop()
		} else {
			c.zips, c.bytes = c.zips+1, c.bytes+p.zip.Size
		}
	}
	c.prepared[p.release()] = p
}

// take returns a version that was fetched, or nil. The caller must close it.
func (c *closurePackages) take(r closure.Release) *preparedModule {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.prepared[r]
	delete(c.prepared, r)
	if p != nil && p.zip != nil {
		c.zips, c.bytes = c.zips-1, c.bytes-p.zip.Size
	}
	return p
}

// has reports whether a version was fetched.
func (c *closurePackages) has(r closure.Release) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.prepared[r] != nil
}

// stored reads what a stored version declares.
func (c *closurePackages) stored(ctx context.Context, dest repo.Destination, a module.Address, v provider.Version) (*closure.Package, error) {
	failed := func(err error) error {
		return &repo.RegistryError{Op: "read " + v.String() + " in", Repository: dest.Repository, Err: err}
	}
	stored, err := artifact.ReadZip(ctx, dest.Store, a, v)
	if err != nil {
		return nil, failed(err)
	}
	if known := c.known(keyOf(stored)); known != nil {
		return known, nil
	}
	files, file, err := artifact.OpenZip(ctx, dest.Store, *stored.Zip())
	if err != nil {
		return nil, failed(err)
	}
	defer file.Close()
	return c.readPackage(ctx, &moduleFetch{module: a, version: v}, files, stored)
}

func keyOf(v *artifact.Version) packageKey { return packageKey{v.Zip().Digest, v.Provenance.Folder} }

func (c *closurePackages) known(key packageKey) *closure.Package {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read[key]
}

// readPackage reads what a version declares. Versions with the same zip share the result.
func (c *closurePackages) readPackage(ctx context.Context, f *moduleFetch, files fs.FS, v *artifact.Version) (*closure.Package, error) {
	key := keyOf(v)
	if known := c.known(key); known != nil {
		return known, nil
	}
	p, err := closure.Read(ctx, files, key.folder)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.release(), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read[key] = p
	return p, nil
}

// close removes the fetched files.
func (c *closurePackages) close() {
	for _, p := range c.prepared {
		p.close()
	}
}

func (f *moduleFetch) release() closure.Release {
	return closure.Release{Module: f.module, Version: f.version}
}

// moduleClosure is the closure of modules. It fetches each version once: to follow its calls, and to store it later. It
// implements [closure.Origin].
type moduleClosure struct {
	*closurePackages
	to   *registry.Repositories
	with moduleFetch // the fields that all fetches have in common

	started map[closure.Release]bool // those that the user named: their failure is an error

	mu       sync.Mutex
	fetches  map[closure.Release]*moduleFetch // of the versions that the origins offer
	releases []closure.Found
}

func newModuleClosure(to *registry.Repositories, with moduleFetch) *moduleClosure {
	return &moduleClosure{closurePackages: newClosurePackages(), to: to, with: with, started: map[closure.Release]bool{}, fetches: map[closure.Release]*moduleFetch{}}
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
			if p := c.take(r.Release); p != nil {
				if err := add(p.pushAndClose); err != nil {
					p.close()
					return err
				}
			}
		}
		return nil
	})
}

// Versions implements [closure.Origin].
func (c *moduleClosure) Versions(ctx context.Context, a module.Address) (out []closure.Offer, err error) {
	if _, err := c.to.Templates.Repository(a); err != nil {
		return nil, fmt.Errorf("%w: %w", closure.ErrAbsent, err)
	}
	dest, err := Destination(c.to)(ctx, a)
	if err != nil {
		return nil, err
	}
	stored, err := pusher.Stored{Subject: a, Repository: dest.Repository, Store: dest.Store}.Versions(ctx)
	if err != nil {
		return nil, err
	}
	for _, v := range stored {
		out = append(out, closure.Offer{Version: v, Stored: true})
	}
	listing, err := c.with.origin.Registry.ModuleVersions(ctx, a)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case isNoModule(err) && len(stored) > 0:
		return out, nil
	case err != nil: // the host may be down, or no longer exist: other modules do not depend on it
		return out, fmt.Errorf("%w: %w", closure.ErrAbsent, err)
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
		if !slices.Contains(stored, v) {
			out = append(out, closure.Offer{Version: v})
		}
	}
	return out, nil
}

// isNoModule reports whether an error means that an origin does not have a module.
func isNoModule(err error) bool {
	return errors.Is(err, origin.ErrModuleNotFound) || errors.Is(err, origin.ErrNoModules)
}

// Package implements [closure.Origin].
func (c *moduleClosure) Package(ctx context.Context, a module.Address, v provider.Version) (*closure.Package, error) {
	r := closure.Release{Module: a, Version: v}
	c.mu.Lock()
	f := c.fetches[r]
	c.mu.Unlock()
	if f == nil { // stored, but not offered any more
		dest, err := Destination(c.to)(ctx, a)
		if err != nil {
			return nil, err
		}
		return c.stored(ctx, dest, a, v)
	}
	p, err := c.fetch(ctx, f)
	if err == nil || c.started[r] || !isOfOrigin(ctx, err) {
		return p, err
	}
	p, failed := c.stored(ctx, f.dest, a, v)
	if errors.Is(failed, errdef.ErrNotFound) || artifact.IsContent(failed) {
		return nil, notAvailable(err)
	}
	return p, failed // clients get the stored version, whatever the origin says
}

// isOfOrigin reports whether the error of a fetch comes from the origin of one module, and says nothing about other modules.
// Other errors come from the registry, from this machine, or from the context.
func isOfOrigin(ctx context.Context, err error) bool {
	_, ofRegistry := errors.AsType[*repo.RegistryError](err)
	_, ofFile := errors.AsType[*fs.PathError](err)
	_, ofLink := errors.AsType[*os.LinkError](err)
	return ctx.Err() == nil && !ofRegistry && !ofFile && !ofLink && !errors.Is(err, closure.ErrTooLarge)
}
