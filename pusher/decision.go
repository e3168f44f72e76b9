package pusher

import (
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

// The evidence of a version must list every package of the version. Otherwise a signed
// version could contain an unsigned package.

// proof is evidence that was read for a decision. The zero value: there is no evidence.
type proof struct {
	descriptor *ocispec.Descriptor // nil: there is no evidence
	grade      grade
	sums       *trust.Checksums // the SHA256SUMS; nil: the evidence has none
	problem    error            // why the evidence or its SHA256SUMS cannot be read; nil: nothing is wrong
	own        bool             // this is the release's evidence
}

// situation is the input of a decision.
type situation struct {
	before         *artifact.Version // the version when the push began; nil: it did not exist
	stored         *artifact.Version // the version that the tag names now; nil: there is none
	storedEvidence proof

	sums            *trust.Checksums // the checksums on which the release was accepted
	protocols       []string
	packages        []artifact.Package // the release's packages. A package that was not read yet may lack its digest
	releaseEvidence proof              // absent if the registry refuses evidence

	docs        *ocispec.Descriptor // the documentation of the release; nil: there is none
	replaceDocs bool                // it should replace other documentation that is stored

	ofOthers

	force     bool
	refresh   bool // the release's evidence should replace the stored evidence
	overwrote bool // this push has already moved the tag
}

// ofOthers is what other pushes announced.
type ofOthers struct {
	announced         []artifact.Package // newest announcement first
	announcedEvidence proof              // signed, or absent
	announcedDocs     *ocispec.Descriptor
}

// decision is what a push stores and reports.
type decision struct {
	// version is the version to store. After a conflict, it is the version to restore because
	// this push has overwritten it, or nil if nothing has to be restored.
	version  *artifact.Version
	status   Status // how version differs from the stored version
	action   evidenceAction
	evidence proof     // the evidence of the version
	conflict *conflict // why the release is refused; nil: it is accepted
}

// decide merges a release with the stored version and the announcements of other pushes. It is pure.
func (s situation) decide() decision {
	next := &artifact.Version{Owner: s.sums.Provider(), Version: s.sums.Version(), Protocols: s.protocols, Packages: slices.Clone(s.packages)}
	replaced, refused := s.addStored(next)
	if refused != nil {
		return s.refuse(refused)
	}
	next.Docs = s.chooseDocs()
	d := decision{version: next}
	if refused := s.addEvidence(&d, replaced); refused != nil {
		return s.refuse(refused)
	}
	s.addAnnounced(&d)
	d.status = statusOf(s.stored, next, s.force)
	return d
}

// addStored adds the stored packages for platforms that the release lacks. A stored package that the release
// contradicts is a conflict. A forced push drops the stored package instead, and replaced is true.
func (s situation) addStored(next *artifact.Version) (replaced bool, refused *conflict) {
	if s.stored == nil {
		return false, nil
	}
	for _, p := range s.stored.Packages {
		mine := repo.Find(s.packages, p.Platform)
		want, known := listed(s.sums, p)
		if mine != nil {
			want, known = mine.Digest, mine.Digest != ""
		}
		contradicted := known && want != p.Digest
		switch {
		case contradicted && !s.force:
			return false, &conflict{kind: conflictPackage, platform: p.Platform, found: p.Digest, want: want}
		case contradicted:
			replaced = true
		case mine == nil:
			next.Packages = append(next.Packages, p)
		}
	}
	if next.Protocols == nil {
		next.Protocols = s.stored.Protocols
	}
	return replaced, nil
}

// addEvidence gives the version the evidence that [evidenceFacts.choose] chooses. A forced push then drops the
// packages that the release's evidence contradicts.
func (s situation) addEvidence(d *decision, replaced bool) *conflict {
	stored, release, announced := s.storedEvidence, s.releaseEvidence, s.announcedEvidence
	if s.before != nil && announced.contradicts(s.before.Packages...) != nil {
		announced = proof{} // the announcement is stale, because a forced push has replaced the packages since
	}
	next := d.version
	f := evidenceFacts{
		stored: stored.candidate(next.Packages), release: release.candidate(next.Packages), announced: announced.candidate(next.Packages),
		same: stored.is(release), unchanged: s.stored != nil && samePackages(s.stored.Packages, next.Packages),
		replaced: replaced, refresh: s.mayRefresh(), force: s.force,
	}
	proofs := map[evidenceAction]proof{keepEvidence: stored, addEvidence: release, replaceEvidence: release, completeEvidence: announced}
	d.action = f.choose()
	d.evidence = proofs[d.action]
	switch d.action {
	case refuseEvidence:
		return proofs[f.strongest()].contradicts(next.Packages...)
	case keepEvidence:
		if f.same { // the release's descriptor has the right annotations for the index entry
			d.evidence = release
		} else if stored.grade == gradeSigned { // earlier releases of ocibridge wrote no verdict into the index entry
			described := artifact.DescribeEvidence(*stored.descriptor, trust.Signed)
			d.evidence.descriptor = &described
		}
	case addEvidence, replaceEvidence: // in a forced push, the release's evidence can contradict packages
		next.Packages = slices.DeleteFunc(next.Packages, func(p artifact.Package) bool { return release.contradicts(p) != nil })
	}
	next.Evidence = d.evidence.descriptor
	return nil
}

// mayRefresh reports whether the release's evidence may replace stored evidence of the same grade. It may not
// replace evidence that another push stored after this push began. Otherwise, two pushes would replace each
// other's evidence forever.
func (s situation) mayRefresh() bool {
	return s.refresh && s.releaseEvidence.descriptor != nil && s.storedEvidence.descriptor != nil && !s.storedEvidence.is(s.releaseEvidence) &&
		s.before != nil && s.before.Evidence != nil && s.before.Evidence.Digest == s.storedEvidence.descriptor.Digest
}

// addAnnounced adds the announced packages for platforms that the version lacks. The release's checksums must list
// each of these packages with the same digest. Only unsigned checksums may lack a package.
func (s situation) addAnnounced(d *decision) {
	for _, p := range s.announced {
		sum, ok := listed(s.sums, p)
		vouched := ok && sum == p.Digest || !ok && s.sums.Verdict() == trust.ChecksumOnly
		if vouched {
			s.addFitting(d.version, p, d.evidence)
		}
	}
}

// addFitting adds a package of another push. It does nothing if the version has a package for the platform, if the
// file name belongs to another version or platform, or if the evidence contradicts the package.
func (s situation) addFitting(v *artifact.Version, p artifact.Package, evidence proof) {
	if repo.Find(v.Packages, p.Platform) == nil && !provider.Misnamed(p.Filename, s.sums.Version(), p.Platform) && evidence.contradicts(p) == nil {
		v.Packages = append(v.Packages, p)
	}
}

// refuse returns the decision to refuse the release. If this push has overwritten the tag of a push with signed
// evidence, the decision restores what that push announced.
func (s situation) refuse(c *conflict) decision {
	d := decision{action: refuseEvidence, conflict: c}
	if !s.overwrote || s.announcedEvidence.descriptor == nil {
		return d
	}
	back := &artifact.Version{Owner: s.sums.Provider(), Version: s.sums.Version(), Protocols: s.protocols, Evidence: s.announcedEvidence.descriptor}
	for _, p := range s.announced {
		s.addFitting(back, p, s.announcedEvidence)
	}
	if len(back.Packages) > 0 {
		d.version = back
	}
	return d
}

// is reports whether two proofs are the same evidence.
func (p proof) is(other proof) bool {
	return p.descriptor != nil && other.descriptor != nil && p.descriptor.Digest == other.descriptor.Digest
}

func (p proof) candidate(packages []artifact.Package) candidate {
	return candidate{p.grade, p.descriptor != nil && p.contradicts(packages...) == nil}
}

// contradicts returns the conflict with the first package that the evidence does not list, or nil. If the
// digest of a package is unknown, it checks only the name. Evidence without a SHA256SUMS contradicts no
// package. Unreadable evidence contradicts every package.
func (p proof) contradicts(packages ...artifact.Package) *conflict {
	for _, pkg := range packages {
		c := &conflict{platform: pkg.Platform, found: pkg.Digest, ofRelease: p.own}
		if p.problem != nil {
			c.kind, c.err = conflictUnreadable, p.problem
			return c
		}
		if p.sums == nil {
			return nil
		}
		var ok bool
		c.want, ok = listed(p.sums, pkg)
		switch {
		case !ok:
			c.kind = conflictUnlisted
			return c
		case pkg.Digest != "" && c.want != pkg.Digest:
			c.kind = conflictChecksum
			return c
		}
	}
	return nil
}

// listed returns the digest that checksums give for a package under the standard file name for its platform or
// under the package's own file name. A file name of another version or platform does not count, because such a
// package belongs to that version or platform.
func listed(sums *trust.Checksums, p artifact.Package) (digest.Digest, bool) {
	sum, ok := sums.SumFor(p.Platform, p.Filename)
	return digest.NewDigestFromBytes(digest.SHA256, sum[:]), ok
}

type conflictKind string

const (
	conflictPackage    conflictKind = "package"    // the tag names a package with another digest
	conflictUnlisted   conflictKind = "unlisted"   // the evidence does not list the package
	conflictChecksum   conflictKind = "checksum"   // the evidence lists another digest
	conflictUnreadable conflictKind = "unreadable" // the evidence cannot be read
)

// conflict is the reason for refusing a release.
type conflict struct {
	kind        conflictKind
	platform    provider.Platform // the platform of the package
	found, want digest.Digest     // the package's digest, and the digest that the release or the evidence gives
	ofRelease   bool              // the evidence comes from the release
	err         error             // why the evidence cannot be read
}

const registryUnchanged = "the registry is left as it was; "

// conflictError returns a conflict as an error with a hint. It wraps [ErrConflict].
func (w *push) conflictError(c *conflict) error {
	version := fmt.Sprintf("%s %s", w.release.Provider(), w.release.Version())
	switch c.kind {
	case conflictUnreadable:
		return hint.Wrap(fmt.Errorf("%s: %w: the evidence in %s:%s cannot be read: %w", version, ErrConflict, w.Dest.Repository, w.tag, c.err),
			registryUnchanged+"--force replaces the evidence")
	case conflictPackage:
		return hint.Wrap(fmt.Errorf("%s for %s: %w: %s:%s names the package %s, the release has %s", version, c.platform, ErrConflict, w.Dest.Repository, w.tag, c.found, c.want),
			registryUnchanged+"find out which of them is right. --force replaces the package, and lock files that know the old one will refuse the new one")
	}
	document, help := "the SHA256SUMS of the release",
		"find out where the stored package came from. --force removes it, and lock files that know it will refuse the version"
	if !c.ofRelease {
		document = fmt.Sprintf("the SHA256SUMS on which %s:%s was accepted", w.Dest.Repository, w.tag)
		help = "push the package from its origin, which has a SHA256SUMS that lists it. --force stores this package and its evidence: the version then counts as unsigned if this evidence is unsigned"
	}
	err := fmt.Errorf("%s for %s: %w: %s lists %s, and the package is %s", version, c.platform, ErrConflict, document, c.want, c.found)
	if c.kind == conflictUnlisted {
		err = fmt.Errorf("%s for %s: %w: %s does not list its package: %w", version, c.platform, ErrConflict, document, trust.ErrNotListed)
	}
	return hint.Wrap(err, registryUnchanged+"%s", help)
}
