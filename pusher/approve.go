package pusher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

// An approval is a signature over the manifest that a version's tag names. A push that moves the tag to another manifest
// loses it. So a push does not change an approved version, unless it can approve the new manifest itself
// ([Options.Sign]). It then stores its signature before it moves the tag, so that a gateway never finds the version without
// an approval.

// ErrApproved means that a push would change a version that is approved, and would lose the approval.
var ErrApproved = repo.ErrApproved

// approvals are the approvals of what a tag names before a push.
type approvals struct {
	sigs    []approval.Signature // those that meet a requirement, see [repo.Approvals]
	byKey   bool                 // there is a valid signature by the key of Options.Sign
	foreign bool                 // there are approvals that the push cannot make again
	text    string               // names the signers
}

// approvalsOf returns the approvals of a manifest that a push must not lose. If nothing is configured about approvals, it reads them
// once, and only warns if they cannot be read: the push needs none.
func (w *target) approvalsOf(ctx context.Context, a subject.Address, of ocispec.Descriptor, warn func(format string, args ...any)) (approvals, error) {
	if w.o.Sign != nil || !w.o.Approvals(a).IsZero() {
		return w.readApprovals(ctx, a, of)
	}
	out, known := w.approvals[of.Digest]
	if known {
		return out, nil
	}
	out, err := w.readApprovals(ctx, a, of)
	if ctx.Err() != nil {
		return out, context.Cause(ctx)
	}
	if err != nil {
		out = approvals{}
		warn("whether %s has signatures could not be found out; if it has any, they are not of the manifest that replaces it: %v", of.Digest, err)
	}
	w.approvals[of.Digest] = out
	return out, nil
}

// readApprovals reads the approvals of a manifest.
func (w *target) readApprovals(ctx context.Context, a subject.Address, of ocispec.Descriptor) (out approvals, err error) {
	all, err := w.Signatures(ctx, of)
	if err != nil || len(all) == 0 {
		return out, err
	}
	if out.sigs, err = repo.Approvals(ctx, w.o.Approvals(a), of.Digest, all); err != nil {
		return out, err
	}
	out.text = repo.SignersText(of.Digest, out.sigs)
	for _, s := range out.sigs {
		own := false
		if w.o.Sign != nil {
			if own, err = repo.SignedBy(ctx, w.o.Sign, of.Digest, []approval.Signature{s}); err != nil {
				return out, err
			}
		}
		out.byKey, out.foreign = out.byKey || own, out.foreign || !own
	}
	return out, nil
}

// approvedError returns the error of a push that would lose approvals. why is the reason why the push cannot
// approve the version again; nil if it has no key.
func (w *target) approvedError(v *artifact.Version, a approvals, why error) error {
	by := ""
	if a.text != "" {
		by = " by " + a.text
	}
	err := fmt.Errorf("%s %s: %w: %s in %s has %s%s, and the push would change it", v.Owner, v.Version, ErrApproved, v.Index.Digest, w.Dest.Repository, hint.Count(len(a.sigs), "signature"), by)
	if why != nil {
		err = fmt.Errorf("%w; it cannot be approved again: %w", err, why)
	}
	again := "a sign block in ocibridge.hcl lets the push approve all platforms again; or "
	if w.o.Sign != nil {
		again = ""
	}
	return hint.Wrap(err, "%s%scarry out ocibridge approve --revoke %s@%s, run this again, and approve the version anew", registryUnchanged, again, v.Owner, v.Version)
}

// owned returns a version that names its provider and its version, also if its index does not.
func (w *push) owned(v *artifact.Version) *artifact.Version {
	out := *v
	out.Owner, out.Version = w.release.Provider(), w.release.Version()
	return &out
}

// checkApproved returns ErrApproved if the tag names an approved index, and the push cannot approve the next one. It is called
// before anything is sent.
func (w *push) checkApproved(ctx context.Context) error {
	if w.before == nil {
		return nil
	}
	a, err := w.approvalsOf(ctx, w.release.Provider(), w.before.Index, w.warn)
	if err == nil && a.foreign {
		err = w.approvedError(w.owned(w.before), a, w.cannotReplace())
	}
	return err
}

// cannotReplace returns the reason why signatures cannot be made again, or nil if there is no key at all.
func (w *target) cannotReplace() error {
	if w.o.Sign == nil {
		return nil
	}
	return errors.New("the key of the sign block has not made all of its signatures")
}

// approveNext approves an index that the tag will name, before the tag moves from the index of stored. Without a key, it
// returns ErrApproved if stored is approved. A copy approves only what replaces an approved index.
func (w *push) approveNext(ctx context.Context, stored *artifact.Version, index artifact.Blob, v artifact.Version) error {
	var before approvals
	if stored != nil {
		if stored.Index.Digest == index.Descriptor.Digest {
			return nil
		}
		var err error
		if before, err = w.approvalsOf(ctx, w.release.Provider(), stored.Index, w.warn); err != nil {
			return err
		}
		if before.foreign {
			return w.approvedError(w.owned(stored), before, w.cannotReplace())
		}
	}
	if w.o.Sign == nil || w.original != nil && len(before.sigs) == 0 {
		return nil
	}
	v.Index = index.Descriptor
	approved := &artifact.Version{}
	if before.byKey {
		approved = stored
	}
	why, err := w.unapprovable(ctx, index, &v, approved)
	switch {
	case err != nil:
		return err
	case why != nil && len(before.sigs) > 0:
		return w.approvedError(w.owned(stored), before, why)
	case why != nil:
		w.warn("it is not approved: %v", why)
		return nil
	}
	return w.sign(ctx, index.Descriptor)
}

// approveStored approves the version that is in place, if the push has verified all of it.
func (w *push) approveStored(ctx context.Context, stored *artifact.Version) error {
	if w.o.Sign == nil || w.original != nil {
		return nil
	}
	sigs, err := w.Signatures(ctx, stored.Index)
	if err != nil {
		return err
	}
	if has, err := repo.SignedBy(ctx, w.o.Sign, stored.Index.Digest, sigs); err != nil {
		return err
	} else if has {
		w.signatures, w.approvedBy = sigs, w.o.Sign.Public().Fingerprint()
		return nil
	}
	data, err := artifact.FetchManifest(ctx, w.Dest.Store, stored.Index)
	if err != nil {
		return w.Failed("read "+string(w.tag)+" in", err)
	}
	why, err := w.unapprovable(ctx, artifact.Blob{Descriptor: repo.Plain(stored.Index), Data: data}, stored, &artifact.Version{})
	if err != nil {
		return err
	}
	if why != nil {
		w.warn("it is not approved: %v", why)
		return nil
	}
	return w.sign(ctx, stored.Index)
}

// sign approves an index.
func (w *push) sign(ctx context.Context, index ocispec.Descriptor) (err error) {
	if w.signatures, _, err = w.Sign(ctx, index, w.o.Sign); err == nil {
		w.approvedBy = w.o.Sign.Public().Fingerprint()
	}
	return err
}

// unapprovable returns the reason why the push must not approve an index, or nil. It may approve an index that names the
// provider and the version, in which verify finds no error, and whose packages are all verified: by this push, by the publisher's
// signature over the release or the stored evidence, or by an approval of the index before, whose content is approved. Documentation
// is verified only by this push, or by an approval of the index before.
// The signer of the stored evidence is the publisher only if the policy pins the key, or if the release has the same signer: whoever
// can push can store evidence that a key of his own has signed.
func (w *push) unapprovable(ctx context.Context, index artifact.Blob, v, approved *artifact.Version) (why, err error) {
	a, version := w.release.Provider(), w.release.Version()
	parsed, err := artifact.ReadTagged(ctx, singleManifest{w.Dest.Store, index}, a, version, w.tag)
	switch {
	case repo.IsUnusable(err):
		return err, nil
	case err != nil:
		return nil, w.Failed("read "+string(w.tag)+" in", err)
	}
	if err := artifact.NamesItself(parsed, a, version); err != nil {
		return err, nil
	}
	if why, err := w.lint(ctx, index); why != nil || err != nil {
		return why, err
	}
	unknown := slices.DeleteFunc(slices.Clone(v.Packages), func(p artifact.Package) bool {
		sum, lists := listed(w.sums, p)
		vouched := lists && sum == p.Digest && w.sums.Verdict() == trust.Signed
		return vouched || repo.HasPackage(w.packages, p) || repo.HasPackage(approved.Packages, p)
	})
	if v.Docs != nil && !sameDigest(v.Docs, approved.Docs) && !w.isOwnDocs(*v.Docs) {
		return fmt.Errorf("an earlier push has stored the documentation; ocibridge approve %s@%s checks and approves the version", a, version), nil
	}
	if v.Evidence == nil && len(unknown) == 0 {
		return nil, nil
	}
	by := "no publisher's signature covers it"
	if v.Evidence != nil {
		pins := w.o.Policy(a).Pins()
		verified, err := w.verifyStored(ctx, v)
		switch {
		case errors.Is(err, artifact.ErrNothingToCheck) && !pins:
		case trust.Refused(err):
			return err, nil
		case err != nil:
			return nil, err
		default:
			refused := slices.IndexFunc(verified.Refused, func(r artifact.Refusal) bool { return pins || !r.OtherName() })
			if refused >= 0 {
				r := verified.Refused[refused]
				return fmt.Errorf("%s: %w", r.Package.Platform, r.Err), nil
			}
			switch {
			case verified.Verdict != trust.Signed:
			case verified.Pinned, w.sums.Verdict() == trust.Signed && verified.Signer.Fingerprint == w.sums.Signer().Fingerprint:
				unknown = slices.DeleteFunc(unknown, func(p artifact.Package) bool { return repo.HasPackage(verified.Packages, p) })
			default:
				by = "the evidence that lists it is signed by the key " + verified.Signer.Fingerprint + ", which is neither pinned nor the key of this release"
			}
		}
	}
	if len(unknown) > 0 {
		return fmt.Errorf("an earlier push has stored the package for %s, and %s; ocibridge approve %s@%s checks and approves the version",
			unknown[0].Platform, by, a, version), nil
	}
	return nil, nil
}

// lint returns the first error that verify finds in an index that has no tag yet, or nil. It does not examine bundles.
func (w *push) lint(ctx context.Context, index artifact.Blob) (why, err error) {
	store := w.Dest.Store.Remote()
	if store == nil {
		return nil, nil
	}
	linted, err := artifact.Lint(ctx, untagged{store, index}, w.release.Provider(), w.release.Version())
	if err != nil {
		return nil, w.Failed("read "+string(w.tag)+" in", err)
	}
	for _, f := range linted.Findings {
		if f.Severity == artifact.SeverityError {
			return fmt.Errorf("%s: %s", f.Where, f.What), nil
		}
	}
	return nil, nil
}

// untagged is a repository in which every tag names the same manifest.
type untagged struct {
	*remote.Repository
	manifest artifact.Blob
}

// FetchReference implements [artifact.ReferenceFetcher].
func (s untagged) FetchReference(ctx context.Context, tag string) (ocispec.Descriptor, io.ReadCloser, error) {
	return singleManifest{s.Repository, s.manifest}.FetchReference(ctx, tag)
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

// noteCopiedApprovals notes the signers of a copied version for Summarize, and warns if the index of the destination is another one than
// the source's approved index. It only warns if signatures cannot be read, because the copy is complete. attached reports whether
// the copy has found referrers.
func (w *push) noteCopiedApprovals(ctx context.Context, after *artifact.Version, attached bool) error {
	found := w.original.version.Index
	var err error
	if after.Index.Digest != found.Digest {
		err = w.noteUncopiedApprovals(ctx, found)
	} else if attached {
		var sigs []approval.Signature
		if sigs, err = w.Signatures(ctx, after.Index); err == nil {
			w.NoteSignatures(w.release.Provider(), w.Dest, w.release.Version(), after.Index.Digest, sigs)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		w.warn("it is copied, and its signatures could not be read: %v", err)
	}
	return nil
}

// noteUncopiedApprovals warns if the source's index has signatures, because the destination has another index.
func (w *push) noteUncopiedApprovals(ctx context.Context, found ocispec.Descriptor) error {
	sigs, err := artifact.Signatures(ctx, w.original.from.Store, repo.Plain(found), nil)
	if err != nil {
		return w.original.from.failed(w.release.Version(), err)
	}
	if len(sigs) > 0 && w.approvedBy == "" {
		w.warn("the approvals in %s are not copied, because the index here is another one: ocibridge approve %s@%s checks and approves the version here",
			w.original.from.Repository, w.release.Provider(), w.release.Version())
	}
	return nil
}
