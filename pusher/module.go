package pusher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// ModulePackage is one version of a module to push.
type ModulePackage struct {
	artifact.Module
	// Open returns a reader of the module's zip. Each attempt to upload it calls Open.
	Open func() io.ReadCloser
}

// ModuleResult says what the push of a module did, and what the repository holds afterwards.
type ModuleResult struct {
	Module     module.Address     `json:"module"`
	Version    provider.Version   `json:"version"`
	Repository ociaddr.Repository `json:"repository"`
	Tag        ociaddr.Tag        `json:"tag"`
	Digest     string             `json:"digest"` // of the manifest
	Status     Status             `json:"status"` // Pushed, Replaced or Unchanged
	// Zip is the digest of the zip, and Size is its size in bytes.
	Zip      string        `json:"zip"`
	Size     int64         `json:"size"`
	H1       provider.Hash `json:"h1,omitzero"`
	Revision string        `json:"revision,omitempty"`
	Sent     bool          `json:"sent"` // the bytes of the zip were sent
	// Referrers and ReferrersSent are as in [Result]. They are 0 unless the push is a copy.
	Referrers     int      `json:"referrers,omitempty"`
	ReferrersSent int      `json:"referrers_sent,omitempty"`
	Warnings      []string `json:"warnings,omitempty"`
}

// modulePush is the push of one version of a module to one repository.
type modulePush struct {
	target
	pkg      ModulePackage
	manifest artifact.Blob
	tag      ociaddr.Tag      // the tag that the push writes
	stored   *artifact.Module // the stored version; nil: there is none
	carrier  *carrier         // copies from another repository; nil: the push of a folder
	warnings []string
}

// PushModule stores a version of a module. It stores the zip, the config and the manifest, and
// writes the tag last. If PushModule fails, the tag is as it was before.
//
// The push is unchanged if the stored version has the same h1: hash or the same zip. Its tag
// may then begin with a v. Other content under the version is an [ErrConflict], unless
// [Options.Force] is set. [repo.ErrOccupied] means that the repository belongs to another module, or
// has something other than modules.
func (p *Pusher) PushModule(ctx context.Context, dest repo.Destination, pkg ModulePackage) (*ModuleResult, error) {
	w, err := p.newModulePush(dest, pkg)
	if err != nil {
		return nil, err
	}
	unlock, err := dest.LockFor(ctx, "push of %s %s", pkg.Address, pkg.Version)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return w.run(repo.MayPush(ctx, dest.Repository))
}

// run stores the version. The caller has locked the destination.
func (w *modulePush) run(ctx context.Context) (*ModuleResult, error) {
	// 1. Compare with the stored version.
	if err := w.inspect(ctx); err != nil {
		return nil, err
	}
	if w.unchanged() {
		w.event(StagePresent, 0)
		return w.keep(StagePresent)
	}
	// 2. Store the zip and the config.
	stage, err := w.sendContent(ctx)
	if err != nil {
		return nil, err
	}
	// 3. Compare again, because another push may have ended meanwhile.
	if err := w.read(ctx); err != nil {
		return nil, err
	}
	if w.unchanged() {
		return w.keep(stage)
	}
	// 4. Store the manifest under its tag.
	status := w.status()
	if err := w.mark(w.tag, w.manifest.Descriptor.Digest); err != nil {
		return nil, err
	}
	if err := w.SendTag(ctx, "tag "+string(w.tag)+" in", w.manifest, string(w.tag), helpImmutableModule); err != nil {
		return nil, err
	}
	w.stored = nil
	return w.result(status, stage), nil
}

// keep ends a push that leaves the stored version as it is.
func (w *modulePush) keep(stage Stage) (*ModuleResult, error) {
	if err := w.mark(w.stored.Tag, w.stored.Manifest.Digest); err != nil {
		return nil, err
	}
	return w.result(Unchanged, stage), nil
}

// PlanModule returns the result that [Pusher.PushModule] would have. It writes nothing.
func (p *Pusher) PlanModule(ctx context.Context, dest repo.Destination, pkg ModulePackage) (*ModuleResult, error) {
	w, err := p.newModulePush(dest, pkg)
	if err != nil {
		return nil, err
	}
	return w.plan(ctx)
}

// plan returns the result that run would have, apart from Sent.
func (w *modulePush) plan(ctx context.Context) (*ModuleResult, error) {
	if err := w.inspect(ctx); err != nil {
		return nil, err
	}
	status := w.status()
	if !w.unchanged() {
		w.stored = nil
	}
	return w.result(status, StagePresent), nil
}

func (p *Pusher) newModulePush(dest repo.Destination, pkg ModulePackage) (*modulePush, error) {
	manifest, err := artifact.EncodeModule(pkg.Module)
	if err != nil {
		return nil, err
	}
	pkg.Manifest = manifest.Descriptor
	tag, err := ociaddr.VersionTag(pkg.Version)
	if err != nil {
		return nil, err
	}
	return &modulePush{target: p.to(dest), pkg: pkg, manifest: manifest, tag: tag}, nil
}

// inspect reads the stored version. If there is none, inspect checks which module the
// repository belongs to. A tag that names no module is an error only if no other tag names one.
func (w *modulePush) inspect(ctx context.Context) error {
	if err := w.read(ctx); err != nil || w.stored != nil {
		return err
	}
	tags, err := artifact.ListAnyTags(ctx, w.Dest.Store)
	if err != nil {
		return w.Failed("list tags of", err)
	}
	tagged := ociaddr.ModuleTags(tags)
	if w.o.Force {
		delete(tagged, w.pkg.Version) // read has found that the push may replace it
	}
	versions := slices.Collect(maps.Keys(tagged))
	provider.SortVersions(versions)
	var other error // why the newest tag that names no module is invalid
	hasModule := false
	forbidden, err := w.ProbeOwner(ctx, w.tag, versions, repo.HelpForeignModule, func(v provider.Version) (bool, error) {
		found, err := artifact.ReadModuleTag(ctx, w.Dest.Store, w.pkg.Address, v, tagged[v])
		if artifact.IsInvalid(err) && other == nil {
			other = fmt.Errorf("its tag %s: %w", tagged[v], err)
		}
		hasModule = hasModule || err == nil
		return err == nil && !found.Address.IsZero(), err
	})
	if err == nil && other != nil && !hasModule {
		return repo.Occupied(w.Dest.Repository, w.tag, other, helpOtherContent)
	}
	if forbidden != nil {
		w.warnings = append(w.warnings, fmt.Sprintf("%s: ocibridge could not check which module this repository belongs to: %v", w.Dest.Repository, forbidden))
	}
	return err
}

// read reads the stored version, and returns a conflict as an error.
func (w *modulePush) read(ctx context.Context) error {
	found, err := artifact.ReadModule(ctx, w.Dest.Store, w.pkg.Address, w.pkg.Version)
	w.stored = found
	switch {
	case errors.Is(err, errdef.ErrNotFound), w.o.Force && repo.IsReplaceable(err):
		return nil
	case errors.Is(err, artifact.ErrForeign):
		return repo.Occupied(w.Dest.Repository, w.tag, err, repo.HelpForeignModule)
	case repo.IsReplaceable(err):
		return repo.Occupied(w.Dest.Repository, w.tag, err, "the tag is left as it was; ocibridge module push --force replaces what it names")
	case err != nil:
		return w.Failed("read "+string(w.tag)+" in", err)
	case w.o.Force:
		return nil
	}
	same, err := w.same(ctx)
	if err == nil && !same {
		err = w.conflict()
	}
	return err
}

// same reports whether the stored version has the content of the pushed version.
func (w *modulePush) same(ctx context.Context) (bool, error) {
	if w.stored.Digest == w.pkg.Digest {
		return true, nil
	}
	offered := w.pkg.H1
	if w.carrier != nil {
		var err error
		if offered, err = moduleH1(ctx, w.carrier.from.Store, w.carrier.from.Repository, &w.pkg.Module); err != nil {
			return false, err
		}
	}
	if offered.IsZero() {
		return false, nil
	}
	stored, err := moduleH1(ctx, w.Dest.Store, w.Dest.Repository, w.stored)
	return stored == offered, err
}

// moduleH1 returns the h1: hash of a stored module. Other tools record none: moduleH1 then
// downloads the zip to compute it. It returns no hash for a zip that clients cannot unpack.
func moduleH1(ctx context.Context, store artifact.Fetcher, r ociaddr.Repository, m *artifact.Module) (provider.Hash, error) {
	if !m.H1.IsZero() {
		return m.H1, nil
	}
	files, err := artifact.RehashModule(ctx, store, m)
	switch {
	case artifact.IsContent(err):
		return provider.Hash{}, nil
	case err != nil:
		return provider.Hash{}, &repo.RegistryError{Op: "read the zip of " + string(m.Tag) + " in", Repository: r, Err: err}
	}
	return files.H1, nil
}

// unchanged reports whether the push has nothing to write. A forced push sends everything that
// the registry lacks.
func (w *modulePush) unchanged() bool { return w.stored != nil && !w.o.Force }

// status returns the status of a push that writes the tag.
func (w *modulePush) status() Status {
	switch {
	case w.stored == nil:
		return Pushed
	case w.unchanged() || w.stored.Manifest.Digest == w.manifest.Descriptor.Digest:
		return Unchanged
	}
	return Replaced
}

func (w *modulePush) conflict() error {
	stored := "no h1: hash, and the zip " + w.stored.Digest.String()
	if !w.stored.H1.IsZero() {
		stored = w.stored.H1.String()
	}
	offered := "the folder has " + w.pkg.H1.String()
	help := "give changed content a version of its own. --force replaces the stored version, and users of the version then get other content"
	if w.carrier != nil {
		offered = fmt.Sprintf("%s has the zip %s", w.carrier.from.Repository, w.pkg.Digest)
		help = "find out which of the two is right, and remove the other one with ocibridge remove"
	}
	return hint.Wrap(fmt.Errorf("%s %s: %w: %s:%s has %s, %s", w.pkg.Address, w.pkg.Version, ErrConflict, w.Dest.Repository, w.stored.Tag, stored, offered), "%s", registryUnchanged+help)
}

// sendContent stores the zip and the config.
func (w *modulePush) sendContent(ctx context.Context) (Stage, error) {
	if err := w.slots.Acquire(ctx, 1); err != nil {
		return "", context.Cause(ctx)
	}
	defer w.slots.Release(1)
	layer := w.pkg.Layer()
	stage := StageFound
	exists, err := w.Dest.Store.Exists(ctx, layer)
	if err == nil && w.carrier != nil {
		return w.carryContent(ctx, exists)
	}
	if err == nil && !exists {
		stage, err = w.upload(ctx, layer, zipContent(w.pkg.Open), func(n int) { w.event(StageSend, n) })
	}
	if err != nil {
		return "", w.Failed("push the zip to", err)
	}
	w.event(stage, 0)
	return stage, w.SendBlob(ctx, "push config to", artifact.Config())
}

// mark calls Mark of the destination before the tag moves from the stored version to another
// manifest.
func (w *modulePush) mark(tag ociaddr.Tag, after digest.Digest) error {
	var before digest.Digest
	if w.stored != nil && w.stored.Tag == tag {
		before = w.stored.Manifest.Digest
	}
	return w.Dest.MarkTag(tag, before, after)
}

func (w *modulePush) event(stage Stage, n int) {
	w.o.OnEvent(Event{Subject: w.pkg.Address, Version: w.pkg.Version, Stage: stage, Bytes: n, Total: w.pkg.Size})
}

// result describes a successful push. It describes the stored version, or else the pushed one.
func (w *modulePush) result(status Status, stage Stage) *ModuleResult {
	m, tag := w.pkg.Module, w.tag
	if w.stored != nil {
		m, tag = *w.stored, w.stored.Tag
	}
	return &ModuleResult{
		Module: w.pkg.Address, Version: w.pkg.Version, Repository: w.Dest.Repository, Tag: tag, Digest: m.Manifest.Digest.String(), Status: status,
		Zip: m.Digest.String(), Size: m.Size, H1: m.H1, Revision: m.Revision, Sent: stage == StageDone, Warnings: w.warnings,
	}
}

// zipContent is the content of a module's zip.
type zipContent func() io.ReadCloser

func (c zipContent) open(context.Context) (io.ReadCloser, error) { return c(), nil }
func (c zipContent) failure() error                              { return nil }

const (
	helpOtherContent    = "let the template give the module a repository of its own, or delete that tag with the registry's own tools if the repository is right"
	helpImmutableModule = "the registry does not move tags, and the tag names the same version as before. Push the changed module as a version of its own"
)
