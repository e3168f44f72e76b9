package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// listReferrersOf finds the referrers of the manifests that a removal removes, and the referrers
// of these referrers. reached are the digests that tags name after the removal. refused is the
// error with which the registry refuses to list referrers, or nil.
func listReferrersOf(ctx context.Context, state *repositoryState, removal *Removal, reached map[digest.Digest]bool) (refused, err error) {
	s := &referrerSearch{state: state, seen: map[digest.Digest]bool{}}
	for _, v := range removal.versions() {
		s.add(v.Index, 0)
		if v.Evidence != nil && !reached[v.Evidence.Digest] {
			s.add(*v.Evidence, 0)
		}
		if v.Docs != nil && !reached[v.Docs.Digest] {
			s.add(*v.Docs, 0)
		}
	}
	for _, pkg := range removal.packages() {
		if !reached[pkg.Manifest.Digest] {
			s.add(pkg.Manifest, 0)
		}
	}
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	removal.Referrers = append(removal.Referrers, s.found...)
	return s.refused, nil
}

// referrerSearch searches a repository for the referrers of manifests.
type referrerSearch struct {
	state   *repositoryState
	seen    map[digest.Digest]bool
	next    []repo.Subject
	found   []Referrer
	refused error // why the registry does not list referrers
}

// add queues a manifest whose referrers are searched.
func (s *referrerSearch) add(desc ocispec.Descriptor, depth int) {
	if !s.seen[desc.Digest] {
		s.seen[desc.Digest] = true
		s.next = append(s.next, repo.Subject{Desc: repo.Plain(desc), Depth: depth})
	}
}

// run searches until the queue is empty.
func (s *referrerSearch) run(ctx context.Context) error {
	for len(s.next) > 0 {
		next := s.next[0]
		s.next = s.next[1:]
		if err := s.search(ctx, next); err != nil {
			return err
		}
	}
	return nil
}

// search finds the referrers of one manifest, and the manifests that cosign attached to it by
// tags.
func (s *referrerSearch) search(ctx context.Context, of repo.Subject) error {
	repository, store := s.state.dest.Repository, s.state.dest.Store
	var listed []Referrer
	err := repo.ListReferrers(ctx, store, of.Desc, func(page []ocispec.Descriptor) error {
		if len(s.found)+len(listed)+len(page) > repo.MaxReferrers {
			return fmt.Errorf("%w: more than %d referrers", repo.ErrTooMuchAttached, repo.MaxReferrers)
		}
		for _, desc := range page {
			if desc.Digest.Validate() == nil && artifact.IsManifest(desc.MediaType) && max(len(desc.MediaType), len(desc.ArtifactType)) <= repo.MaxReferrerType {
				desc.ArtifactType = strings.Clone(desc.ArtifactType) // without a clone, the string would keep the whole page in memory
				listed = append(listed, Referrer{Digest: desc.Digest, ArtifactType: desc.ArtifactType, Subject: of.Desc.Digest, desc: repo.Plain(desc)})
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, repo.ErrListRefused):
		s.refused = err
	case errors.Is(err, repo.ErrTooMuchAttached):
		return hint.Wrap(fmt.Errorf("%s: %w", repository, err), "delete them with the registry's own tools")
	case err != nil:
		return &repo.RegistryError{Op: "list referrers in", Repository: repository, Err: err}
	}
	for _, tag := range ociaddr.CosignTags(of.Desc.Digest) {
		if !slices.Contains(s.state.tags, tag) {
			continue
		}
		desc, err := artifact.Resolve(ctx, store, string(tag))
		if repo.IsUnusable(err) {
			continue // the tag was deleted since the tags were listed
		}
		if err != nil {
			return &repo.RegistryError{Op: "read " + string(tag) + " in", Repository: repository, Err: err}
		}
		listed = append(listed, Referrer{Digest: desc.Digest, Tag: tag, Subject: of.Desc.Digest, desc: repo.Plain(desc)})
	}
	for _, one := range listed {
		if s.seen[one.Digest] {
			continue
		}
		tagged := one.Tag == repo.SignatureTag(of.Desc.Digest)
		if tagged || one.Tag == "" {
			if one.Approval, err = repo.IsApproval(ctx, store, of.Desc.Digest, one.desc, tagged); err != nil {
				return &repo.RegistryError{Op: "read a referrer in", Repository: repository, Err: err}
			}
		}
		s.found = append(s.found, one)
		if of.Depth+1 > repo.MaxReferrerDepth {
			return hint.New(fmt.Sprintf("%s: referrers of referrers, more than %d deep", repository, repo.MaxReferrerDepth), "delete them with the registry's own tools")
		}
		s.add(one.desc, of.Depth+1)
	}
	return nil
}

// removeReferrers does nothing unless wanted is set. It deletes the referrers of a removed version, and the lists
// of these referrers under fallback tags. It deletes referrers of referrers first. It keeps a referrer that
// another tag names.
func (p *pruner) removeReferrers(ctx context.Context, wanted bool, referrers []Referrer) error {
	if !wanted || len(referrers) == 0 {
		return nil
	}
	lists := map[ociaddr.Tag]bool{} // fallback tags, and tags of cosign
	for _, r := range referrers {
		lists[ociaddr.ReferrersTag(r.Subject)] = true
		for _, tag := range ociaddr.CosignTags(r.Subject) {
			lists[tag] = true
		}
	}
	named, err := p.named(ctx, func(t ociaddr.Tag) bool { return lists[t] })
	if err != nil {
		return p.registryError("read tags of", err)
	}
	for _, r := range slices.Backward(referrers) {
		if named[r.Digest] {
			p.out.warn("%s@%s is left: another tag names it", p.state.dest.Repository, r.Digest)
			lists[ociaddr.ReferrersTag(r.Subject)] = false
			continue
		}
		if err := repo.DeleteWithTag(ctx, p.state.dest.Store, r.desc, r.Tag); err != nil {
			return p.deleteError("remove the referrer "+r.Digest.String()+" from", err)
		}
	}
	for _, r := range referrers {
		if tag := ociaddr.ReferrersTag(r.Subject); lists[tag] {
			lists[tag] = false
			if err := p.removeList(ctx, tag); err != nil {
				return p.deleteError("remove the tag "+string(tag)+" from", err)
			}
		}
	}
	return nil
}

// removeList deletes the list of referrers under a fallback tag, if the tag exists. Some
// registries and clients leave it behind although it names only deleted referrers.
func (p *pruner) removeList(ctx context.Context, tag ociaddr.Tag) error {
	desc, err := artifact.Resolve(ctx, p.state.dest.Store, string(tag))
	if repo.IsNotFound(err) || err == nil && desc.MediaType != ocispec.MediaTypeImageIndex {
		return nil
	}
	if err != nil {
		return err
	}
	return repo.DeleteWithTag(ctx, p.state.dest.Store, desc, tag)
}
