package pusher

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/trust"
)

// refreshes reports whether the release's evidence should replace the tagged evidence. What another push has put there since this one began stays: two that
// refresh it would never come to an end.
func (w *push) refreshes(tagged, own *ocispec.Descriptor) bool {
	return w.refresh && own != nil && tagged != nil && own.Digest != tagged.Digest &&
		w.before != nil && w.before.Evidence != nil && w.before.Evidence.Digest == tagged.Digest
}

// offersEvidence reports whether a version whose packages are in place may get the
// release's evidence: because it has none, or because the caller asks for it.
func (w *push) offersEvidence() bool {
	switch {
	case w.withoutEvidence():
		return false
	case w.before.Evidence == nil || w.repair:
		return true
	case !w.refresh:
		return false
	}
	own, _, err := w.evidence()
	return err != nil || w.before.Evidence.Digest != own.Descriptor.Digest
}

// withoutEvidence reports whether the push brings no evidence, because it copies a version
// that has none.
func (w *push) withoutEvidence() bool {
	return w.original != nil && w.original.found.Evidence == nil
}

// isOwn reports whether evidence is the release's.
func (w *push) isOwn(desc ocispec.Descriptor) bool {
	own, _, err := w.evidence()
	return err == nil && own.Descriptor.Digest == desc.Digest
}

// grade reads evidence, unless it is the release's own, and grades it.
func (w *push) grade(ctx context.Context, desc ocispec.Descriptor) (grade, error) {
	if w.isOwn(desc) {
		document, _, _ := w.sums.Document()
		return gradeOf(w.sums.Verdict(), document), nil
	}
	e, err := w.readEvidence(ctx, desc)
	switch {
	case isUnusable(err):
		return gradeUnreadable, nil
	case err != nil:
		return gradeUnreadable, w.registryError("read evidence in", err)
	}
	return gradeOf(e.Record.Verdict, e.SHA256SUMS), nil
}

// reportEvidence says in a result what the stored evidence proves. Evidence of an
// earlier push is checked by the policy for the provider.
func (w *push) reportEvidence(ctx context.Context, r *Result, after *artifact.Version) {
	warn := func(format string, args ...any) { r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...)) }
	r.Verdict = artifact.NoEvidence
	if after.Evidence == nil {
		return
	}
	verdict, signer := w.sums.Verdict(), w.sums.Signer()
	var refused []artifact.Refusal
	if r.EvidenceKept = !w.isOwn(*after.Evidence); r.EvidenceKept {
		if w.refresh {
			warn("the evidence in place is kept: that of this release is weaker, or another push has just replaced it")
		}
		stored, err := w.verifyStored(ctx, after)
		switch {
		case errors.Is(err, artifact.ErrNothingToCheck):
			verdict, signer = trust.ChecksumOnly, trust.Signer{}
		case err != nil:
			warn("the evidence in place is refused: %v; ocibridge push --refresh-evidence replaces it, unless by weaker", err)
			return
		default:
			verdict, signer, refused = stored.Verdict, stored.Signer, stored.Refused
		}
	} else if document, _, _ := w.sums.Document(); document != nil {
		_, refused = artifact.Vouched(w.sums, after.Packages)
	}
	r.Verdict, r.Fingerprint = artifact.Standing(verdict, refused), signer.Fingerprint
	r.Pinned, r.Expired = signer.Pinned, signer.Expired
	for _, refusal := range refused {
		if !refusal.OtherName() {
			warn("the evidence does not vouch for the package for %s: %v; ocibridge push --force removes or replaces it", refusal.Package.Platform, refusal.Err)
		}
	}
	if r.Verdict == artifact.SignedOtherName {
		i := slices.IndexFunc(refused, artifact.Refusal.OtherName)
		warn("%v; %s", refused[i].Err, artifact.OtherNameHint)
	}
}

// verifyStored checks evidence of an earlier push. Where no keys are pinned, it need
// not be signed.
func (w *push) verifyStored(ctx context.Context, after *artifact.Version) (*artifact.Verified, error) {
	e, err := w.readEvidence(ctx, *after.Evidence)
	if err != nil {
		return nil, err
	}
	policy := w.o.Policy(w.release.Provider())
	policy.AllowUnsigned = true
	return e.Verify(ctx, w.release.Provider(), w.release.Version(), after.Packages, policy)
}

// evidence encodes what the release was accepted on.
func (w *push) evidence() (artifact.Blob, []artifact.Blob, error) {
	return artifact.EncodeEvidence(artifact.NewEvidence(w.sums, w.release.Origin, w.release.Protocols, w.release.About))
}

// sendEvidence stores the evidence. A registry that takes packages and refuses
// this has a list of allowed types: the push goes on without, and says so.
func (w *push) sendEvidence(ctx context.Context) (*ocispec.Descriptor, error) {
	manifest, blobs, err := w.evidence()
	if err != nil {
		return nil, err
	}
	for _, b := range append(blobs, artifact.Config(), manifest) {
		err := w.sendBlob(ctx, "push evidence to", b)
		var answer *errcode.ErrorResponse
		if errors.As(err, &answer) && refuses(answer.StatusCode) {
			w.warnings = append(w.warnings,
				fmt.Sprintf("%s refuses the evidence (%v): stored without it, so the publisher's signature cannot be checked again later", w.dest.Repository.Registry, answer))
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return &manifest.Descriptor, nil
}

// refuses reports whether a status means that the content is not wanted, rather
// than that something is in the way of it.
func refuses(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return true
	}
	return false
}
