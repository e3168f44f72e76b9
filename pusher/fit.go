package pusher

import (
	"context"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// What a version's evidence has for a checksum document must list every one of its
// packages: otherwise one that nobody vouched for would be shown, and served, as
// signed like those beside it.

// chooseEvidence gives a version the evidence that [evidenceFacts.decide] chooses
// among the stored one, the one that another push left, and the release's own. By
// force the version loses the packages that the release's document does not list.
func (w *push) chooseEvidence(ctx context.Context, now, next *artifact.Version, replaced bool, left, own *ocispec.Descriptor) error {
	var tagged *ocispec.Descriptor
	if now != nil {
		tagged = now.Evidence
	}
	// 1. What the decision depends on.
	left, err := w.notStale(ctx, left)
	if err != nil {
		return err
	}
	f := evidenceFacts{replaced: replaced, force: w.o.Force, refresh: w.refreshes(tagged, own)}
	f.same = tagged != nil && own != nil && tagged.Digest == own.Digest
	f.settled = now != nil && samePackages(now.Packages, next.Packages)
	misfits := map[evidenceAction]error{}
	for _, c := range []struct {
		to     *candidate
		desc   *ocispec.Descriptor
		action evidenceAction
	}{{&f.stored, tagged, keepEvidence}, {&f.release, own, replaceEvidence}, {&f.announced, left, completeEvidence}} {
		if *c.to, misfits[c.action], err = w.candidate(ctx, c.desc, next.Packages); err != nil {
			return err
		}
	}
	misfits[addEvidence] = misfits[replaceEvidence]
	// 2. The decision.
	action := f.decide()
	// 3. What it means for the version.
	switch action {
	case keepEvidence:
		next.Evidence = tagged
		if f.same { // its index entry may be wrong
			next.Evidence = own
		} else if f.stored.grade == gradeSigned { // it may have been pushed before indexes had the verdict
			described := artifact.DescribeEvidence(*tagged, trust.Signed)
			next.Evidence = &described
		}
	case completeEvidence:
		next.Evidence = left
	case refuseEvidence:
		return misfits[f.strongest()]
	default:
		if next.Evidence = own; misfits[action] != nil {
			w.dropUnlisted(next)
		}
	}
	return nil
}

// notStale returns the evidence that another push left, nil if it contradicts what
// was tagged before: a push by force has replaced that since.
func (w *push) notStale(ctx context.Context, left *ocispec.Descriptor) (*ocispec.Descriptor, error) {
	if left == nil || w.before == nil {
		return left, nil
	}
	misfit, err := w.misfit(ctx, left, w.before.Packages...)
	if err != nil || misfit != nil {
		return nil, err
	}
	return left, nil
}

// candidate grades evidence. The misfit says which package it contradicts.
func (w *push) candidate(ctx context.Context, desc *ocispec.Descriptor, packages []artifact.Package) (c candidate, misfit, err error) {
	if desc == nil {
		return candidate{}, nil, nil
	}
	if c.grade, err = w.grade(ctx, *desc); err != nil {
		return c, nil, err
	}
	misfit, err = w.misfit(ctx, desc, packages...)
	c.covers = misfit == nil
	return c, misfit, err
}

// dropUnlisted removes the packages that the release's document does not list.
func (w *push) dropUnlisted(v *artifact.Version) {
	document, _, _ := w.sums.Document()
	v.Packages = slices.DeleteFunc(v.Packages, func(p artifact.Package) bool {
		d, listed := w.listed(p)
		return document != nil && (!listed || p.Digest != "" && d != p.Digest)
	})
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
		if misfit == nil && find(back.Packages, p.Platform) == nil && !provider.Misnamed(p.Filename, w.release.Version(), p.Platform) {
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
		others, err := w.announcements(ctx)
		if err != nil {
			return err
		}
		signed = others.evidence
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
	if w.isOwn(*evidence) {
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
