package reconcile

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// When a tag moves, its old index stays in the registry, and some registries then refuse to
// delete the manifests that the old index names. A push does not delete the old index,
// because readers might still use its digest. Instead, the push notes the digest in the
// repository's state before it moves the tag. A prune deletes the noted indexes.

// replacements returns the manifests of a provider or a module that the steps of a plan replace.
func (p *Plan) replacements(a subject.Address) (out []artifact.Replaced) {
	for _, step := range p.Steps {
		if step.Subject == a && (step.Action == pusher.ActionAdd || step.Action == pusher.ActionRepair) && step.index.Digest != "" {
			out = append(out, artifact.Replaced{Manifest: repo.Plain(step.index), Version: step.Version})
		}
	}
	return out
}

// deleteReplaced deletes the noted manifests that no tag names and that have no referrers apart from approvals. A
// manifest that cannot be deleted stays noted for the next prune. deleteReplaced also
// deletes the state of a repository without versions. It keeps the state of a provider with
// a cooldown, because the state holds the ages of its versions, and the state of a module that has
// such ages. It also removes the pruned versions from the summary.
func (p *pruner) deleteReplaced(ctx context.Context) error {
	pruned := p.pruned()
	if !slices.Contains(p.state.tags, ociaddr.StateTag) && len(pruned) == 0 {
		return nil
	}
	state, desc, err := repo.ReadState(ctx, p.cached(p.state), p.state.dest.Repository, p.state.subject)
	if err != nil || desc == nil {
		return err
	}
	describesPruned := false
	for v := range state.Summary {
		describesPruned = describesPruned || pruned[v]
	}
	keepState := p.state.cooldown || !subject.TraitsOf(p.state.subject).Packages && len(state.Seen) > 0
	if !describesPruned && notesOnlyState(state) && (keepState || len(p.gone) < len(p.state.versions)) {
		return nil
	}
	lost := map[provider.Version]bool{}
	for _, r := range state.Replaced {
		lost[r.Version] = true
	}
	deleteState := !keepState
	named, err := p.named(ctx, func(t ociaddr.Tag) bool {
		// Skip the tags of versions that have no noted index. An index contains its version, so such a tag cannot name a
		// noted index.
		v, isVersion := versionOf(p.state.subject, t)
		deleteState = deleteState && !isVersion
		return len(lost) == 0 || isVersion && !lost[v]
	})
	if err != nil {
		p.warnReplacedLeft(len(state.Replaced), err)
		return ctx.Err()
	}
	gone, err := p.deleteNoted(ctx, state.Replaced, named)
	if ctx.Err() != nil {
		return err
	}
	switch {
	case deleteState && len(gone) == len(state.Replaced):
		if derr := repo.DeleteWithTag(ctx, p.state.dest.Store, *desc, ociaddr.StateTag); derr != nil {
			err = errors.Join(err, p.deleteError("remove the tag "+string(ociaddr.StateTag)+" from", derr))
		}
	case len(gone) > 0 || describesPruned:
		err = errors.Join(err, p.session.Writer(p.state.dest).UpdateState(ctx, p.state.subject, repo.StateChange{Deleted: gone, Undescribed: pruned}, p.out.warn))
	}
	return err
}

// versionOf returns the version that a tag names in the repository of a provider or a module.
func versionOf(a subject.Address, t ociaddr.Tag) (provider.Version, bool) {
	for v := range ociaddr.TagsOf(a, []ociaddr.Tag{t}) {
		return v, true
	}
	return provider.Version{}, false
}

// pruned returns the versions that the prune has removed.
func (p *pruner) pruned() map[provider.Version]bool {
	out := map[provider.Version]bool{}
	for _, step := range p.out.Pruned {
		if step.Subject == p.state.subject {
			out[step.Version] = true
		}
	}
	return out
}

// deleteNoted deletes the noted manifests that no tag names. It returns the digests of the
// manifests that the state no longer has to note.
func (p *pruner) deleteNoted(ctx context.Context, replaced []artifact.Replaced, named map[digest.Digest]bool) (gone map[digest.Digest]bool, err error) {
	gone = map[digest.Digest]bool{}
	var left, failures []error
	for _, r := range replaced {
		if named[r.Manifest.Digest] {
			continue
		}
		done, err := p.deleteOne(ctx, r)
		switch {
		case ctx.Err() != nil:
			return gone, context.Cause(ctx)
		case err != nil && done:
			failures = append(failures, err)
		case err != nil:
			left = append(left, err)
		}
		if done {
			gone[r.Manifest.Digest] = true
		}
	}
	if len(left) > 0 {
		p.warnReplacedLeft(len(left), left[0])
	}
	return gone, errors.Join(failures...)
}

// warnReplacedLeft warns that n manifests in the state were not deleted.
func (p *pruner) warnReplacedLeft(n int, err error) {
	p.out.warn("%s: manifests that lost their tag are left (%d), and the next sync --prune tries again: %v", p.state.dest.Repository, n, err)
}

// notesOnlyState reports whether a state notes nothing, or nothing but one older state.
// Deleting that older state would be pointless. The prune would have to write a new state,
// and the new state would note the state that it replaces.
func notesOnlyState(s *artifact.State) bool {
	return len(s.Replaced) == 0 || len(s.Replaced) == 1 && s.Replaced[0].Version.IsZero()
}

// deleteOne deletes a manifest that lost its tag. done reports whether the manifest can be
// dropped from the state, because it is gone or belongs to another provider or module. If a push has tagged the index again in the meantime, deleteOne restores it.
func (p *pruner) deleteOne(ctx context.Context, r artifact.Replaced) (done bool, err error) {
	data, owned, err := artifact.IsOwned(ctx, p.state.dest.Store, r, p.state.subject)
	switch {
	case repo.IsGone(err), err == nil && !owned:
		return true, nil
	case err != nil:
		return false, err
	}
	attached, err := p.attachmentsOf(ctx, r.Manifest)
	if !p.explicit[r.Version] && (err != nil || attached.others) {
		return false, err
	}
	// The approvals go last, because the manifest needs them if its tag comes back.
	if err := repo.DeleteAny(ctx, p.state.dest.Store, r.Manifest); err != nil {
		return false, err
	}
	restored := false
	if !r.Version.IsZero() {
		restored, err = p.restoreReplaced(ctx, r, data)
	}
	if err == nil && !restored {
		p.warnSignatures(ctx, r.Manifest, attached.signatures)
	}
	return true, err
}

// restoreReplaced notes a deleted index as swept, and puts it back if its tag has disappeared with it.
func (p *pruner) restoreReplaced(ctx context.Context, r artifact.Replaced, data []byte) (restored bool, err error) {
	index := artifact.Blob{Descriptor: r.Manifest, Data: data}
	if version, err := repo.ReadComplete(ctx, singleManifest{p.cached(p.state), index}, p.state.subject, r.Version, repo.TagOf(r.Version)); err == nil {
		p.swept = append(p.swept, version)
	}
	return p.restoreTag(ctx, r, data)
}

// singleManifest is a store whose tags all name the same manifest.
type singleManifest struct {
	artifact.Fetcher
	manifest artifact.Blob
}

// FetchReference implements [artifact.ReferenceFetcher].
func (s singleManifest) FetchReference(context.Context, string) (ocispec.Descriptor, io.ReadCloser, error) {
	return s.manifest.Descriptor, io.NopCloser(bytes.NewReader(s.manifest.Data)), nil
}

// restoreTag stores a deleted index again if the tag of its version disappeared together with
// the index. It reports whether it has done so.
func (p *pruner) restoreTag(ctx context.Context, r artifact.Replaced, data []byte) (restored bool, err error) {
	tag := p.state.versions[r.Version]
	if tag == "" || p.gone[r.Version] {
		return false, nil
	}
	ctx = context.WithoutCancel(ctx) // a prune that is interrupted must not lose the version
	switch _, err := p.state.dest.Store.Resolve(ctx, string(tag)); {
	case err == nil:
		return false, nil
	case !repo.IsNotFound(err):
		return false, hint.Wrap(p.registryError("read "+string(tag)+" in", err), "prune deleted an index that the tag did not name any more when it was read before. Run ocibridge verify")
	}
	if err := p.state.dest.Store.PushReference(ctx, r.Manifest, bytes.NewReader(data), string(tag)); err != nil {
		return false, hint.Wrap(p.registryError("put back the tag "+string(tag)+" in", err), "a push gave the tag to an index while prune deleted it. Push %s again", r.Version)
	}
	return true, nil
}
