package reconcile

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// Approvals are removed together with the manifest that they approve, by prunes and by removals, because they say nothing about any other
// manifest. Other artifacts that are attached to the manifest stay, unless a user removes them.

// attachments are what is attached to a manifest.
type attachments struct {
	signatures []Referrer // only cosign's; attestations, such as provenance, are others
	others     bool       // something else is attached, too
}

// attachmentsOf lists what is attached to a manifest. It finds signatures by the list of referrers and by cosign's tag.
func (p *pruner) attachmentsOf(ctx context.Context, of ocispec.Descriptor) (out attachments, err error) {
	store := p.state.dest.Store
	var listed []ocispec.Descriptor
	err = repo.ListReferrers(ctx, store, of, func(page []ocispec.Descriptor) error {
		listed = append(listed, page...)
		if len(listed) > repo.MaxReferrers {
			return fmt.Errorf("%w: more than %d referrers", repo.ErrTooMuchAttached, repo.MaxReferrers)
		}
		return nil
	})
	code := repo.HTTPStatus(err)
	if errors.Is(err, repo.ErrListRefused) && code != http.StatusUnauthorized && code != http.StatusForbidden {
		err = nil // the registry has no list of referrers; status 401 or 403 would not prove that
	}
	if err != nil {
		return out, err
	}
	for _, desc := range listed {
		is, err := repo.IsApproval(ctx, store, of.Digest, desc, false)
		switch {
		case err != nil:
			return out, err
		case is:
			out.signatures = append(out.signatures, Referrer{Digest: desc.Digest, Subject: of.Digest, Approval: true, desc: repo.Plain(desc)})
		default:
			out.others = true
		}
	}
	tag := repo.SignatureTag(of.Digest)
	if !slices.Contains(p.state.tags, tag) {
		return out, nil
	}
	desc, err := artifact.Resolve(ctx, store, string(tag))
	if repo.IsUnusable(err) {
		return out, nil // the tag was deleted since the tags were listed
	}
	is := false
	if err == nil {
		is, err = repo.IsApproval(ctx, store, of.Digest, desc, true)
	}
	if is {
		out.signatures = append(out.signatures, Referrer{Digest: desc.Digest, Subject: of.Digest, Tag: tag, Approval: true, desc: repo.Plain(desc)})
	}
	return out, err
}

// removeSignatures removes signatures of a manifest that is deleted.
func (p *pruner) removeSignatures(ctx context.Context, of ocispec.Descriptor, signatures []Referrer) error {
	for _, s := range signatures {
		err := error(nil)
		if s.Tag != "" {
			err = repo.DeleteWithTag(ctx, p.state.dest.Store, s.desc, s.Tag)
		} else {
			err = p.session.Writer(p.state.dest).Detach(repo.MayPush(ctx, p.state.dest.Repository), repo.Plain(of), s.desc, p.out.warn)
		}
		if err != nil {
			return p.deleteError("remove the approval "+s.Digest.String()+" from", err)
		}
	}
	return nil
}

// deleteApproved deletes a manifest together with its signatures. If the registry ties the manifest to its tags, so that it can
// still refuse to delete it, the signatures come last: the version then keeps them. It only warns if signatures are left.
func (p *pruner) deleteApproved(ctx context.Context, manifest ocispec.Descriptor, tied bool) error {
	attached, err := p.attachmentsOf(ctx, manifest)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p.out.warn("%s: approvals of %s may be left: %v", p.state.dest.Repository, manifest.Digest, err)
	}
	if !tied {
		p.warnSignatures(ctx, manifest, attached.signatures)
	}
	err = repo.DeleteAny(ctx, p.state.dest.Store, manifest)
	if err == nil && tied {
		p.warnSignatures(ctx, manifest, attached.signatures)
	}
	return err
}

// warnSignatures removes signatures of a manifest. It only warns if signatures are left.
func (p *pruner) warnSignatures(ctx context.Context, manifest ocispec.Descriptor, signatures []Referrer) {
	if err := p.removeSignatures(ctx, manifest, signatures); err != nil && ctx.Err() == nil {
		p.out.warn("approvals of %s are left: %v", manifest.Digest, err)
	}
}

// checkApproved refuses to remove platforms from an approved version, because the approval is not for the remaining platforms alone.
func (r *Remover) checkApproved(ctx context.Context, state *repositoryState, found *artifact.Version, q RemoveRequest) error {
	sigs, err := r.syncer.session.Writer(state.dest).Signatures(ctx, found.Index)
	if err == nil {
		sigs, err = repo.Approvals(ctx, r.syncer.o.Push.Approvals(q.Subject), found.Index.Digest, sigs)
	}
	if err != nil || len(sigs) == 0 {
		return err
	}
	return hint.Wrap(fmt.Errorf("%s %s: %w: %s in %s has %s", q.Subject, q.Version, repo.ErrApproved, found.Index.Digest, state.dest.Repository, hint.Count(len(sigs), "signature")),
		"nothing was changed: an approval is for all platforms of the version. Carry out ocibridge approve --revoke %s@%s, remove the platforms, and approve the version anew", q.Subject, q.Version)
}
