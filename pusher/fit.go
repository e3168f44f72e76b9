package pusher

import (
	"context"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// What a version's evidence has for a checksum document must list every one of its
// packages: otherwise one that nobody vouched for would be shown, and served, as
// signed like those beside it.

// settle gives a version the strongest evidence that fits its packages, those that
// others left not among them. Where only weaker evidence would fit, the version is
// refused; by force it gets that of the release, and loses the packages that this
// does not list.
func (w *push) settle(ctx context.Context, now, next *artifact.Version, replaced bool, left, own *ocispec.Descriptor) error {
	var tagged *ocispec.Descriptor
	if now != nil {
		tagged = now.Evidence
	}
	// What was left is stale where it contradicts what was tagged before: that was
	// done by force.
	if left != nil && w.before != nil {
		misfit, err := w.misfit(ctx, left, w.before.Packages...)
		if err != nil {
			return err
		}
		if misfit != nil {
			left = nil
		}
	}
	best, err := w.strongest(ctx, replaced, tagged, left, own, next.Packages)
	if err != nil {
		return err
	}
	next.Evidence = best
	if now != nil && same(now, next) {
		return nil
	}
	misfit, err := w.misfit(ctx, best, next.Packages...)
	if err != nil || misfit == nil {
		return err
	}
	// The publisher may have signed anew, with more platforms.
	if w.sums.Verdict() == trust.Signed {
		for _, other := range []*ocispec.Descriptor{own, left} {
			if other == nil {
				continue
			}
			if m, err := w.misfit(ctx, other, next.Packages...); err != nil || m == nil {
				next.Evidence = other
				return err
			}
		}
	}
	if !w.o.Force {
		return misfit
	}
	next.Evidence = own
	document, _, _ := w.sums.Document()
	next.Packages = slices.DeleteFunc(next.Packages, func(p artifact.Package) bool {
		d, listed := w.listed(p)
		return document != nil && (!listed || p.Digest != "" && d != p.Digest)
	})
	return nil
}

// giveWay puts back what a signed push had tagged when this one, which is refused for
// it, overwrote its tag: what others left, as far as their evidence vouches for it.
func (w *push) giveWay(ctx context.Context, others left) error {
	if others.evidence == nil || w.o.Force {
		return nil
	}
	back := &artifact.Version{Provider: w.release.Provider(), Version: w.release.Version(), Protocols: w.release.Protocols, Evidence: others.evidence}
	for _, p := range others.packages {
		misfit, err := w.misfit(ctx, others.evidence, p)
		if err != nil {
			return err
		}
		if misfit == nil && !provider.Misnamed(p.Filename, w.release.Version(), p.Platform) {
			back.Packages = append(back.Packages, p)
		}
	}
	if len(back.Packages) == 0 {
		return nil
	}
	return w.sendIndex(ctx, back)
}

// foresee refuses, before anything is sent, what publish would refuse as far as that
// is known. It keeps the document that the packages must fit of which nothing is
// known before they are read.
func (w *push) foresee(ctx context.Context, missing []origin.Package) error {
	if len(missing) == 0 {
		return nil
	}
	var signed *ocispec.Descriptor
	if w.sums.Verdict() != trust.Signed {
		// A version whose name is too long for this tag is never pushed in parts.
		if tag, err := ociaddr.PartialEvidenceTag(w.release.Version()); err == nil {
			if signed, err = w.leftEvidence(ctx, tag); err != nil {
				return err
			}
		}
	}
	if w.before == nil && signed == nil {
		return nil
	}
	own := w.ownPackages(nil)
	for _, pkg := range missing {
		own = slices.DeleteFunc(own, func(p artifact.Package) bool { return p.Platform == pkg.Platform })
		p := artifact.Package{Platform: pkg.Platform, Filename: pkg.Filename}
		if sum, known := w.sums.Sum(pkg.Filename); known {
			p.Digest = digest.NewDigestFromBytes(digest.SHA256, sum[:])
		}
		own = append(own, p)
	}
	evidence, _, err := w.evidence()
	if err != nil {
		return err
	}
	next, err := w.union(ctx, w.before, left{evidence: signed}, own, &evidence.Descriptor)
	if err != nil {
		return err
	}
	if w.o.Force {
		return nil // whatever the packages turn out to be
	}
	w.fits, err = w.document(ctx, next.Evidence)
	return err
}

// misfit returns the first package that evidence has a checksum document for which
// does not vouch for it, as an error; nil for none. Of a package without a digest,
// only the name is known.
func (w *push) misfit(ctx context.Context, evidence *ocispec.Descriptor, packages ...artifact.Package) (misfit, err error) {
	document, err := w.document(ctx, evidence)
	if isUnusable(err) && len(packages) > 0 {
		return hint.Wrap(fmt.Errorf("%s %s: %w: the evidence in %s:%s does not read: %w", w.release.Provider(), w.release.Version(), ErrConflict, w.dest.Repository, w.tag, err),
			"the registry is left as it was; --force replaces the evidence"), nil
	}
	if err != nil || document == nil {
		return nil, err
	}
	for _, p := range packages {
		if misfit := w.fit(document, p); misfit != nil {
			return misfit, nil
		}
	}
	return nil, nil
}

// fit fails unless a document lists a package.
func (w *push) fit(document *trust.Checksums, p artifact.Package) error {
	what := "the SHA256SUMS of the release"
	if document != w.sums {
		what = fmt.Sprintf("the SHA256SUMS that %s:%s was accepted on", w.dest.Repository, w.tag)
	}
	d, listed := listedIn(document, p)
	var err error
	switch {
	case !listed:
		err = fmt.Errorf("%w: %s does not list a package for it: %w", ErrConflict, what, trust.ErrNotListed)
	case p.Digest != "" && d != p.Digest:
		err = fmt.Errorf("%w: %s lists %s for it, and the package is %s", ErrConflict, what, d, p.Digest)
	default:
		return nil
	}
	help := "push the package from its origin, where it comes with the SHA256SUMS that lists it. --force takes this package without: then the version counts as what vouches for the package, signed no more"
	if document == w.sums {
		help = "find out where the package came from that is there. --force removes it, and lock files that know it will refuse the version"
	}
	return hint.Wrap(fmt.Errorf("%s %s for %s: %w", w.release.Provider(), w.release.Version(), p.Platform, err), "the registry is left as it was; %s", help)
}

// document returns the checksums that evidence holds; nil if it holds none.
func (w *push) document(ctx context.Context, evidence *ocispec.Descriptor) (*trust.Checksums, error) {
	if evidence == nil {
		return nil, nil
	}
	if own, _, err := w.evidence(); err == nil && own.Descriptor.Digest == evidence.Digest {
		if sums, _, _ := w.sums.Document(); sums == nil {
			return nil, nil
		}
		return w.sums, nil
	}
	e, err := w.readEvidence(ctx, *evidence)
	if err != nil {
		return nil, w.registryError("read evidence in", err)
	}
	if e.SHA256SUMS == nil {
		return nil, nil
	}
	// Only what it lists counts here: who signed it is said beside it.
	sums, err := trust.Policy{AllowUnsigned: true}.Accept(ctx, trust.Claims{Provider: w.release.Provider(), Version: w.release.Version(), SHA256SUMS: e.SHA256SUMS})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", artifact.ErrNotProvider, err)
	}
	return sums, nil
}

// readEvidence reads evidence, each but once.
func (w *push) readEvidence(ctx context.Context, desc ocispec.Descriptor) (*artifact.Evidence, error) {
	if e := w.read[desc.Digest]; e != nil {
		return e, nil
	}
	e, err := artifact.ReadEvidence(ctx, w.dest.Store, desc)
	if err == nil {
		w.read[desc.Digest] = e
	}
	return e, err
}
