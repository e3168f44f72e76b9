package pusher

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// sweep deletes the indexes of versions and what they name, but for what tags that
// are left, and indexes under them, still name. If it cannot be told, it is left
// for the registry's own garbage collection.
func (p *pruner) sweep(ctx context.Context, gone []untagged) error {
	named, err := p.named(ctx, p.bound)
	if err != nil {
		if len(p.bound) > 0 {
			return hint.Wrap(p.registryError("read tags of", err), "nothing that its tags may name was deleted")
		}
		p.leftover(err)
		return ctx.Err()
	}
	var swept []*artifact.Version
	for _, u := range gone {
		index := u.version.Index
		switch {
		case named[index.Digest] && u.bound:
			p.fail(u.step, hint.New(fmt.Sprintf("%s: the registry does not remove tags by themselves, and another tag names what %s names", p.state.dest.Repository, u.step.Version),
				"delete the tags with the registry's own tools"))
			continue
		case named[index.Digest]:
			continue
		}
		if derr := p.delete(ctx, index); derr != nil {
			if u.bound {
				derr = p.deleteError("prune "+u.step.Version.String()+" from", derr)
				if isHeld(derr) {
					p.fail(u.step, derr)
					continue
				}
				err = derr
				break
			}
			p.leave(index, derr) // its children must not go before it
			continue
		}
		if u.bound {
			p.out.Pruned = append(p.out.Pruned, u.step)
		}
		swept = append(swept, u.version)
	}
	return errors.Join(err, p.sweepNamed(ctx, swept))
}

// sweepNamed deletes what the indexes named that are gone. Replaced indexes name the same
// manifests, and go before these.
func (p *pruner) sweepNamed(ctx context.Context, swept []*artifact.Version) error {
	replaced, err := p.deleteReplaced(ctx)
	if swept = append(swept, replaced...); len(swept) > 0 {
		err = errors.Join(err, p.sweepChildren(ctx, swept), p.deleteProbe(ctx))
	}
	return errors.Join(err, ctx.Err())
}

// sweepChildren deletes what indexes named that are gone. A push that goes on
// meanwhile may have found these manifests there: what a tag names by then is put
// back.
func (p *pruner) sweepChildren(ctx context.Context, swept []*artifact.Version) error {
	named, err := p.named(ctx, nil)
	if err != nil {
		p.leftover(err)
		return nil
	}
	var deleted []artifact.Blob
	for _, child := range p.children(ctx, swept) {
		if named[child.Digest] || ctx.Err() != nil {
			continue
		}
		named[child.Digest] = true // once
		data, err := artifact.FetchManifest(ctx, p.cached(p.state), child)
		if err == nil {
			err = p.delete(ctx, child)
		}
		switch {
		case err == nil:
			deleted = append(deleted, artifact.Blob{Descriptor: child, Data: data})
		case !isGone(err): // some registries delete it with its index
			p.leave(child, err)
		}
	}
	if err := p.putBack(ctx, deleted); err != nil {
		return hint.Wrap(p.registryError("put back what a push may need in", err), "ocibridge verify shows versions that lack manifests, and push --force sends them again")
	}
	return nil
}

// deleteProbe deletes the probe of [push.removeProbe], which a login that may not delete has
// left.
func (p *pruner) deleteProbe(ctx context.Context) error {
	probe, err := artifact.Placeholder("")
	if err != nil {
		return err
	}
	if err := p.delete(ctx, probe.Descriptor); err != nil {
		p.leave(probe.Descriptor, err)
	}
	return nil
}

// children returns the manifests that versions name, but for evidence that is not
// a version's own: versions without a signature may share theirs, and a push of
// any of them relies on it.
func (p *pruner) children(ctx context.Context, versions []*artifact.Version) []ocispec.Descriptor {
	var out []ocispec.Descriptor
	for _, v := range versions {
		for _, pkg := range v.Packages {
			out = append(out, pkg.Manifest)
		}
		if v.Evidence == nil {
			continue
		}
		e, err := artifact.ReadEvidence(ctx, p.cached(p.state), *v.Evidence)
		switch {
		case err == nil && len(e.SHA256SUMS) > 0:
			out = append(out, *v.Evidence)
		case err != nil && !isGone(err):
			p.leave(*v.Evidence, err)
		}
	}
	return out
}

// putBack stores again what of the manifests a tag names now.
func (p *pruner) putBack(ctx context.Context, deleted []artifact.Blob) error {
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

// named returns the digests that tags name, directly and by an index, but for
// those of the tags given.
func (p *pruner) named(ctx context.Context, without map[ociaddr.Tag]bool) (map[digest.Digest]bool, error) {
	// Anew: somebody may have added some. No list is no answer here: that a
	// repository which was pruned has none may as well be a registry's mistake.
	tags, err := artifact.ListTags(ctx, p.state.dest.Store)
	if err != nil {
		return nil, err
	}
	out := map[digest.Digest]bool{}
	for _, t := range tags {
		if _, ok := t.Seen(); ok || without[t] {
			continue
		}
		children, d, err := artifact.Children(ctx, p.cached(p.state), string(t))
		if errors.Is(err, errdef.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("tag %s: %w", t, err)
		}
		out[d] = true
		for _, c := range children {
			out[c] = true
		}
	}
	return out, nil
}
