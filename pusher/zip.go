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
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// zipPush pushes one version, such as a module's, to one repository. The version has one zip and no platforms.
type zipPush struct {
	target
	want     *artifact.Version
	open     zipContent // nil for a copy
	manifest artifact.Blob
	tag      ociaddr.Tag       // the tag that the push writes
	stored   *artifact.Version // the stored version; nil: there is none
	carrier  *carrier          // copies from another repository; nil: the push of a folder
	copied   *attached         // the referrers that a copy has copied; nil: none yet
	warnings []string

	approvedBy string // the fingerprint of the key in Options.Sign, if the version is approved by it
}

// PushZip stores the zip, the config and the manifest of a module's version, and writes the tag last. If it fails,
// the tag is as it was before.
//
// Unless [Options.Force] is set, the push writes nothing if the stored version has the same h1: hash or the same
// zip, and the module in the same folder of it. It returns [ErrConflict] if it has other content, and [ErrMoved] if both were
// fetched from an origin, and have different commits or folders. The tag of the stored version may begin with a v.
//
// The push of a module that was fetched from its origin notes the time for [Pusher.Summarize]. If Force replaces such a
// version, the repository's state notes the replaced manifest.
//
// [repo.ErrOccupied] means that the repository belongs to another module, or has something other than modules.
func (p *Pusher) PushZip(ctx context.Context, dest repo.Destination, want *artifact.Version, open func() io.ReadCloser) (*Result, error) {
	w, err := p.newZipPush(dest, want, open)
	if err != nil {
		return nil, err
	}
	unlock, err := dest.LockFor(ctx, "push of %s %s", want.Owner, want.Version)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return w.run(repo.MayPush(ctx, dest.Repository))
}

// run stores the version. The caller has locked the destination.
func (w *zipPush) run(ctx context.Context) (*Result, error) {
	// 1. Compare with the stored version.
	if err := w.inspect(ctx); err != nil {
		return nil, err
	}
	if w.unchanged() {
		w.event(StagePresent, 0)
		return w.keep(ctx, StagePresent)
	}
	if err := w.checkApproved(ctx); err != nil {
		return nil, err
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
		return w.keep(ctx, stage)
	}
	// 4. Store the manifest and its approval, and then the tag.
	status := w.status()
	if err := w.approve(ctx); err != nil {
		return nil, err
	}
	if err := w.mark(w.tag, w.manifest.Descriptor.Digest); err != nil {
		return nil, err
	}
	if status == Replaced {
		w.noteReplaced(ctx)
	}
	if err := w.SendTag(ctx, "tag "+string(w.tag)+" in", w.manifest, string(w.tag), helpImmutableModule); err != nil {
		return nil, err
	}
	w.stored = nil
	w.noteFetched()
	return w.result(status, stage), nil
}

// noteFetched notes when a version was fetched from its origin.
func (w *zipPush) noteFetched() {
	if w.carrier == nil && !w.want.Provenance.IsZero() {
		w.session.NoteFetched(w.want.Owner, w.Dest, w.want.Version, w.o.Now())
	}
}

// noteReplaced notes in the repository's state that the tag will no longer name the manifest of a version that was fetched
// from its origin. The push continues with a warning if the state cannot be written.
func (w *zipPush) noteReplaced(ctx context.Context) {
	if w.stored == nil || w.stored.Provenance.IsZero() || w.carrier != nil || w.Dest.Store.Remote() == nil {
		return
	}
	w.warnings = append(w.warnings, fmt.Sprintf("%s replaces %s", origins(w.want), origins(w.stored)))
	change := repo.StateChange{Replaced: []artifact.Replaced{{Manifest: repo.Plain(w.stored.Index), Version: w.want.Version}}}
	if err := w.UpdateState(ctx, w.want.Owner, change, w.warn); err != nil && ctx.Err() == nil {
		w.warn("the replaced manifest %s is not recorded: %v", w.stored.Index.Digest, err)
	}
}

// origins says where a version was fetched from.
func origins(v *artifact.Version) string {
	if v.Revision != "" {
		return fmt.Sprintf("the commit %s of %s", v.Revision, v.Provenance.Location)
	}
	return fmt.Sprintf("%s with %s", v.Provenance.Location, v.Zip().H1)
}

// keep ends a push that leaves the stored version as it is.
func (w *zipPush) keep(ctx context.Context, stage Stage) (*Result, error) {
	w.noteFetched()
	if err := w.approveStored(ctx); err != nil {
		return nil, err
	}
	if err := w.mark(w.stored.Tag, w.stored.Index.Digest); err != nil {
		return nil, err
	}
	return w.result(Unchanged, stage), nil
}

// PlanZip returns the result that [Pusher.PushZip] would have. It writes nothing.
func (p *Pusher) PlanZip(ctx context.Context, dest repo.Destination, want *artifact.Version, open func() io.ReadCloser) (*Result, error) {
	w, err := p.newZipPush(dest, want, open)
	if err != nil {
		return nil, err
	}
	return w.plan(ctx)
}

// plan returns the result that run would have, apart from Sent.
func (w *zipPush) plan(ctx context.Context) (*Result, error) {
	if err := w.inspect(ctx); err != nil {
		return nil, err
	}
	if err := w.checkApproved(ctx); err != nil {
		return nil, err
	}
	status := w.status()
	if !w.unchanged() {
		w.stored = nil
	}
	return w.result(status, StagePresent), nil
}

func (p *Pusher) newZipPush(dest repo.Destination, want *artifact.Version, open func() io.ReadCloser) (*zipPush, error) {
	manifest, err := artifact.EncodeZip(*want)
	if err != nil {
		return nil, err
	}
	tag, err := ociaddr.VersionTag(want.Version)
	if err != nil {
		return nil, err
	}
	stored := *want
	stored.Index = manifest.Descriptor
	return &zipPush{target: p.to(dest), want: &stored, open: open, manifest: manifest, tag: tag}, nil
}

// inspect reads the stored version. If there is none, it checks that the repository does not belong to
// another module or provider. A tag that names no module is an error only if no other tag names a
// module.
func (w *zipPush) inspect(ctx context.Context) error {
	if err := w.read(ctx); err != nil || w.stored != nil {
		return err
	}
	tags, err := artifact.ListAnyTags(ctx, w.Dest.Store)
	if err != nil {
		return w.Failed("list tags of", err)
	}
	tagged := ociaddr.TagsOf(w.want.Owner, tags)
	if w.o.Force {
		delete(tagged, w.want.Version) // read has found that the push may replace it
	}
	versions := slices.Collect(maps.Keys(tagged))
	provider.SortVersions(versions)
	var other error // why the newest tag that names no module is invalid
	hasModule := false
	forbidden, err := w.ProbeOwner(ctx, w.tag, versions, w.want.Owner, func(v provider.Version) (bool, error) {
		found, err := artifact.ReadTagged(ctx, w.Dest.Store, w.want.Owner, v, tagged[v])
		if artifact.IsInvalid(err) && other == nil {
			other = fmt.Errorf("its tag %s: %w", tagged[v], err)
		}
		hasModule = hasModule || err == nil
		return err == nil && found.Owner != nil, err
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
func (w *zipPush) read(ctx context.Context) error {
	found, err := artifact.ReadZip(ctx, w.Dest.Store, w.want.Owner, w.want.Version)
	w.stored = found
	switch {
	case errors.Is(err, errdef.ErrNotFound), w.o.Force && repo.IsReplaceable(err):
		return nil
	case errors.Is(err, artifact.ErrForeign):
		return repo.Occupied(w.Dest.Repository, w.tag, err, artifact.HelpForeign(err, w.want.Owner))
	case repo.IsReplaceable(err):
		return repo.Occupied(w.Dest.Repository, w.tag, err, "the tag is left as it was; ocibridge module push --force replaces what it names")
	case err != nil:
		return w.Failed("read "+string(w.tag)+" in", err)
	case w.o.Force:
		return nil
	}
	if w.moved() {
		return hint.Wrap(fmt.Errorf("%s %s: %w: it names %s, and %s:%s has %s", w.want.Owner, w.want.Version, ErrMoved, origins(w.want), w.Dest.Repository, w.stored.Tag, origins(w.stored)), "%s", helpMoved)
	}
	same, err := w.same(ctx)
	if err == nil && !same {
		err = w.conflict()
	}
	return err
}

// moved reports whether the origin names another commit or another folder than the stored version has.
func (w *zipPush) moved() bool {
	was, is := w.stored, w.want
	fetched := w.carrier == nil && !was.Provenance.IsZero() && !is.Provenance.IsZero()
	return fetched && (was.Provenance.Folder != is.Provenance.Folder || was.Revision != "" && is.Revision != "" && was.Revision != is.Revision)
}

// same reports whether the stored version has the content of the pushed version. The folder decides which of the files clients
// use as the module.
func (w *zipPush) same(ctx context.Context) (bool, error) {
	if w.stored.Provenance.Folder != w.want.Provenance.Folder {
		return false, nil
	}
	if w.stored.Zip().Digest == w.want.Zip().Digest {
		return true, nil
	}
	offered := w.want.Zip().H1
	if w.carrier != nil {
		var err error
		if offered, err = zipH1(ctx, w.carrier.from.Store, w.carrier.from.Repository, w.want); err != nil {
			return false, err
		}
	}
	if offered.IsZero() {
		return false, nil
	}
	stored, err := zipH1(ctx, w.Dest.Store, w.Dest.Repository, w.stored)
	return stored == offered, err
}

// zipH1 returns the h1: hash of a stored module. If none is recorded, it downloads the zip. It returns no hash for
// a zip that clients cannot unpack.
func zipH1(ctx context.Context, store artifact.Fetcher, r ociaddr.Repository, v *artifact.Version) (provider.Hash, error) {
	if !v.Zip().H1.IsZero() {
		return v.Zip().H1, nil
	}
	files, err := artifact.RehashZip(ctx, store, *v.Zip())
	switch {
	case artifact.IsContent(err):
		return provider.Hash{}, nil
	case err != nil:
		return provider.Hash{}, &repo.RegistryError{Op: "read the zip of " + string(v.Tag) + " in", Repository: r, Err: err}
	}
	return files.H1, nil
}

// unchanged reports whether the push has nothing to write. A forced push always writes.
func (w *zipPush) unchanged() bool { return w.stored != nil && !w.o.Force }

// status returns the status of a push that writes the tag.
func (w *zipPush) status() Status {
	switch {
	case w.stored == nil:
		return Pushed
	case w.unchanged() || w.stored.Index.Digest == w.manifest.Descriptor.Digest:
		return Unchanged
	}
	return Replaced
}

func (w *zipPush) conflict() error {
	stored := "no h1: hash, and the zip " + w.stored.Zip().Digest.String()
	if !w.stored.Zip().H1.IsZero() {
		stored = w.stored.Zip().H1.String()
	}
	offered := "the folder has " + w.want.Zip().H1.String()
	if !w.want.Provenance.IsZero() {
		offered = fmt.Sprintf("%s has %s", w.want.Provenance.Location, w.want.Zip().H1)
		if w.want.Revision != "" {
			offered += " at the commit " + w.want.Revision
		}
		if w.stored.Revision != "" {
			stored += " at the commit " + w.stored.Revision
		}
	}
	if w.carrier != nil {
		offered = fmt.Sprintf("%s has the zip %s", w.carrier.from.Repository, w.want.Zip().Digest)
	}
	return hint.Wrap(fmt.Errorf("%s %s: %w: %s:%s has %s%s, %s%s", w.want.Owner, w.want.Version, ErrConflict,
		w.Dest.Repository, w.stored.Tag, stored, inFolder(w.stored), offered, inFolder(w.want)), "%s", registryUnchanged+w.helpConflict())
}

func (w *zipPush) helpConflict() string {
	was, is := !w.stored.Provenance.IsZero(), !w.want.Provenance.IsZero() // fetched from an origin
	switch {
	case w.carrier != nil:
		return "find out which of the two is right, and remove the other one with ocibridge remove"
	case was && is:
		return helpMoved
	case is:
		return "the stored version was pushed from a folder. Find out which of the two is right. " + helpForce
	case was:
		return "the stored version was fetched from " + w.stored.Provenance.Location + ". Give your own content a version of its own. " + helpForce
	}
	return "give changed content a version of its own. " + helpForce
}

// inFolder says in which folder of its zip a module is. It is "" for the root.
func inFolder(v *artifact.Version) string {
	if v.Provenance.Folder == "" {
		return ""
	}
	return fmt.Sprintf(" with the module in the folder %s", v.Provenance.Folder)
}

// sendContent stores everything that the manifest names.
func (w *zipPush) sendContent(ctx context.Context) (Stage, error) {
	if err := w.slots.Acquire(ctx, 1); err != nil {
		return "", context.Cause(ctx)
	}
	defer w.slots.Release(1)
	layer := w.want.Zip().Layer()
	stage := StageFound
	exists, err := w.Dest.Store.Exists(ctx, layer)
	if err == nil && w.carrier != nil {
		if !exists {
			stage = StageDone
			w.event(StageSend, 0)
		}
		if err := w.carrier.storeParts(ctx, w.manifest.Descriptor, w.manifest.Data); err != nil {
			return "", err
		}
		w.event(stage, 0)
		return stage, nil
	}
	if err == nil && !exists {
		stage, err = w.upload(ctx, layer, w.open, func(n int) { w.event(StageSend, n) })
	}
	if err != nil {
		return "", w.Failed("push the zip to", err)
	}
	w.event(stage, 0)
	return stage, w.SendBlob(ctx, "push config to", artifact.Config())
}

// mark calls Mark of the destination before the tag moves to another manifest.
func (w *zipPush) mark(tag ociaddr.Tag, after digest.Digest) error {
	var before digest.Digest
	if w.stored != nil && w.stored.Tag == tag {
		before = w.stored.Index.Digest
	}
	return w.Dest.MarkTag(tag, before, after)
}

func (w *zipPush) warn(format string, args ...any) {
	w.warnings = append(w.warnings, fmt.Sprintf(format, args...))
}

func (w *zipPush) event(stage Stage, n int) {
	w.o.OnEvent(Event{Subject: w.want.Owner, Version: w.want.Version, Stage: stage, Bytes: n, Total: w.want.Zip().Size})
}

// result describes a successful push. It describes w.stored, or the pushed version if w.stored is nil.
func (w *zipPush) result(status Status, stage Stage) *Result {
	v, tag := w.want, w.tag
	if w.stored != nil {
		v, tag = w.stored, w.stored.Tag
	}
	zip := v.Zip()
	return &Result{
		Subject: w.want.Owner, Version: w.want.Version, Repository: w.Dest.Repository, Tag: tag, Digest: v.Index.Digest.String(), Status: status,
		Packages: []PackageResult{{Filename: zip.Filename, Digest: zip.Digest.String(), Size: zip.Size, H1: zip.H1, Sent: stage == StageDone}},
		Revision: v.Revision, Source: v.Provenance, Warnings: w.warnings, ApprovedBy: w.approvedBy,
	}
}

// zipContent is the content of a module's zip.
type zipContent func() io.ReadCloser

func (c zipContent) open(context.Context) (io.ReadCloser, error) { return c(), nil }
func (c zipContent) failure() error                              { return nil }

const (
	helpMoved           = "the stored version stays, and clients get it as before. Ask the publisher of the module why the version changed; ocibridge module push --force replaces the stored version, and users of the version then get other content"
	helpForce           = "ocibridge module push --force replaces the stored version, and users of the version then get other content"
	helpOtherContent    = "let the template give the module a repository of its own, or delete that tag with the registry's own tools if the repository is right"
	helpImmutableModule = "the registry does not move tags, and the tag names the same version as before. Push the changed module as a version of its own"
)
