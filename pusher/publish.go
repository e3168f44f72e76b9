package pusher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/refusals"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// maxRounds bounds how often a push writes its tag because others write it, too.
const maxRounds = 20

// publish makes the tag name every package of the release, beside those that
// were there and those that other pushes left, and returns what it names in the
// end.
func (w *push) publish(ctx context.Context, sent []artifact.Package) (*artifact.Version, Status, error) {
	after, status, err := w.publishSent(ctx, sent)
	if err != nil && w.own != nil && !w.wrote && ctx.Err() == nil {
		w.withdraw(ctx) // nobody has relied on this push
	}
	return after, status, err
}

func (w *push) publishSent(ctx context.Context, sent []artifact.Package) (*artifact.Version, Status, error) {
	own := w.ownPackages(sent)
	inPlace := w.before != nil && len(sent) == 0
	if inPlace && !w.offersEvidence() {
		if now, err := w.inPlace(ctx, own); err != nil || now != nil {
			return now, Unchanged, err
		}
	}
	if after, err := w.publishOriginal(ctx, own); err != nil || after != nil {
		return after, Pushed, err
	}
	var evidence *ocispec.Descriptor
	if !w.withoutEvidence() {
		var err error
		if evidence, err = w.sendEvidence(ctx); err != nil {
			return nil, "", err
		}
	}
	if inPlace && evidence == nil { // the registry refuses it, or there is none: nothing is tagged for that
		if now, err := w.inPlace(ctx, own); err != nil || now != nil {
			return now, Unchanged, err
		}
	}
	return w.rounds(ctx, own, evidence, len(sent) == 0)
}

// rounds writes the union of what the push brings, what the index has and what others
// announced, until a round finds it in place.
func (w *push) rounds(ctx context.Context, own []artifact.Package, evidence *ocispec.Descriptor, nothingSent bool) (*artifact.Version, Status, error) {
	if announces, err := w.announces(ctx); err != nil {
		return nil, "", err
	} else if announces && (w.own == nil || w.own.content.Evidence == nil && evidence != nil && w.sums.Verdict() == trust.Signed) { // a copy announces none
		if err := w.announce(ctx, own, evidence); err != nil {
			return nil, "", err
		}
	}
	for range maxRounds {
		r, again, err := w.readRound(ctx, own, evidence)
		if err != nil {
			return nil, "", err
		}
		if again {
			continue
		}
		next, err := w.union(ctx, r.now, r.others, own, evidence)
		if errors.Is(err, ErrConflict) && w.wrote {
			w.noteReplaced(ctx, r.now)
			err = errors.Join(err, w.giveWay(ctx, r.others))
		}
		if err != nil {
			return nil, "", err
		}
		if r.now != nil && same(r.now, next) && !w.corrects(r.now, next) {
			w.finish(ctx, r.others, r.now, r.readAt)
			return r.now, w.status(r.now), nil
		}
		w.noteReplaced(ctx, r.now)
		if !w.isFresh(r.readAt) {
			continue
		}
		err = w.sendIndex(ctx, next)
		if errors.Is(err, ErrImmutable) && nothingSent && r.now != nil && !w.refresh {
			w.warnings = append(w.warnings, w.immovable(r.now, next))
			if w.own != nil {
				w.withdraw(ctx) // nobody can move the tag
			}
			return r.now, Unchanged, nil
		}
		if err != nil {
			return nil, "", err
		}
	}
	return nil, "", hint.New(fmt.Sprintf("%s:%s changes faster than it can be written", w.dest.Repository, w.tag), "let one push of this version run at a time")
}

// round is what a push reads before it writes.
type round struct {
	readAt time.Time // when it began to read
	others left
	now    *artifact.Version // what the tag names; nil for nothing
}

// readRound reads what others announced, and then the index. If the push has to announce
// itself first, the caller begins the round again.
func (w *push) readRound(ctx context.Context, own []artifact.Package, evidence *ocispec.Descriptor) (r round, again bool, err error) {
	r.readAt = w.o.Now()
	if r.others, err = w.announcements(ctx); err != nil {
		return r, false, err
	}
	if r.others.open && w.own == nil || w.mustRenew(r.others) {
		return r, true, w.announce(ctx, own, evidence)
	}
	if r.now, err = w.current(ctx); err != nil {
		return r, false, err
	}
	if w.tagged != nil && (r.now == nil || r.now.Index.Digest != w.tagged.Index.Digest) { // by another push
		w.noteReplaced(ctx, w.tagged)
		w.tagged = nil
	}
	return r, false, nil
}

// inPlace returns what the tag names if that has all that it should; nil if another push
// was ended before it could put back what it overwrote, or may still overwrite it.
func (w *push) inPlace(ctx context.Context, own []artifact.Package) (*artifact.Version, error) {
	readAt := w.o.Now()
	others, err := w.announcements(ctx)
	if err != nil || others.open {
		return nil, err
	}
	now := w.before
	if len(others.all) > 0 { // read after them
		if now, err = w.current(ctx); err != nil || now == nil {
			return nil, err
		}
	}
	next, err := w.union(ctx, now, others, own, now.Evidence)
	if err != nil || !same(now, next) {
		return nil, err
	}
	w.finish(ctx, others, now, readAt)
	return now, nil
}

// immovable is the warning that an immutable tag keeps from a version what is not
// needed to install it.
func (w *push) immovable(now, next *artifact.Version) string {
	lacks := "what other pushes left"
	if samePackages(now.Packages, next.Packages) {
		lacks = "the evidence of this release"
	}
	return fmt.Sprintf("%s:%s does not name %s, and cannot be moved: what was asked for is in place", w.dest.Repository, w.tag, lacks)
}

// same reports whether two versions hold the same packages and evidence.
func same(a, b *artifact.Version) bool {
	return sameEvidence(a, b) && samePackages(a.Packages, b.Packages)
}

func sameEvidence(a, b *artifact.Version) bool {
	if a.Evidence == nil || b.Evidence == nil {
		return a.Evidence == b.Evidence
	}
	return a.Evidence.Digest == b.Evidence.Digest
}

// corrects reports whether a forced push gives the same packages and evidence other index
// entries.
func (w *push) corrects(before, after *artifact.Version) bool {
	return w.o.Force && (otherEvidenceEntry(before, after) || differ(before, after, otherEntry))
}

// repairs reports whether a forced push corrects more than h1: hashes.
func (w *push) repairs(before, after *artifact.Version) bool {
	return w.o.Force && (otherEvidenceEntry(before, after) || differ(before, after, repaired))
}

// differ reports whether any package differs from what it was before.
func differ(before, after *artifact.Version, differs func(before, after artifact.Package) bool) bool {
	return slices.ContainsFunc(after.Packages, func(p artifact.Package) bool {
		q := find(before.Packages, p.Platform)
		return q != nil && differs(*q, p)
	})
}

// otherEntry reports whether the index entry of the same package differs.
func otherEntry(before, after artifact.Package) bool {
	return otherH1(before, after) || repaired(before, after)
}

// otherH1 reports whether the same package has another h1: hash than before.
func otherH1(before, after artifact.Package) bool {
	return before.Digest == after.Digest && before.H1 != after.H1
}

// repaired reports whether the index entry of the same package differs in more than its
// h1: hash. The hash is in the platform's manifest, too: another hash changes the
// manifest's digest.
func repaired(before, after artifact.Package) bool {
	sameManifest := before.Manifest.Digest == after.Manifest.Digest
	return before.Digest == after.Digest && (before.Size != after.Size || before.Filename != after.Filename || before.UnusedAnnotations != after.UnusedAnnotations ||
		sameManifest && before.Manifest.Size != after.Manifest.Size || !sameManifest && before.H1 == after.H1)
}

// otherEvidenceEntry reports whether the index entry of the same evidence differs.
func otherEvidenceEntry(before, after *artifact.Version) bool {
	a, b := before.Evidence, after.Evidence
	return a != nil && b != nil && a.Digest == b.Digest && (a.Size != b.Size || !maps.Equal(a.Annotations, b.Annotations))
}

// ownPackages returns all packages of the release: those sent now, and those
// that were in place.
func (w *push) ownPackages(sent []artifact.Package) []artifact.Package {
	own := slices.Clone(sent)
	for _, pkg := range w.release.Packages {
		if there := w.present(pkg.Platform); there != nil && find(own, pkg.Platform) == nil {
			own = append(own, *there)
		}
	}
	return own
}

// status tells the outcome from what was there before.
func (w *push) status(after *artifact.Version) Status {
	if w.before == nil {
		return Pushed
	}
	for _, p := range w.before.Packages {
		if q := find(after.Packages, p.Platform); q == nil || q.Digest != p.Digest {
			return Replaced
		}
	}
	switch {
	case len(after.Packages) > len(w.before.Packages):
		return Completed
	case sameEvidence(w.before, after) && w.repairs(w.before, after):
		return Repaired
	case sameEvidence(w.before, after) && w.corrects(w.before, after):
		return Rehashed
	case sameEvidence(w.before, after):
		return Unchanged // by force, what was deleted of it is there again
	case w.before.Evidence == nil:
		return Completed
	}
	return Refreshed
}

// current reads what the tag names now; nil for nothing, or for what --force
// replaces. Where a policy forbids reading the version that this push has tagged, it returns that
// version.
func (w *push) current(ctx context.Context) (*artifact.Version, error) {
	v, err := artifact.Read(ctx, w.dest.Store, w.release.Provider(), w.release.Version())
	switch {
	case err == nil:
		return v, nil
	case errors.Is(err, errdef.ErrNotFound):
		return nil, nil
	case refusals.Policy(err) && w.tagged != nil:
		w.warnUnreadable(err)
		return w.tagged, nil
	case errors.Is(err, artifact.ErrForeign):
		return nil, w.occupied(err, helpForeign)
	case w.o.Force && isReplaceable(err):
		return nil, nil
	}
	return nil, w.registryError("read "+string(w.tag)+" in", err)
}

// warnUnreadable warns once that nobody can read what the push has stored.
func (w *push) warnUnreadable(err error) {
	text := fmt.Sprintf("%s:%s is stored, and nobody can read it yet: %v", w.dest.Repository, w.tag, err)
	if !slices.Contains(w.warnings, text) {
		w.warnings = append(w.warnings, text)
	}
}

// union returns the version to be tagged: the release's own packages, those that
// the tag names now, and those that others have left. A package is a conflict if the
// checksum document of the release, or of the evidence to be kept, contradicts it. A package
// that was only left is passed over then.
func (w *push) union(ctx context.Context, now *artifact.Version, others left, own []artifact.Package, evidence *ocispec.Descriptor) (*artifact.Version, error) {
	next := &artifact.Version{
		Provider: w.release.Provider(), Version: w.release.Version(), Protocols: w.release.Protocols,
		Packages: slices.Clone(own),
	}
	replaced := false
	if now != nil {
		for _, p := range now.Packages {
			mine := find(own, p.Platform)
			want, known := w.listed(p)
			if mine != nil {
				want, known = mine.Digest, mine.Digest != ""
			}
			conflicts := known && want != p.Digest
			if conflicts && !w.o.Force {
				return nil, w.conflict(p, want)
			}
			replaced = replaced || conflicts
			if mine == nil && !conflicts { // by force, what belongs to another release goes
				next.Packages = append(next.Packages, p)
			}
		}
		if next.Protocols == nil {
			next.Protocols = now.Protocols
		}
	}
	if err := w.chooseEvidence(ctx, now, next, replaced, others.evidence, evidence); err != nil {
		return nil, err
	}
	for _, p := range others.packages {
		// It was left by who knows whom: a signed release vouches for what it lists
		// and for nothing else.
		d, listed := w.listed(p)
		vouched := listed && d == p.Digest || !listed && w.sums.Verdict() == trust.ChecksumOnly
		if find(next.Packages, p.Platform) != nil || !vouched || provider.Misnamed(p.Filename, w.release.Version(), p.Platform) {
			continue
		}
		switch misfit, err := w.misfit(ctx, next.Evidence, p); {
		case err != nil:
			return nil, err
		case misfit == nil:
			next.Packages = append(next.Packages, p)
		}
	}
	return next, nil
}

// listed returns the digest that the release's checksum document gives for a
// package: by the name that its platform's package is published under, whatever
// name it says it has, or else by that.
func (w *push) listed(p artifact.Package) (digest.Digest, bool) {
	return listedIn(w.sums, p)
}

// listedIn is listed for any checksum document. A name of another version or platform
// does not count: nothing vouches for the name.
func listedIn(sums *trust.Checksums, p artifact.Package) (digest.Digest, bool) {
	sum, ok := sums.Sum(provider.PackageFilename(sums.Provider(), sums.Version(), p.Platform))
	if !ok && !provider.Misnamed(p.Filename, sums.Version(), p.Platform) {
		sum, ok = sums.Sum(p.Filename)
	}
	return digest.NewDigestFromBytes(digest.SHA256, sum[:]), ok
}

// sendIndex stores the index by digest, and then under the tag.
func (w *push) sendIndex(ctx context.Context, v *artifact.Version) error {
	index, err := artifact.EncodeIndex(*v)
	if err != nil {
		return err
	}
	if err := w.sendBlob(ctx, "push index to", index); err != nil {
		return err
	}
	return w.moveTag(ctx, index, *v)
}

// moveTag has the version's tag name the index of v.
func (w *push) moveTag(ctx context.Context, index artifact.Blob, v artifact.Version) error {
	err := w.sendTag(ctx, "tag "+string(w.tag)+" in", index.Descriptor, index.Data, string(w.tag))
	w.wrote = w.wrote || !errors.Is(err, ErrImmutable) // whatever else went wrong, the tag may have moved
	if err == nil {
		v.Index = index.Descriptor
		w.tagged = &v
	}
	return err
}

// isReplaceable reports whether --force may replace the content that an error is about.
// A tag with damaged content is kept: a later answer may have the right bytes.
func isReplaceable(err error) bool {
	return artifact.IsContent(err) && !errors.Is(err, artifact.ErrDamaged)
}

// isUnusable reports whether an error is about stored content, or says that there is
// none, rather than about the connection to the registry.
func isUnusable(err error) bool {
	return artifact.IsContent(err) || errors.Is(err, errdef.ErrNotFound)
}
