package transfer

import (
	"context"
	"errors"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/origins/closure"
	"github.com/ocibridge/ocibridge/internal/origins/gitfiles"
	"github.com/ocibridge/ocibridge/internal/origins/moduleorigin"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
)

// moduleSource is the origin of the module of one block, or of the modules without a block.
type moduleSource struct {
	plan    *moduleorigin.Origin // reads the references of a repository once, for all versions
	push    *moduleorigin.Origin // reads them for each version, as they may have changed since
	fetched *closurePackages     // the versions that were fetched to follow their calls
	etags   *moduleorigin.ETags  // of archives whose files are stored; nil: archives are always fetched
}

var _ reconcile.ModuleSource = moduleSource{}

func newModuleSource(registry *origin.Registry, allowLFSPointers bool, fetched *closurePackages, etags *moduleorigin.ETags) moduleSource {
	return moduleSource{
		plan:    &moduleorigin.Origin{Registry: registry, AllowLFSPointers: allowLFSPointers, References: &moduleorigin.References{}},
		push:    &moduleorigin.Origin{Registry: registry, AllowLFSPointers: allowLFSPointers},
		fetched: fetched,
		etags:   etags,
	}
}

// Versions implements [reconcile.ModuleSource].
func (s moduleSource) Versions(ctx context.Context, a module.Address) (*origin.ModuleListing, error) {
	return s.plan.Registry.ModuleVersions(ctx, a)
}

// Check implements [reconcile.ModuleSource].
func (s moduleSource) Check(ctx context.Context, v reconcile.ModuleVersion, stored *artifact.Version) error {
	if stored == nil && s.fetched.has(closure.Release{Module: v.Module, Version: v.Version}) {
		return nil
	}
	f := fetchOf(s.plan, v)
	f.dryRun = true
	err := f.check(ctx, s.etags, stored)
	if stored != nil && errors.Is(err, moduleorigin.ErrTwins) {
		return hint.Replace(err, "the stored version stays, and clients get it as before. Ask the publisher of the module to delete one of the tags; until then, this version is a failure of each sync, unless versions excludes it (!= %s), and with --prune that removes it", v.Version)
	}
	if stored != nil && (errors.Is(err, origin.ErrVersionNotFound) || errors.Is(err, gitfiles.ErrNoRef)) {
		err = hint.Replace(err, "the origin lists this version, and no longer has it. The stored version stays, and clients get it as before")
	}
	return err
}

// Push implements [reconcile.ModuleSource].
func (s moduleSource) Push(ctx context.Context, v reconcile.ModuleVersion) (*pusher.Result, error) {
	p := s.fetched.take(closure.Release{Module: v.Module, Version: v.Version})
	if p == nil {
		var err error
		if p, err = fetchOf(s.push, v).prepare(ctx); err != nil {
			return nil, err
		}
	}
	defer p.close()
	pushed, err := p.push(ctx)
	if err != nil {
		return nil, err
	}
	s.etags.Keep(p.at, p.stored.Zip().Digest, p.etag)
	return pushed.Result, nil
}

// PullModule fetches a version of a module from its location, as pull-through does, and stores it. The errors are those of a push.
func PullModule(ctx context.Context, from *moduleorigin.Origin, at moduleorigin.Location, v reconcile.ModuleVersion) (*pusher.Result, error) {
	f := fetchOf(from, v)
	f.at = &at
	pushed, err := f.push(ctx)
	if err != nil {
		return nil, err
	}
	return pushed.Result, nil
}

func fetchOf(from *moduleorigin.Origin, v reconcile.ModuleVersion) *moduleFetch {
	return &moduleFetch{origin: from, pusher: v.Pusher, module: v.Module, version: v.Version, spellings: v.Spellings, dest: v.Destination}
}

// check returns an error if the origin refuses the version, or has other content than the stored version, which is nil if
// there is none.
func (f *moduleFetch) check(ctx context.Context, etags *moduleorigin.ETags, stored *artifact.Version) error {
	at, err := f.origin.Locate(ctx, f.module, f.version.String())
	if err != nil {
		return err
	}
	if stored != nil && len(f.spellings) <= 1 && stored.Provenance.Location == at.String() && at.Pins(stored.Revision) {
		return nil
	}
	commit, err := f.resolve(ctx, at)
	switch {
	case err != nil, stored == nil:
		return err
	case commit.Commit != "" && commit.Commit == stored.Revision && !stored.Provenance.IsZero() && stored.Provenance.Folder == at.Folder:
		return nil
	}
	if stored.Provenance.Location == at.String() {
		f.unless = etags.Known(at, stored.Zip().Digest)
	}
	p, err := f.prepareAt(ctx, at, commit)
	if errors.Is(err, origin.ErrNotModified) {
		return nil
	}
	if err != nil {
		return err
	}
	defer p.close()
	if _, err = p.push(ctx); err == nil { // a dry run, which compares
		etags.Keep(at, stored.Zip().Digest, p.etag)
	}
	return err
}
