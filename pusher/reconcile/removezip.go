package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// planZips adds removals of modules to a plan, and changes nothing. A failure is recorded in
// the plan, and does not affect other versions.
func (r *Remover) planZips(ctx context.Context, plan *RemovePlan, requests []RemoveRequest) error {
	var removals []*Removal
	for _, q := range requests {
		removal, err := r.planZip(ctx, plan, q)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			plan.Failures = append(plan.Failures, Failure{Subject: q.Subject, Version: q.Version, Err: err})
		default:
			removals = append(removals, removal)
		}
	}
	for _, removal := range removals {
		reached, err := r.zipPruner(removal, &Outcome{}).named(ctx, func(t ociaddr.Tag) bool {
			return slices.ContainsFunc(removals, func(m *Removal) bool {
				return m.Repository == removal.Repository && slices.Contains(m.Tags, t)
			})
		})
		if err != nil {
			return &repo.RegistryError{Op: "read tags of", Repository: removal.Repository, Err: err}
		}
		removal.Freeable = unreachedZips(removal.zips, reached)
	}
	plan.Removals = append(plan.Removals, removals...)
	return nil
}

func (r *Remover) planZip(ctx context.Context, plan *RemovePlan, q RemoveRequest) (*Removal, error) {
	dest, err := r.syncer.o.Push.Destination(ctx, q.Subject)
	if err != nil {
		return nil, err
	}
	tags, err := artifact.ListAnyTags(repo.MayPush(ctx, dest.Repository), dest.Store)
	if err != nil {
		return nil, &repo.RegistryError{Op: "list tags of", Repository: dest.Repository, Err: err}
	}
	out := &Removal{Subject: q.Subject, Version: q.Version, Repository: dest.Repository, Referrers: []Referrer{}, state: &repositoryState{subject: q.Subject, dest: dest, tags: tags}}
	if out.Tags, out.zips, err = readZips(ctx, dest, q.Subject, q.Version); err != nil {
		return nil, err
	}
	if len(out.zips) == 0 {
		return nil, hint.Wrap(fmt.Errorf("%s %s: %w in %s", q.Subject, q.Version, origin.ErrVersionNotFound, dest.Repository),
			"%s %s shows the versions that are stored", subject.TraitsOf(q.Subject).List, q.Subject)
	}
	out.Digest, out.Size = out.zips[0].Index.Digest, unreachedZips(out.zips, map[digest.Digest]bool{})
	s := &referrerSearch{state: out.state, seen: map[digest.Digest]bool{}}
	for _, m := range out.zips {
		s.add(m.Index, 0)
	}
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	out.Referrers = append(out.Referrers, s.found...)
	plan.warnRefused(dest.Repository, s.refused)
	return out, nil
}

// readZips returns the tags of a module's version, the tag that clients use first, and what they name.
func readZips(ctx context.Context, dest repo.Destination, a subject.Address, v provider.Version) (tags []ociaddr.Tag, zips []*artifact.Version, err error) {
	named := []ociaddr.Tag{repo.TagOf(v)}
	if subject.TraitsOf(a).LeadingV {
		named = append(named, "v"+named[0])
	}
	for _, tag := range named {
		m, err := readZip(ctx, dest, a, v, tag)
		if err != nil {
			return nil, nil, err
		}
		if m == nil {
			continue
		}
		tags = append(tags, tag)
		if !slices.ContainsFunc(zips, func(o *artifact.Version) bool { return o.Index.Digest == m.Index.Digest }) {
			zips = append(zips, m)
		}
	}
	return tags, zips, nil
}

// readZip returns the version of a module that a tag names. It returns nil if the tag does not
// exist. A tag with a leading v that names something else is not a tag of the version.
func readZip(ctx context.Context, dest repo.Destination, a subject.Address, v provider.Version, tag ociaddr.Tag) (*artifact.Version, error) {
	found, err := artifact.ReadTagged(ctx, dest.Store, a, v, tag)
	switch {
	case errors.Is(err, errdef.ErrNotFound), tag != repo.TagOf(v) && artifact.IsContent(err):
		return nil, nil
	case errors.Is(err, artifact.ErrForeign):
		return nil, repo.Occupied(dest.Repository, tag, err, artifact.HelpForeign(err, a))
	case repo.IsReplaceable(err):
		return nil, repo.Occupied(dest.Repository, tag, err, "delete the tag with the registry's own tools, or replace what it names by "+subject.TraitsOf(a).Replace)
	case err != nil:
		return nil, &repo.RegistryError{Op: "read " + string(tag) + " in", Repository: dest.Repository, Err: err}
	}
	return found, nil
}

// unreachedZips returns the total size in bytes of the zips that are not in reached, and adds
// these zips to reached.
func unreachedZips(zips []*artifact.Version, reached map[digest.Digest]bool) (size int64) {
	for _, m := range zips {
		if !reached[m.Zip().Digest] {
			reached[m.Zip().Digest] = true
			size += m.Zip().Size
		}
	}
	return size
}

func (r *Remover) zipPruner(removal *Removal, out *Outcome) *pruner {
	return r.syncer.newPruner(removal.state, out, outgoing.NewClock(r.syncer.o.Push.Now))
}

// applyZip removes a version of a module: its tags, its referrers if the Remover removes
// them, and the manifests that no other tag names.
func (r *Remover) applyZip(ctx context.Context, removal *Removal, out *RemoveOutcome) error {
	did := &Outcome{}
	p := r.zipPruner(removal, did)
	defer func() { out.Warnings = append(out.Warnings, did.Warnings...) }()
	unlock, err := removal.state.dest.LockFor(ctx, "removal of %s %s", removal.Subject, removal.Version)
	if err != nil {
		return err
	}
	defer unlock()
	// 1. Remove the tags. The tag that clients use comes last: once it is gone, clients would use the other
	// tag.
	for _, tag := range slices.Backward(removal.Tags) {
		if _, err := p.untagZip(ctx, removal.zips, tag); err != nil {
			return err
		}
	}
	// 2. Find out what other tags name.
	named, err := p.named(ctx, func(t ociaddr.Tag) bool { return p.tiedTags[t] })
	if err != nil {
		return p.registryError("read tags of", err)
	}
	referrers := removal.referrersToRemove(named)
	if len(p.tiedTags) == 0 {
		if err := p.removeReferrers(ctx, r.referrers, referrers); err != nil {
			return err
		}
	}
	// 3. Delete the manifests.
	for _, m := range removal.zips {
		if err := p.deleteZip(ctx, removal, m.Index, named); err != nil {
			return err
		}
	}
	if len(p.tiedTags) > 0 { // until here, the registry could still refuse the removal
		if err := p.removeReferrers(ctx, r.referrers, referrers); err != nil {
			return err
		}
	}
	out.Removed = append(out.Removed, removal)
	out.Freeable += unreachedZips(removal.zips, named)
	// 4. Delete the state with the last version.
	if err := p.deleteLastState(ctx, named); err != nil {
		p.out.warn("%s: the tag %s is left: %v", removal.Repository, ociaddr.StateTag, err)
	}
	return nil
}

// deleteLastState deletes the state of a module's repository without versions, with the manifests that the state notes. Like that
// of a provider, it stays if a sync with a cooldown needs it.
func (p *pruner) deleteLastState(ctx context.Context, named map[digest.Digest]bool) error {
	dest := p.state.dest
	tags, err := artifact.ListAnyTags(repo.MayPush(ctx, dest.Repository), dest.Store)
	if err != nil || !slices.Contains(tags, ociaddr.StateTag) || len(ociaddr.TagsOf(p.state.subject, tags)) > 0 {
		return err
	}
	state, desc, err := repo.ReadState(ctx, dest.Store, dest.Repository, p.state.subject)
	if err != nil || desc == nil || state.Cooldown {
		return err
	}
	gone, err := p.deleteNoted(ctx, state.Replaced, named)
	if err != nil || len(gone) < len(state.Replaced) {
		return err
	}
	return repo.DeleteWithTag(ctx, dest.Store, *desc, ociaddr.StateTag)
}

// referrersToRemove returns the referrers, at any depth, of manifests that no tag names.
func (m *Removal) referrersToRemove(named map[digest.Digest]bool) (out []Referrer) {
	stays := map[digest.Digest]bool{}
	for _, f := range m.zips {
		stays[f.Index.Digest] = named[f.Index.Digest]
	}
	for _, r := range m.Referrers { // a referrer follows its subject
		if stays[r.Digest] = stays[r.Subject]; !stays[r.Digest] {
			out = append(out, r)
		}
	}
	return out
}

// untagZips removes the tags of a module's version, unless the version has changed since the plan was
// made. The tag that clients use comes last: once it is gone, clients would use the other tag.
func (p *pruner) untagZips(ctx context.Context, step Step) (gone []untagged, err error) {
	tags, zips, err := readZips(ctx, p.state.dest, step.Subject, step.Version)
	if err != nil || len(tags) == 0 {
		return nil, err // another prune was faster
	}
	if zips[0].Index.Digest != step.index.Digest {
		return nil, hint.New(fmt.Sprintf("%s:%s has changed since the plan was made; it is left", p.state.dest.Repository, tags[0]), "run it again")
	}
	tied := false
	for _, tag := range slices.Backward(tags) {
		t, err := p.untagZip(ctx, zips, tag)
		if err != nil {
			return nil, err
		}
		tied = tied || t
	}
	if p.gone[step.Version] = true; !tied {
		p.out.Pruned = append(p.out.Pruned, step)
	}
	for _, m := range zips {
		gone = append(gone, untagged{step: step, version: m, tied: tied})
	}
	return gone, nil
}

// untagZip removes a tag, unless it names none of the manifests. tied means that the registry removes the tag only together
// with its manifest.
func (p *pruner) untagZip(ctx context.Context, zips []*artifact.Version, tag ociaddr.Tag) (tied bool, err error) {
	store := p.state.dest.Store
	there, err := artifact.Resolve(ctx, store, string(tag))
	switch {
	case repo.IsNotFound(err):
		return false, nil // another removal was faster
	case err != nil:
		return false, p.registryError("read "+string(tag)+" in", err)
	case !slices.ContainsFunc(zips, func(m *artifact.Version) bool { return m.Index.Digest == there.Digest }):
		return false, hint.New(fmt.Sprintf("%s:%s has changed since the plan was made; it is left", p.state.dest.Repository, tag), "run it again")
	}
	err = store.Untag(ctx, string(tag))
	switch {
	case errors.Is(err, errdef.ErrUnsupported):
		p.tiedTags[tag] = true
		return true, nil
	case err != nil && !errors.Is(err, errdef.ErrNotFound):
		return false, p.deleteError("remove the tag "+string(tag)+" from", err)
	}
	return false, nil
}

// deleteZip deletes the manifest of a module, unless another tag names it.
func (p *pruner) deleteZip(ctx context.Context, removal *Removal, manifest ocispec.Descriptor, named map[digest.Digest]bool) error {
	tied := len(p.tiedTags) > 0
	if named[manifest.Digest] {
		if tied {
			return hint.New(fmt.Sprintf("%s: the registry does not remove tags by themselves, and another tag names what %s names", removal.Repository, removal.Tags[0]),
				"delete the tags with the registry's own tools")
		}
		return nil
	}
	err := p.deleteApproved(ctx, manifest, tied)
	switch {
	case err == nil:
		return nil
	case !tied:
		p.warnLeft(manifest, err)
		return nil
	}
	return p.deleteError("remove "+removal.Version.String()+" from", err)
}
