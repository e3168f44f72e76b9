package pusher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/refusals"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

// maxRounds is the maximum number of rounds of a push while other pushes write the same tag.
const maxRounds = 20

// publish makes the tag name all packages of the release, of the stored version and of other pushes'
// announcements. It returns the version that the tag names in the end.
func (w *push) publish(ctx context.Context, sent []artifact.Package) (*artifact.Version, Status, error) {
	w.packages = w.ownPackages(sent)
	after, status, err := w.rounds(ctx, len(sent) == 0)
	if err != nil && w.own != nil && !w.wrote && ctx.Err() == nil {
		w.withdraw(ctx) // nothing was written, so no other push depends on this push
	}
	return after, status, err
}

// offerEvidence stores the release's evidence, once per push. If the original's index is copied byte for byte, it
// stores everything that this index names. It stores no evidence if there is none, or if the registry refuses it.
func (w *push) offerEvidence(ctx context.Context) error {
	if w.offered {
		return nil
	}
	copied, err := w.storeOriginal(ctx, w.packages)
	switch {
	case err != nil, w.withoutEvidence():
	case copied:
		w.offeredEvidence = &w.evidence.Descriptor
	default:
		w.offeredEvidence, err = w.sendEvidence(ctx)
	}
	w.offered = err == nil
	return err
}

// prepare stores the evidence, and announces the push if necessary, before the push writes the version.
func (w *push) prepare(ctx context.Context) error {
	w.prepared = true
	if err := w.offerEvidence(ctx); err != nil {
		return err
	}
	if err := w.offerDocs(ctx); err != nil {
		return err
	}
	if announces, err := w.announces(ctx); err != nil || !announces {
		return err
	}
	return w.announce(ctx)
}

// prepareToSend calls prepare if the push will probably write the version. If the version
// exists and the push has sent no packages, the push writes only if the registry accepts new
// evidence or documentation.
func (w *push) prepareToSend(ctx context.Context, nothingSent bool) error {
	if w.before != nil && nothingSent {
		offers := false
		if w.offersEvidence() {
			if err := w.offerEvidence(ctx); err != nil {
				return err
			}
			offers = w.offeredEvidence != nil
		}
		if w.offersDocs(w.before) {
			if err := w.offerDocs(ctx); err != nil {
				return err
			}
			offers = offers || w.offeredDocs != nil
		}
		if !offers {
			return nil
		}
	}
	return w.prepare(ctx)
}

// errAgain means that a push has to begin another round.
var errAgain = errors.New("another round is necessary")

// rounds decides which version to store, and writes it, until a round finds nothing to change.
func (w *push) rounds(ctx context.Context, nothingSent bool) (*artifact.Version, Status, error) {
	if err := w.prepareToSend(ctx, nothingSent); err != nil {
		return nil, "", err
	}
	for range maxRounds {
		after, status, err := w.round(ctx, nothingSent)
		if !errors.Is(err, errAgain) {
			return after, status, err
		}
	}
	return nil, "", hint.New(fmt.Sprintf("%s:%s changes faster than it can be written", w.Dest.Repository, w.tag), "let one push of this version run at a time")
}

// round decides which version to store. It returns the stored version if nothing is left to do. Otherwise it
// writes the version, and returns errAgain.
func (w *push) round(ctx context.Context, nothingSent bool) (*artifact.Version, Status, error) {
	r, err := w.readRound(ctx)
	if err != nil {
		return nil, "", err
	}
	d, err := w.decide(ctx, r)
	switch {
	case err != nil:
		return nil, "", err
	case r.stored != nil && (d.status == Unchanged || w.isOriginal(r.stored, d.version)):
		return w.keep(ctx, r)
	case !w.prepared:
		return nil, "", cmp.Or(w.prepare(ctx), errAgain)
	}
	err = w.write(ctx, r, d.version)
	if errors.Is(err, repo.ErrImmutable) && nothingSent && r.stored != nil && !w.insists(r.stored) {
		w.warn("%s:%s does not name the evidence of this release or all that other pushes announced, and cannot be moved: what was asked for is in place", w.Dest.Repository, w.tag)
		if w.own != nil {
			w.withdraw(ctx) // no push can move the tag
		}
		return r.stored, Unchanged, nil
	}
	if errors.Is(err, ErrApproved) && nothingSent && r.stored != nil && !w.insists(r.stored) {
		w.warn("%v: what was asked for is in place, and stays as it is", err)
		if w.own != nil {
			w.withdraw(ctx)
		}
		return r.stored, Unchanged, nil
	}
	return nil, "", cmp.Or(err, errAgain)
}

// keep ends a push whose last round has found that the stored version needs no change.
func (w *push) keep(ctx context.Context, r round) (*artifact.Version, Status, error) {
	if err := w.Dest.MarkTag(w.tag, r.stored.Index.Digest, r.stored.Index.Digest); err != nil {
		return nil, "", err
	}
	if err := w.approveStored(ctx, r.stored); err != nil {
		return nil, "", err
	}
	w.finish(ctx, r.others, r.stored, r.readAt)
	return r.stored, statusOf(w.before, r.stored, w.o.Force), nil
}

// write stores the version that a round has decided on, or returns errAgain if the round's data is too old.
func (w *push) write(ctx context.Context, r round, next *artifact.Version) error {
	w.noteReplaced(ctx, r.stored)
	if !w.isFresh(r.readAt) {
		return errAgain
	}
	return w.sendVersion(ctx, r.stored, next)
}

// round holds what a push reads before it writes.
type round struct {
	readAt time.Time // when the push began to read
	others otherPushes
	stored *artifact.Version // the version that the tag names; nil: there is none
}

// readRound reads the announcements, and then the index. It returns errAgain if the push had to announce itself
// first. Without announcements, a push that will probably write nothing reuses the index that it read first.
func (w *push) readRound(ctx context.Context) (r round, err error) {
	r.readAt = w.o.Now()
	if r.others, err = w.announcements(ctx); err != nil {
		return r, err
	}
	if r.others.open && w.own == nil || w.mustRenew(r.others) {
		return r, cmp.Or(w.announce(ctx), errAgain)
	}
	if r.stored = w.before; !w.prepared && w.own == nil && len(r.others.all) == 0 {
		return r, nil
	}
	if r.stored, err = w.current(ctx); err != nil {
		return r, err
	}
	if w.tagged != nil && (r.stored == nil || r.stored.Index.Digest != w.tagged.Index.Digest) { // another push moved the tag
		w.noteReplaced(ctx, w.tagged)
		w.tagged = nil
	}
	return r, nil
}

// decide decides what a round stores. It returns a conflict as an error, after it has restored a version that this
// push has overwritten. It returns errAgain if the round's data is too old to restore the version.
func (w *push) decide(ctx context.Context, r round) (decision, error) {
	s, err := w.situation(ctx, r.stored, r.others, w.packages, w.offeredEvidence)
	if err != nil {
		return decision{}, err
	}
	d := s.decide()
	if d.conflict == nil {
		return d, nil
	}
	err = w.conflictError(d.conflict)
	if d.version != nil {
		w.noteReplaced(ctx, r.stored)
		if !w.isFresh(r.readAt) {
			return d, errAgain
		}
		err = errors.Join(err, w.sendIndex(ctx, r.stored, d.version))
	}
	return d, err
}

// situation reads the input of a decision.
func (w *push) situation(ctx context.Context, stored *artifact.Version, others otherPushes, packages []artifact.Package, evidence *ocispec.Descriptor) (situation, error) {
	s := situation{
		before: w.before, stored: stored, sums: w.sums, protocols: w.release.Protocols, packages: packages,
		ofOthers: ofOthers{announced: others.packages, announcedDocs: others.docs}, force: w.o.Force, refresh: w.refresh, overwrote: w.wrote,
		docs: w.offeredDocs, replaceDocs: w.replacesDocs(),
	}
	var err error
	if stored != nil {
		if s.storedEvidence, err = w.readProof(ctx, stored.Evidence); err != nil {
			return s, err
		}
	}
	if s.releaseEvidence, err = w.readProof(ctx, evidence); err != nil {
		return s, err
	}
	s.announcedEvidence, err = w.readProof(ctx, others.evidence)
	return s, err
}

// checkBeforeSending makes the decision of publish before any package is read. It returns a conflict as an error.
// It also sets w.expected, the evidence that must list the packages whose digests are not known yet.
func (w *push) checkBeforeSending(ctx context.Context, missing []origin.Package) error {
	if len(missing) == 0 {
		return nil
	}
	var others otherPushes
	var err error
	if w.sums.Verdict() != trust.Signed {
		if others, err = w.announcements(ctx); err != nil {
			return err
		}
	}
	if w.before == nil && others.evidence == nil {
		return nil
	}
	var expected []artifact.Package
	for _, pkg := range missing {
		p := artifact.Package{Platform: pkg.Platform, Filename: pkg.Filename}
		if sum, known := w.sums.Sum(pkg.Filename); known {
			p.Digest = sha256Digest(sum)
		}
		expected = append(expected, p)
	}
	s, err := w.situation(ctx, w.before, others, w.ownPackages(expected), &w.evidence.Descriptor)
	if err != nil {
		return err
	}
	d := s.decide()
	if d.conflict != nil {
		return w.conflictError(d.conflict)
	}
	if !w.o.Force {
		w.expected = d.evidence
	}
	return nil
}

// ownPackages returns all packages of the release: those that were sent, and those in place.
func (w *push) ownPackages(sent []artifact.Package) []artifact.Package {
	own := slices.Clone(sent)
	for _, pkg := range w.release.Packages {
		if there := w.present(pkg.Platform); there != nil && repo.Find(own, pkg.Platform) == nil {
			own = append(own, *there)
		}
	}
	return own
}

// current returns the version that the tag names now, or nil if there is none, or if --force replaces invalid
// content. If a policy of the registry forbids reading the version that this push tagged, current returns that
// version.
func (w *push) current(ctx context.Context) (*artifact.Version, error) {
	v, err := repo.ReadVersion(ctx, w.Dest.Store, w.Dest.Repository, w.release.Provider(), w.release.Version(), repo.TagOf(w.release.Version()))
	switch {
	case errors.Is(err, errdef.ErrNotFound), w.o.Force && repo.IsReplaceable(err):
		return nil, nil
	case refusals.Policy(err) && w.tagged != nil:
		w.warn("%s:%s is stored, and nobody can read it yet: %v", w.Dest.Repository, w.tag, errors.Unwrap(err)) // Unwrap omits the operation from the message
		return w.tagged, nil
	}
	return v, err
}

// sendVersion stores a version's index under its tag. For a new version, it prefers the original's index, if that
// index has the same content and the destination accepts it.
func (w *push) sendVersion(ctx context.Context, stored, next *artifact.Version) error {
	if stored == nil && w.original != nil && w.original.index != nil && sameContent(next, w.original.version) {
		index := *w.original.index
		err := w.SendBlob(ctx, "push index to", index)
		if err == nil {
			return w.moveTag(ctx, stored, index, *w.original.version)
		}
		if !w.cannotCarry(err) {
			return err
		}
		w.rewriteIndex(err.Error())
	}
	return w.sendIndex(ctx, stored, next)
}

// sendIndex stores a version's index by digest, and then under the tag. The parameter stored is the version
// whose index the tag names before the call.
func (w *push) sendIndex(ctx context.Context, stored, v *artifact.Version) error {
	index, err := artifact.EncodeIndex(*v)
	if err != nil {
		return err
	}
	if err := w.SendBlob(ctx, "push index to", index); err != nil {
		return err
	}
	return w.moveTag(ctx, stored, index, *v)
}

// moveTag moves the version's tag from the index of stored to the index of v. It approves this index before, if it may. A copy of the
// index brings its approvals before.
func (w *push) moveTag(ctx context.Context, stored *artifact.Version, index artifact.Blob, v artifact.Version) error {
	if err := w.approveNext(ctx, stored, index, v); err != nil {
		return err
	}
	if err := w.attachFirst(ctx, index); err != nil {
		return err
	}
	var before digest.Digest
	if stored != nil {
		before = stored.Index.Digest
	}
	if err := w.Dest.MarkTag(w.tag, before, index.Descriptor.Digest); err != nil {
		return err
	}
	err := w.SendTag(ctx, "tag "+string(w.tag)+" in", index, string(w.tag), helpImmutable)
	w.wrote = w.wrote || !errors.Is(err, repo.ErrImmutable) // after any other error, the tag might have moved
	if err == nil {
		v.Index = index.Descriptor
		w.tagged = &v
		if w.sums.Verdict() == trust.Signed {
			w.unsigned.Delete(w.Dest.Repository)
		}
	}
	return err
}

// noteReplaced notes in the repository's state that the tag will no longer name the index of v, unless v is nil.
// The push continues with a warning if the state cannot be written.
func (w *push) noteReplaced(ctx context.Context, v *artifact.Version) {
	if v == nil || w.Dest.Store.Remote() == nil { // a bundle is never pruned
		return
	}
	change := repo.StateChange{Replaced: []artifact.Replaced{{Manifest: repo.Plain(v.Index), Version: w.release.Version()}}}
	if err := w.UpdateState(ctx, w.release.Provider(), change, w.warn); err != nil && ctx.Err() == nil {
		w.warn("no prune will find the index %s once another one is tagged: %v", v.Index.Digest, err)
	}
}

const helpImmutable = "the registry keeps what was uploaded, but the tag names the same index as before. Let this tag be moved and run it again (Harbor: the project's tag immutability rules; " +
	"Amazon ECR: aws ecr put-image-tag-mutability; elsewhere they are locks, protected or immutable tags), or push all platforms of a version at once from the start"
