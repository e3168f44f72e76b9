package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/origins/closure"
	"github.com/ocibridge/ocibridge/internal/origins/gitfiles"
	"github.com/ocibridge/ocibridge/internal/origins/moduleorigin"
	"github.com/ocibridge/ocibridge/internal/origins/modulezip"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
	"github.com/ocibridge/ocibridge/templates"
)

// BlockClosure is the closure of the module blocks with closure = true.
type BlockClosure struct {
	moduleSource // of the modules without a block
	jobs         int
	sources      map[module.Address]moduleSource // of the blocks

	// Missing are the sources that a closure cannot have, once [BlockClosure.Follow] has returned.
	Missing []closure.Missing
}

var _ reconcile.Closure = (*BlockClosure)(nil)

func newBlockClosure(registry *origin.Registry, jobs int, etags *moduleorigin.ETags) *BlockClosure {
	return &BlockClosure{newModuleSource(registry, false, newClosurePackages(), etags), jobs, map[module.Address]moduleSource{}, nil}
}

func (c *BlockClosure) allowLFSPointers() {
	c.plan.AllowLFSPointers, c.push.AllowLFSPointers = true, true
}

// Follow implements [reconcile.Closure].
func (c *BlockClosure) Follow(ctx context.Context, starts []reconcile.OfferedModule, offers reconcile.Offers) (*reconcile.CalledModules, error) {
	f := &followedBlocks{BlockClosure: c, offers: offers, offered: map[closure.Release]reconcile.OfferedModule{}, starts: map[closure.Release]bool{}, out: &reconcile.CalledModules{}}
	o := closure.Options{Origin: f, Jobs: c.jobs}
	for _, s := range starts {
		r := closure.Release{Module: s.Module, Version: s.Version}
		f.offered[r], f.starts[r] = s, true
		o.Starts = append(o.Starts, r)
	}
	result, err := closure.Follow(ctx, o)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		err = hint.Replace(fmt.Errorf("closure of the module blocks: %w", err), "let fewer blocks have closure = true, or let them select fewer versions")
		f.out.Err = err
		return f.out, nil
	}
	c.Missing = result.Missing
	for _, r := range result.Releases {
		f.out.Versions = append(f.out.Versions, reconcile.ModuleRelease{Module: r.Module, Version: r.Version})
	}
	return f.out, nil
}

// followedBlocks is one run of [BlockClosure.Follow]. It implements [closure.Origin].
type followedBlocks struct {
	*BlockClosure
	offers reconcile.Offers
	starts map[closure.Release]bool

	mu      sync.Mutex
	offered map[closure.Release]reconcile.OfferedModule
	out     *reconcile.CalledModules
}

// fail records a failure. Others go on.
func (f *followedBlocks) fail(a module.Address, v provider.Version, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.out.Failures = append(f.out.Failures, reconcile.Failure{Subject: a, Version: v, Err: err})
}

// Versions implements [closure.Origin].
func (f *followedBlocks) Versions(ctx context.Context, a module.Address) (out []closure.Offer, err error) {
	offered, err := f.offers(ctx, a)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	f.mu.Lock()
	for _, o := range offered {
		out = append(out, closure.Offer{Version: o.Version, Stored: o.Stored})
		f.offered[closure.Release{Module: a, Version: o.Version}] = o
	}
	f.mu.Unlock()
	switch {
	case err == nil, isNoModule(err) && len(out) > 0:
		return out, nil
	case !isNoModule(err) && !errors.Is(err, templates.ErrNotSelected) && !errors.Is(err, templates.ErrNoRepository):
		f.fail(a, provider.Version{}, err)
	}
	return out, fmt.Errorf("%w: %w", closure.ErrAbsent, err)
}

// Package implements [closure.Origin].
func (f *followedBlocks) Package(ctx context.Context, a module.Address, v provider.Version) (p *closure.Package, err error) {
	r := closure.Release{Module: a, Version: v}
	f.mu.Lock()
	offered := f.offered[r]
	f.mu.Unlock()
	if offered.Stored {
		p, err = f.fetched.stored(ctx, offered.Destination, a, v)
	} else {
		source, ok := f.sources[a]
		if !ok {
			source = f.moduleSource
		}
		p, err = f.fetched.fetch(ctx, fetchOf(source.push, offered.ModuleVersion))
	}
	switch {
	case err == nil || ctx.Err() != nil:
		return p, err
	case offered.Stored || f.starts[r] || !isAbsent(err):
		f.fail(a, v, err)
	}
	if f.starts[r] {
		return &closure.Package{}, nil
	}
	return nil, notAvailable(err)
}

// absences are the errors that mean that one version cannot be stored, and that a later sync will not find it either. A server
// that wants a login, or that hides a repository, is not among them: it says nothing about the version.
var absences = []error{
	gitfiles.ErrNoRef, gitfiles.ErrRefused,
	moduleorigin.ErrArchive, moduleorigin.ErrLocation, moduleorigin.ErrNoFolder, moduleorigin.ErrTwins,
	modulezip.ErrUnpackable, origin.ErrVersionNotFound,
}

func isAbsent(err error) bool {
	return slices.ContainsFunc(absences, func(absence error) bool { return errors.Is(err, absence) })
}

// notAvailable wraps the error of a version in [closure.ErrAbsent], or in [closure.ErrFailed] if it says nothing about the version.
func notAvailable(err error) error {
	if isAbsent(err) {
		return fmt.Errorf("%w: %w", closure.ErrAbsent, err)
	}
	return fmt.Errorf("%w: %w", closure.ErrFailed, err)
}
