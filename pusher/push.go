package pusher

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

// push is the push of one release to one repository.
type push struct {
	target
	clock  *outgoing.Clock // the registry's clock
	unlock func()          // ends the lock of the destination

	asked
	found
	done
}

// asked is what a push stores. It does not change while the push runs.
type asked struct {
	release *origin.Release
	sums    *trust.Checksums
	tag     ociaddr.Tag

	evidence      artifact.Blob // the release's evidence
	evidenceBlobs []artifact.Blob
	// refresh: the release's evidence should replace the stored evidence, unless it is weaker.
	// repair: parts of the stored evidence might have been deleted; refresh is then set, too.
	refresh, repair bool

	docs *docs // the documentation of the release; nil: the release has none

	original *original // the version to copy; nil: the release comes from an origin
}

// found is what a push has read.
type found struct {
	before *artifact.Version // the version when the push began; nil: it did not exist
	recent repo.RecentTags   // the tags that the push listed when it began
	// expected is the evidence that the version will probably get. It must list each package whose
	// digest becomes known only when the package is read.
	expected      proof
	evidenceCache map[digest.Digest]*artifact.Evidence
	noProgram     noProgram // the packages that were read, and that no client can run
}

// done is what a push has done.
type done struct {
	uploaded        map[provider.Platform]bool
	packages        []artifact.Package  // all packages of the release, once they are stored
	offered         bool                // offerEvidence has succeeded
	offeredEvidence *ocispec.Descriptor // nil: there is none, or the registry refuses it
	docsSent        bool                // offerDocs has succeeded
	offeredDocs     *ocispec.Descriptor // the stored documentation; nil: there is none, or the registry refuses it
	prepared        bool                // prepare was called
	own             *ownAnnouncement    // nil: the push has not announced itself
	tagged          *artifact.Version   // the version that the push tagged last; nil once another push has moved the tag
	wrote           bool                // the push has moved the tag, or might have moved it
	warnings        []string

	signatures []approval.Signature // of the index that the push has approved or found approved
	approvedBy string               // the fingerprint of the key in Options.Sign, if the version is approved by it
}

// target is the repository to which a [Pusher] writes.
type target struct {
	*Pusher
	repo.Writer
	approvals map[digest.Digest]approvals // what optionalApprovals has returned
}

// to returns the target for a destination.
func (p *Pusher) to(dest repo.Destination) target {
	return target{p, p.session.Writer(dest), map[digest.Digest]approvals{}}
}

// Push stores a release. If Push fails, the tag names either the same manifest as before or a
// complete index. Another Push then completes the version.
func (p *Pusher) Push(ctx context.Context, r *origin.Release) (*Result, error) {
	return p.push(ctx, r, false)
}

// Repair is like Push, but stores deleted parts of the evidence again. It replaces the stored evidence, unless the
// release's evidence is weaker.
func (p *Pusher) Repair(ctx context.Context, r *origin.Release) (*Result, error) {
	return p.push(ctx, r, true)
}

// push implements Push and Repair.
func (p *Pusher) push(ctx context.Context, r *origin.Release, repair bool) (*Result, error) {
	// 1. Accept the release, and find its repository.
	w, err := p.begin(ctx, r)
	if err != nil {
		return nil, err
	}
	defer w.unlock()
	w.repair, w.refresh = repair, repair || p.o.RefreshEvidence
	after, status, err := w.run(repo.MayPush(ctx, w.Dest.Repository))
	if err != nil {
		return nil, err
	}
	return w.result(ctx, after, status), nil
}

// run stores an accepted release.
func (w *push) run(ctx context.Context) (*artifact.Version, Status, error) {
	ctx = outgoing.WithClock(ctx, w.clock)
	// 2. Read the stored version.
	missing, err := w.compare(ctx)
	if err != nil {
		return nil, "", err
	}
	// 3. Store layers and platform manifests.
	sent, err := w.sendPackages(ctx, missing)
	if err != nil {
		return nil, "", err
	}
	// 4. Store evidence and index, and move the tag, if they change.
	after, status, err := w.publish(ctx, sent)
	if err == nil {
		w.NoteStored(w.release.Provider(), w.Dest, w.release.Version(), after)
		if w.signatures != nil {
			w.NoteSignatures(w.release.Provider(), w.Dest, w.release.Version(), after.Index.Digest, w.signatures)
		}
	}
	return after, status, err
}

// compare reads the stored version, and returns the packages that it lacks. It fails if they must not be sent.
func (w *push) compare(ctx context.Context) ([]origin.Package, error) {
	if err := w.inspect(ctx); err != nil {
		return nil, err
	}
	missing, err := w.missing(ctx)
	if err != nil {
		return nil, err
	}
	if err := w.checkBeforeSending(ctx, missing); err != nil || len(missing) == 0 || w.o.Force {
		return missing, err // a forced push may find everything in place
	}
	return missing, w.checkApproved(ctx)
}

// begin accepts a release, and locks its destination. The caller must call unlock.
func (p *Pusher) begin(ctx context.Context, r *origin.Release) (*push, error) {
	tag, err := ociaddr.VersionTag(r.Version())
	if err != nil {
		return nil, err
	}
	sums, err := p.accept(ctx, r)
	if err != nil {
		return nil, err
	}
	evidence, blobs, err := artifact.EncodeEvidence(artifact.NewEvidence(sums, r.Origin, r.Protocols, r.About))
	if err != nil {
		return nil, err
	}
	documentation, err := docsOf(r)
	if err != nil {
		return nil, err
	}
	dest, err := p.o.Destination(ctx, r.Provider())
	if err != nil {
		return nil, err
	}
	unlock, err := dest.LockFor(ctx, "push of %s %s", r.Provider(), r.Version())
	if err != nil {
		return nil, err
	}
	if err := p.checkDowngrade(ctx, dest, sums); err != nil {
		unlock()
		return nil, err
	}
	return &push{
		target: p.to(dest), clock: outgoing.NewClock(p.o.Now), unlock: unlock,
		asked: asked{release: r, sums: sums, tag: tag, evidence: evidence, evidenceBlobs: blobs, docs: documentation},
		found: found{evidenceCache: map[digest.Digest]*artifact.Evidence{}},
		done:  done{uploaded: map[provider.Platform]bool{}},
	}, nil
}

// accept checks the claims of a release against the policy. The claims must cover all packages of the
// release.
func (p *Pusher) accept(ctx context.Context, r *origin.Release) (*trust.Checksums, error) {
	sums, err := p.o.Policy(r.Provider()).Accept(ctx, r.Claims)
	if err != nil {
		return nil, orOthers(err, r)
	}
	for _, pkg := range r.Packages {
		if err := checkName(r, sums, pkg); err != nil {
			return nil, orOthers(err, r)
		}
		if _, err := sums.Verifier(pkg.Platform, pkg.Filename); err != nil {
			return nil, orOthers(fmt.Errorf("%s %s: %w", r.Provider(), r.Version(), err), r)
		}
	}
	return sums, nil
}

// orOthers adds a hint to an error about one package of a release: how to push the other packages.
func orOthers(err error, r *origin.Release) error {
	about := errors.Is(err, ErrMisnamed) || errors.Is(err, trust.ErrChecksum) || errors.Is(err, trust.ErrNotListed)
	if !about || len(r.Packages) < 2 {
		return err
	}
	help := "--platform pushes the others, by name"
	if before := hint.Of(err); before != "" {
		help = before + "; " + help
	}
	return hint.Replace(err, "%s", help)
}

// checkName refuses a package whose file name belongs to another version or platform. Only this name, which the
// signature covers, says to which version and platform the bytes belong. It also refuses a package if the
// checksums list other bytes under the published name.
func checkName(r *origin.Release, sums *trust.Checksums, pkg origin.Package) error {
	published, want, lists := sums.Package(pkg.Platform)
	sum, listed := sums.Sum(pkg.Filename)
	offers := pkg.Filename
	switch {
	case provider.Misnamed(pkg.Filename, r.Version(), pkg.Platform):
	case lists && listed && sum != want:
		offers += ", whose checksum is not that of " + published
	default:
		return nil
	}
	return hint.Wrap(fmt.Errorf("%s %s for %s: %w: its origin offers %s", r.Provider(), r.Version(), pkg.Platform, ErrMisnamed, offers),
		"the origin offers one package as another; nothing was stored. Tell the operator of the origin")
}

// inspect reads the version that the tag names. If there is none, it checks that the repository does not
// belong to another provider.
func (w *push) inspect(ctx context.Context) (err error) {
	if w.before, err = w.current(ctx); err != nil || w.before != nil {
		return err
	}
	tags, err := w.recent.List(ctx, w.Dest.Store, w.o.Now)
	if err != nil {
		return w.Failed("list tags of", err)
	}
	return w.CheckOwner(ctx, w.tag, w.release.Provider(), tags, w.warn)
}

// missing returns the packages that have to be read: those that are not stored, those whose digest is unknown
// until they are read, and all packages if the push is forced. It fails on a conflict between known digests, or if
// a local file does not match its checksum.
func (w *push) missing(ctx context.Context) ([]origin.Package, error) {
	var out []origin.Package
	for _, pkg := range w.release.Packages {
		if sum, known := w.knownSum(pkg); known {
			if err := w.checkLocal(ctx, pkg, sum); err != nil {
				return nil, err
			}
			if inPlace, err := w.isInPlace(pkg.Platform, sum); err != nil {
				return nil, err
			} else if inPlace {
				continue
			}
		}
		out = append(out, pkg)
	}
	return out, nil
}

// checkLocal verifies the local file of a package that the stored version has. A package that is not stored is
// verified when it is sent.
func (w *push) checkLocal(ctx context.Context, pkg origin.Package, d digest.Digest) error {
	if there := w.present(pkg.Platform); !pkg.Local || there == nil || there.Digest != d || w.o.Force {
		return nil
	}
	_, err := w.read(ctx, pkg)
	return err
}

// isInPlace reports whether the stored version has a package. Another digest for the platform is a conflict. In a
// forced push, no package is in place, because parts of any package might have been deleted.
func (w *push) isInPlace(p provider.Platform, d digest.Digest) (bool, error) {
	there := w.present(p)
	if there == nil || w.o.Force {
		return false, nil
	}
	if there.Digest != d {
		return false, w.conflictError(&conflict{kind: conflictPackage, platform: p, found: there.Digest, want: d})
	}
	w.event(p, StagePresent, 0, there.Size)
	w.addLocation(d, w.Dest.Repository)
	return true, nil
}

// knownSum returns the digest of a package, and whether the checksums alone determine it.
func (a *asked) knownSum(pkg origin.Package) (digest.Digest, bool) {
	sum, ok := a.sums.Sum(pkg.Filename)
	return sha256Digest(sum), ok && a.sums.KnownBySum(pkg.Filename)
}

func sha256Digest(sum [sha256.Size]byte) digest.Digest {
	return digest.NewDigestFromBytes(digest.SHA256, sum[:])
}

// present returns the package that was tagged for a platform when the push began, or nil.
func (f *found) present(p provider.Platform) *artifact.Package {
	if f.before == nil {
		return nil
	}
	return repo.Find(f.before.Packages, p)
}

func (w *push) event(p provider.Platform, stage Stage, n int, total int64) {
	w.o.OnEvent(Event{Subject: w.release.Provider(), Version: w.release.Version(), Platform: p, Stage: stage, Bytes: n, Total: total})
}

// warn adds a warning, unless the push already has the same warning.
func (d *done) warn(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(d.warnings, text) {
		d.warnings = append(d.warnings, text)
	}
}
