package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// sweep deletes the indexes of untagged versions, and the manifests that these indexes name.
// It keeps manifests that the remaining tags name, directly or through an index. If it cannot
// find out which manifests to keep, it leaves all of them to the registry's garbage
// collection.
func (p *pruner) sweep(ctx context.Context, gone []untagged) error {
	named, err := p.named(ctx, func(t ociaddr.Tag) bool { return p.tiedTags[t] })
	if err != nil {
		if len(p.tiedTags) > 0 {
			return hint.Wrap(p.registryError("read tags of", err), "nothing that its tags may name was deleted")
		}
		p.warnLeftovers(err)
		return ctx.Err()
	}
	for _, u := range gone {
		if err = p.sweepIndex(ctx, u, named); err != nil {
			break
		}
	}
	return errors.Join(err, p.sweepNamed(ctx))
}

// sweepIndex deletes the index of an untagged version. It returns an error only if the
// deletes of other versions would fail as well.
func (p *pruner) sweepIndex(ctx context.Context, u untagged, named map[digest.Digest]bool) error {
	index := u.version.Index
	if named[index.Digest] {
		if u.tied {
			p.fail(u.step, hint.New(fmt.Sprintf("%s: the registry does not remove tags by themselves, and another tag names what %s names", p.state.dest.Repository, repo.TagOf(u.step.Version)),
				"delete the tags with the registry's own tools"))
		}
		return nil
	}
	err := p.deleteApproved(ctx, index, u.tied)
	switch {
	case err == nil:
		p.swept = append(p.swept, u.version)
		if u.tied && !p.pruned()[u.step.Version] {
			p.out.Pruned = append(p.out.Pruned, u.step)
		}
		return nil
	case !u.tied:
		p.warnLeft(index, err) // the manifests that the index names must not be deleted before the index
		return nil
	}
	err = p.deleteError("remove "+u.step.Version.String()+" from", err)
	if !repo.IsHeld(err) {
		return err
	}
	p.fail(u.step, err)
	return nil
}

// sweepNamed deletes replaced indexes, and then the manifests that deleted indexes named. It
// deletes the replaced indexes first because they can name the same manifests.
func (p *pruner) sweepNamed(ctx context.Context) error {
	err := p.deleteReplaced(ctx)
	if len(p.swept) > 0 {
		err = errors.Join(err, p.sweepChildren(ctx), p.deleteProbe(ctx))
	}
	return errors.Join(err, ctx.Err())
}

// sweepChildren deletes the manifests that deleted indexes named. A concurrent push might
// rely on some of these manifests. At the end, sweepChildren therefore restores the deleted
// manifests that a tag names by then.
func (p *pruner) sweepChildren(ctx context.Context) error {
	named, err := p.named(ctx, nil)
	if err != nil {
		p.warnLeftovers(err)
		return nil
	}
	counted := maps.Clone(named)
	for _, v := range p.swept {
		p.out.Freeable += unreached(v.Packages, counted)
	}
	var deleted []artifact.Blob
	for _, child := range p.children(ctx) {
		if named[child.Digest] || ctx.Err() != nil {
			continue
		}
		named[child.Digest] = true // so that it is deleted only once
		data, err := artifact.FetchManifest(ctx, p.cached(p.state), child)
		if err == nil {
			err = repo.DeleteAny(ctx, p.state.dest.Store, child)
		}
		switch {
		case err == nil:
			deleted = append(deleted, artifact.Blob{Descriptor: child, Data: data})
		case !repo.IsGone(err): // some registries delete a manifest together with its index
			p.warnLeft(child, err)
		}
	}
	if err := p.restore(ctx, deleted); err != nil {
		return hint.Wrap(p.registryError("put back what a push may need in", err), "ocibridge verify shows versions that lack manifests, and push --force sends them again")
	}
	return nil
}

// unreached returns the total size in bytes of the packages whose layers are not in reached. It
// adds the layers to reached, so that another call does not count them again.
func unreached(packages []artifact.Package, reached map[digest.Digest]bool) (size int64) {
	for _, pkg := range packages {
		if !reached[pkg.Digest] {
			reached[pkg.Digest] = true
			size += pkg.Size
		}
	}
	return size
}

// children returns the manifests that deleted indexes named. It omits evidence without a
// SHA256SUMS. Several unsigned versions can share such evidence, and a concurrent push of
// another version might rely on the evidence. The index of a module is its only manifest.
func (p *pruner) children(ctx context.Context) []ocispec.Descriptor {
	var out []ocispec.Descriptor
	for _, v := range p.swept {
		for _, pkg := range v.Packages {
			if pkg.Manifest.Digest != v.Index.Digest {
				out = append(out, pkg.Manifest)
			}
		}
		if v.Docs != nil {
			out = append(out, *v.Docs)
		}
		if v.Evidence == nil {
			continue
		}
		e, err := artifact.ReadEvidence(ctx, p.cached(p.state), *v.Evidence)
		switch {
		case err == nil && len(e.SHA256SUMS) > 0:
			out = append(out, *v.Evidence)
		case err != nil && !repo.IsGone(err):
			p.warnLeft(*v.Evidence, err)
		}
	}
	return out
}

// restore stores a deleted manifest again if a tag names it by now.
func (p *pruner) restore(ctx context.Context, deleted []artifact.Blob) error {
	if len(deleted) == 0 {
		return nil
	}
	named, err := p.named(ctx, nil)
	for _, m := range deleted {
		if named[m.Descriptor.Digest] {
			err = errors.Join(err, p.state.dest.Store.Push(ctx, m.Descriptor, bytes.NewReader(m.Data)))
		}
	}
	return err
}

// deleteProbe deletes the probe that a push leaves behind if its login may not delete manifests. The push stored the probe
// to find that out.
func (p *pruner) deleteProbe(ctx context.Context) error {
	probe, err := artifact.Placeholder("")
	if err != nil {
		return err
	}
	if err := repo.DeleteAny(ctx, p.state.dest.Store, probe.Descriptor); err != nil {
		p.warnLeft(probe.Descriptor, err)
	}
	return nil
}

// named returns the digests of the manifests and layers that tags name, directly or through an index. It
// skips tags for which skip returns true. If skip is nil, it skips none. It always skips a fallback tag
// that names its own subject, because "cosign copy" of cosign 3 gives such a tag to each manifest.
func (p *pruner) named(ctx context.Context, skip func(ociaddr.Tag) bool) (map[digest.Digest]bool, error) {
	// The tags are listed again, because a push might have added some. Here, status 404 is an
	// error, because a registry might return 404 by mistake.
	tags, err := artifact.ListTags(ctx, p.state.dest.Store)
	if err != nil {
		return nil, err
	}
	out := map[digest.Digest]bool{}
	for _, t := range tags {
		if skip != nil && skip(t) {
			continue
		}
		children, d, err := artifact.Children(ctx, p.cached(p.state), string(t))
		if errors.Is(err, errdef.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("tag %s: %w", t, err)
		}
		if t == ociaddr.ReferrersTag(d) {
			continue
		}
		out[d] = true
		for _, c := range children {
			out[c] = true
		}
	}
	return out, nil
}
