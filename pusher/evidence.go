package pusher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

// offersEvidence reports whether the push offers the release's evidence to a version whose packages are in
// place. It offers the evidence if the version has no evidence, or if the caller wants the evidence
// refreshed or repaired.
func (w *push) offersEvidence() bool {
	switch {
	case w.withoutEvidence():
		return false
	case w.before.Evidence == nil || w.repair:
		return true
	}
	return w.refresh && !w.isOwn(*w.before.Evidence)
}

// withoutEvidence reports whether the push copies a version that has no evidence.
func (a *asked) withoutEvidence() bool {
	return a.original != nil && a.original.version.Evidence == nil
}

// isOwn reports whether a descriptor names the release's evidence.
func (a *asked) isOwn(desc ocispec.Descriptor) bool {
	return a.evidence.Descriptor.Digest == desc.Digest
}

// readProof reads evidence for a decision.
func (w *push) readProof(ctx context.Context, desc *ocispec.Descriptor) (proof, error) {
	if desc == nil {
		return proof{}, nil
	}
	if w.isOwn(*desc) {
		p := proof{descriptor: desc, own: true}
		document, _, _ := w.sums.Document()
		if document != nil {
			p.sums = w.sums
		}
		p.grade = gradeOf(w.sums.Verdict(), document)
		return p, nil
	}
	e, err := w.readEvidence(ctx, *desc)
	if err != nil {
		err = w.Failed("read evidence in", err)
		if repo.IsUnusable(err) {
			return proof{descriptor: desc, grade: gradeUnreadable, problem: err}, nil
		}
		return proof{}, err
	}
	p := proof{descriptor: desc, grade: gradeOf(e.Record.Verdict, e.SHA256SUMS)}
	if e.SHA256SUMS != nil {
		// The decision needs only the list of packages. The grade says whether the list is
		// signed.
		claims := trust.Claims{Provider: w.release.Provider(), Version: w.release.Version(), SHA256SUMS: e.SHA256SUMS}
		if p.sums, err = (trust.Policy{AllowUnsigned: true}).Accept(ctx, claims); err != nil {
			p.problem = fmt.Errorf("%w: %w", artifact.ErrNotProvider, err)
		}
	}
	return p, nil
}

// readEvidence reads evidence, and caches it for this push.
func (w *push) readEvidence(ctx context.Context, desc ocispec.Descriptor) (*artifact.Evidence, error) {
	if e := w.evidenceCache[desc.Digest]; e != nil {
		return e, nil
	}
	e, err := artifact.ReadEvidence(ctx, w.Dest.Store, desc)
	if err == nil {
		w.evidenceCache[desc.Digest] = e
	}
	return e, err
}

// reportEvidence adds to a result what the stored evidence proves. It verifies the evidence of an earlier push.
func (w *push) reportEvidence(ctx context.Context, r *Result, after *artifact.Version) {
	r.Verdict = artifact.NoEvidence
	if after.Evidence == nil {
		return
	}
	verdict, signer := w.sums.Verdict(), w.sums.Signer()
	var refused []artifact.Refusal
	if r.EvidenceKept = !w.isOwn(*after.Evidence); r.EvidenceKept {
		if w.refresh {
			r.warn("the evidence in place is kept: the evidence of this release is weaker, or another push has just replaced it")
		}
		stored, err := w.verifyStored(ctx, after)
		switch {
		case errors.Is(err, artifact.ErrNothingToCheck):
			verdict, signer = trust.ChecksumOnly, trust.Signer{}
		case err != nil:
			r.warn("the evidence in place is refused: %v; ocibridge push --refresh-evidence replaces it, unless the new evidence is weaker", err)
			return
		default:
			verdict, signer, refused = stored.Verdict, stored.Signer, stored.Refused
		}
		if !w.refresh && verdict == trust.ChecksumOnly && w.sums.Verdict() == trust.Signed {
			r.warn("this release is signed, but the stored evidence is of an earlier push without a signature; ocibridge push --refresh-evidence replaces it")
		}
	} else if document, _, _ := w.sums.Document(); document != nil {
		_, refused = artifact.Vouched(w.sums, after.Packages)
	}
	r.Verdict, r.Fingerprint = artifact.Standing(verdict, refused), signer.Fingerprint
	r.Pinned, r.Expired = signer.Pinned, signer.Expired()
	r.warnRefused(refused)
}

// warnRefused warns of packages that the evidence does not vouch for.
func (r *Result) warnRefused(refused []artifact.Refusal) {
	for _, refusal := range refused {
		if !refusal.OtherName() {
			r.warn("the evidence does not vouch for the package for %s: %v; ocibridge push --force removes or replaces it", refusal.Package.Platform, refusal.Err)
		}
	}
	if r.Verdict == artifact.SignedOtherName {
		i := slices.IndexFunc(refused, artifact.Refusal.OtherName)
		r.warn("%v; %s", refused[i].Err, artifact.OtherNameHint)
	}
}

// verifyStored verifies evidence of an earlier push. The evidence may be unsigned, unless the policy pins keys.
func (w *push) verifyStored(ctx context.Context, after *artifact.Version) (*artifact.Verified, error) {
	e, err := w.readEvidence(ctx, *after.Evidence)
	if err != nil {
		return nil, err
	}
	policy := w.o.Policy(w.release.Provider())
	policy.AllowUnsigned = true
	return e.Verify(ctx, w.release.Provider(), w.release.Version(), after.Packages, policy)
}

// sendEvidence stores the release's evidence. It warns, and returns nil, if the registry refuses the evidence, for
// example because its allow list lacks the media type.
func (w *push) sendEvidence(ctx context.Context) (*ocispec.Descriptor, error) {
	for _, b := range append(slices.Clone(w.evidenceBlobs), artifact.Config(), w.evidence) {
		err := w.SendBlob(ctx, "push evidence to", b)
		var answer *errcode.ErrorResponse
		if errors.As(err, &answer) && repo.RefusesContent(err) {
			w.warn("%s refuses the evidence (%v): stored without it, so the publisher's signature cannot be checked again later", w.Dest.Repository.Registry, answer)
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return &w.evidence.Descriptor, nil
}

// CheckDowngrade returns an error that wraps [trust.ErrUnsigned] in one case: a signed version of the provider is
// stored, and the checksums were accepted only because OpenTofu accepts them, too. Any other error means that the
// registry has failed.
func (p *Pusher) CheckDowngrade(ctx context.Context, sums *trust.Checksums) error {
	if !sums.AsClients() {
		return nil
	}
	dest, err := p.o.Destination(ctx, sums.Provider())
	if err != nil {
		return err
	}
	return p.checkDowngrade(ctx, dest, sums)
}

func (p *Pusher) checkDowngrade(ctx context.Context, dest repo.Destination, sums *trust.Checksums) error {
	if !sums.AsClients() || p.knownUnsigned(dest) {
		return nil
	}
	at := p.o.Now()
	signed, found, err := artifact.FindSignedIn(ctx, dest.Store, sums.Provider())
	switch {
	case err != nil:
		err = fmt.Errorf("%s %s: cannot tell whether a signed version is stored: %w", sums.Provider(), sums.Version(), &repo.RegistryError{Op: "read versions in", Repository: dest.Repository, Err: err})
		return hint.Wrap(err, "its registry offers no key, so it is accepted only if no stored version is signed: try again when the repository can be read")
	case found:
		return sums.Downgrade(signed)
	}
	p.unsigned.Store(dest.Repository, at)
	return nil
}

// unsignedLasts is how long CheckDowngrade relies on its last search. It is long enough for a sync of many versions.
const unsignedLasts = time.Minute

// knownUnsigned reports whether a recent search found no signed version in the repository.
func (p *Pusher) knownUnsigned(dest repo.Destination) bool {
	at, ok := p.unsigned.Load(dest.Repository)
	return ok && p.o.Now().Sub(at.(time.Time)) < unsignedLasts
}
